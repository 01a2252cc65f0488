"""What three nodes of each were measured to do, and how it stands against what we aim at."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.results import HEADRACE, KAFKA, Goal
from bench.rounds import Measured

READY_S_MAX = 3
DEATH_S_MAX = 1
IDLE_RATIO_MAX = 0.1
HANG_RATIO_MAX = 1.0


class Starts(NamedTuple):
    ready_s: list[float]
    cpu_s: list[float]
    whole_s: list[float]


class Idle(NamedTuple):
    partitions: int
    whole_s: float
    rss_bytes: int
    cpu_share: list[float]
    bytes_per_s: list[float]


@dataclass
class ClusterResults:
    """All CPU and memory is that of three nodes together."""

    machine: str
    rounds: int
    warm_up: int
    measured: list[Measured] = field(default_factory=list)
    starts: dict[str, Starts] = field(default_factory=dict)
    rss_bytes: dict[str, int] = field(default_factory=dict)
    """After the load."""
    died_s: dict[str, list[float]] = field(default_factory=dict)
    hung_s: dict[str, list[float]] = field(default_factory=dict)
    idle: dict[str, Idle] = field(default_factory=dict)

    def goals(self) -> list[Goal]:
        found = [
            Goal(row.workload.name, ratio, row.workload.ratio_max, "of Kafka's CPU")
            for row in self.measured
            if (ratio := row.ratio()) is not None
        ]
        if HEADRACE in self.died_s:
            found.append(Goal("fail-over after a death", median(self.died_s[HEADRACE]), DEATH_S_MAX, "s"))
        if (share := _share(self.hung_s)) is not None:
            found.append(Goal("fail-over after a hang", share, HANG_RATIO_MAX, "of Kafka's time"))
        if (share := _share({name: idle.cpu_share for name, idle in self.idle.items()})) is not None:
            found.append(Goal("idle with 10,000 partitions", share, IDLE_RATIO_MAX, "of Kafka's CPU"))
        if HEADRACE in self.starts:
            found.append(Goal("start of three nodes", median(self.starts[HEADRACE].ready_s), READY_S_MAX, "s"))
        return found


def median(figures: Sequence[float]) -> float:
    return statistics.median(figures)


def _share(figures: Mapping[str, Sequence[float]]) -> float | None:
    if not {KAFKA, HEADRACE} <= figures.keys():
        return None
    return median(figures[HEADRACE]) / median(figures[KAFKA])
