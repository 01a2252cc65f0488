"""What faults prove: who did nothing before one of them, or nothing after it, did not live through it."""

from collections.abc import Iterable
from typing import NamedTuple

from demo.evidence import Evidence
from demo.proofs.promise import unless


class Stretch(NamedTuple):
    when: str
    from_s: float
    to_s: float


def stretches(seen: Evidence) -> list[Stretch]:
    """While the shop is open. What is done for its last order says nothing of faults: they are over then."""
    return [
        Stretch("before the leader was killed", 0.0, seen.killed_s),
        Stretch("after that, and before the Spark driver was killed", seen.killed_s, seen.driver_killed_s),
        Stretch("after that, and before the shop closed", seen.driver_killed_s, seen.closed_s),
    ]


def counts(seen: Evidence, times_s: Iterable[float]) -> dict[str, int]:
    """What was done in each stretch."""
    times_s = list(times_s)
    return {one.when: sum(one.from_s < at_s <= one.to_s for at_s in times_s) for one in stretches(seen)}


def idle_in(what: str, done: dict[str, int]) -> list[str]:
    return [f"{what} {when}" for when, count in done.items() if not count]


def through(what: str, times_s: Iterable[float], fault: str, at_s: float) -> list[str]:
    """Findings for what did not happen on both sides of a fault."""
    times_s = list(times_s)
    findings = unless(any(one <= at_s for one in times_s), f"{what} before {fault}")
    return findings + unless(any(one > at_s for one in times_s), f"{what} after {fault}")
