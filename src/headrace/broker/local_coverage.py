"""What this node has of tiered partitions on its own disk: who knows it, and how it stands in messages.

The tier says so by `Coverages.of`. Without a tier nothing is reported, and no message is larger for it.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Protocol, TypedDict

from headrace.broker.partitions import Hosted
from headrace.core.cluster import IsrMember
from headrace.core.coverage import UNKNOWN_OFFSET, Edge, LocalCoverage, edge_of, thresholds_of

Report = Callable[[Hosted], LocalCoverage | None]
"""None for what is not tiered, or not known."""


class Told(Protocol):
    """The private fields of a partition in Fetch, and of a member in AlterPartition."""

    local_log_start_offset: int
    coverage_since_ms: int
    local_bytes: int
    at_local_retention: bool


class Fields(TypedDict, total=False):
    local_log_start_offset: int
    coverage_since_ms: int
    local_bytes: int
    at_local_retention: bool


def report(_: Hosted) -> LocalCoverage | None:
    return None


class Coverages:
    def __init__(self) -> None:
        self.report: Report = report
        """Set by the tier."""

        self._told: dict[Hosted, Edge] = {}
        """What the leaders of followed partitions were told last."""

    def of(self, partition: Hosted) -> LocalCoverage | None:
        """Also where the tier is being given up, and this disk has not all: the log is to begin where it does."""
        is_told = partition.config.remote_storage_enable or is_short(partition)
        return self.report(partition) if is_told else None

    # For followers.

    def told(self, partition: Hosted) -> LocalCoverage | None:
        """It goes into a request now."""
        local = self.of(partition)
        if local is None:
            self._told.pop(partition, None)
        else:
            self._told[partition] = self.edge(partition, local)
        return local

    def has_news(self, partition: Hosted) -> bool:
        local = self.of(partition)
        return local is not None and self._told.get(partition) != self.edge(partition, local)

    def forget_all_but(self, known: Collection[Hosted]) -> None:
        for gone in [partition for partition in self._told if partition not in known]:
            del self._told[gone]

    def edge(self, partition: Hosted, local: LocalCoverage) -> Edge:
        config = partition.config
        kept = config.kept_locally_ms, config.kept_locally_bytes
        return edge_of(local, partition.log_start_offset, thresholds_of(config), kept)

    # For leaders.

    def of_members(self, partition: Hosted, isr: Iterable[IsrMember]) -> dict[int, LocalCoverage]:
        """Of those members of an ISR that have said so, this node among them."""
        leadership = partition.leadership
        if leadership is None or not partition.config.remote_storage_enable:
            return {}
        found = {}
        for member, _ in isr:
            follower = leadership.followers.get(member)
            if follower is not None:
                local = follower.coverage
            else:
                local = self.of(partition) if member == leadership.record.leader else None
            if local is not None:
                found[member] = local
        return found

    def log_start_without_tier(self, partition: Hosted) -> int:
        """Where every member of the ISR that has said so has the log on its own disk. Only for its leader."""
        starts = [partition.local_log_start_offset]
        leadership = partition.leadership
        for member, _ in () if leadership is None else leadership.record.isr:
            assert leadership is not None
            follower = leadership.followers.get(member)
            if follower is not None and follower.coverage is not None:
                starts.append(follower.coverage.local_log_start)
        return min(max(starts), partition.high_watermark)

    def log_start(self, partition: Hosted) -> int:
        return partition.log_start_offset if partition.config.remote_storage_enable else UNKNOWN_OFFSET


def is_short(partition: Hosted) -> bool:
    """Some of the log is not on this disk."""
    return partition.local_log_start_offset > partition.log_start_offset


def coverage_told(told: Told) -> LocalCoverage | None:
    if told.local_log_start_offset < 0:
        return None
    return LocalCoverage(told.local_log_start_offset, told.coverage_since_ms, told.local_bytes, told.at_local_retention)


def fields_of(local: LocalCoverage | None) -> Fields:
    if local is None:
        return {}
    return Fields(
        local_log_start_offset=local.local_log_start,
        coverage_since_ms=local.coverage_since_ms,
        local_bytes=local.local_bytes,
        at_local_retention=local.at_local_retention,
    )
