"""Every act was played: what an act waits for is a promise too."""

from demo.evidence import Evidence
from demo.proofs.promise import Promise, unless


def played_to_the_end(seen: Evidence) -> Promise:
    return Promise(
        "make demo",
        "Every act came to its end, and everything was read back",
        {"acts and steps": len(seen.played), "failures": len(seen.failures)},
        seen.failures + unless(seen.played, "no act was played"),
    )
