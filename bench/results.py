"""Everything one run measured, and how it stands against what we aim at."""

import statistics
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.rounds import Measured
from bench.sessions import IdlePartitions, Stall
from bench.startup import StartUp

KAFKA, HEADRACE = "Apache Kafka", "Headrace"

START_UP_RATIO_MAX = 0.2
MEMORY_RATIO_MAX = 0.1
IDLE_FETCH_RATIO_MAX = 0.01
IDLE_FETCH_GROWTH_MAX = 1.5
"""Flat, within what a benchmark on a shared machine can show."""
SCRAPE_STALL_MS_MAX = 20
RESTART_S_MAX = 5


class Goal(NamedTuple):
    name: str
    value: float
    limit: float
    unit: str

    @property
    def is_met(self) -> bool:
        return self.value <= self.limit


@dataclass
class Results:
    machine: str
    rounds: int
    warm_up: int
    measured: list[Measured] = field(default_factory=list)
    start_up: dict[str, StartUp] = field(default_factory=dict)
    rss_after_load: dict[str, int] = field(default_factory=dict)
    idle_cpu_share: dict[str, float] = field(default_factory=dict)
    idle: dict[str, list[IdlePartitions]] = field(default_factory=dict)
    restart_s: dict[str, float] = field(default_factory=dict)
    """After a clean stop, with the 11,000 idle partitions of the session rows."""
    stall: Stall | None = None

    def goals(self) -> list[Goal]:
        found = [
            Goal(row.workload.name, ratio, row.workload.ratio_max, "of Kafka's CPU")
            for row in self.measured
            if (ratio := row.ratio()) is not None
        ]
        return found + self._start_goals() + self._idle_goals()

    def _start_goals(self) -> list[Goal]:
        found = []
        if {KAFKA, HEADRACE} <= self.start_up.keys():
            ours, theirs = (statistics.median(self.start_up[name].seconds) for name in (HEADRACE, KAFKA))
            found.append(Goal("start-up", ours / theirs, START_UP_RATIO_MAX, "of Kafka's time"))
        if {KAFKA, HEADRACE} <= self.rss_after_load.keys():
            share = self.rss_after_load[HEADRACE] / self.rss_after_load[KAFKA]
            found.append(Goal("memory after load", share, MEMORY_RATIO_MAX, "of Kafka's"))
        if HEADRACE in self.restart_s:
            found.append(Goal("start with 11,000 partitions", self.restart_s[HEADRACE], RESTART_S_MAX, "s"))
        if self.stall is not None:
            found.append(Goal("stall during a scrape", self.stall.median_ms, SCRAPE_STALL_MS_MAX, "ms"))
        return found

    def _idle_goals(self) -> list[Goal]:
        ours = {idle.partitions: statistics.median(idle.cpu_us_per_fetch) for idle in self.idle.get(HEADRACE, ())}
        theirs = {idle.partitions: statistics.median(idle.cpu_us_per_fetch) for idle in self.idle.get(KAFKA, ())}
        found = []
        if 10_000 in ours and 10_000 in theirs:
            share = ours[10_000] / theirs[10_000]
            found.append(Goal("idle fetch, 10,000 partitions", share, IDLE_FETCH_RATIO_MAX, "of Kafka's CPU"))
        if len(ours) > 1:
            growth = ours[max(ours)] / ours[min(ours)]
            name = f"idle fetch, {max(ours):,} against {min(ours):,} partitions"
            found.append(Goal(name, growth, IDLE_FETCH_GROWTH_MAX, "times the CPU"))
        return found
