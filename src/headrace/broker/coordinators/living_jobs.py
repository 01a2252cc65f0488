"""Batch jobs whose drivers let it be known that they live: one that falls silent is given up.

What its tasks have written holds back whoever reads what is committed, until their transactions time out, and nobody
comes again for a job whose driver is dead. Silence is counted in rounds, not by the clock: a node that stood still
itself has heard nobody. Nothing of it is written: whoever coordinates next waits until it hears of a driver.
"""

from typing import Final

ROUND_MS: Final = 10_000
ROUNDS_MAX: Final = 6
"""In which nothing was heard: a minute, and no more than one of a driver that was cut off, or of a coordinator that
moved."""
JOBS_MAX: Final = 100_000
"""That one node looks after. One more is not given up before it times out."""


class LivingJobs:
    def __init__(self) -> None:
        self._unheard: dict[int, dict[str, int]] = {}

    def begin(self, index: int) -> None:
        self._unheard[index] = {}

    def ended(self, index: int) -> None:
        self._unheard.pop(index, None)

    def heard(self, index: int, job: str) -> None:
        jobs = self._unheard[index]
        if job in jobs or sum(map(len, self._unheard.values())) < JOBS_MAX:
            jobs[job] = 0

    def over(self, index: int, job: str) -> None:
        self._unheard.get(index, {}).pop(job, None)

    def silent(self) -> list[tuple[int, str]]:
        """Ends a round. Those for which it was one too many."""
        found = []
        for index, jobs in self._unheard.items():
            for job in jobs:
                jobs[job] += 1
                if jobs[job] > ROUNDS_MAX:
                    found.append((index, job))
        return found
