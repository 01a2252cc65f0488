"""Which replicas of a tiered partition have little of it on their own disks, and come last when a leader is chosen.

A replica that has just started from the tier would answer most reads from there. It is *thin* until its own log reaches
far enough back in time, is large enough, or is all that its policy lets it keep. This orders candidates and excludes
nobody: whoever could lead without it can lead with it. What is not known of a replica never counts against it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from headrace.config import TopicConfig

R = TypeVar("R", bound=tuple[int, ...])
UNKNOWN_OFFSET = -1


class LocalCoverage(NamedTuple):
    """What a node has of a tiered partition on its own disk."""

    local_log_start: int
    coverage_since_ms: int
    """Wall clock: everything appended since then is local."""
    local_bytes: int
    at_local_retention: bool
    """The local log start was last moved by the replica's own local retention: it holds all that it may."""


class Thresholds(NamedTuple):
    """-1 and 0: does not count."""

    ms: int
    bytes: int

    @property
    def are_set(self) -> bool:
        return self.ms > 0 or self.bytes > 0


class ReplicaCoverage(msgspec.Struct, frozen=True, array_like=True):
    """What the store remembers of one replica, and the registration of its node that said so."""

    broker_id: int
    broker_epoch: int
    local: LocalCoverage


class CoverageRecord(msgspec.Struct, frozen=True, tag_field="v", tag=1):
    """Of one partition, as the store holds it. `log_start` is that of the whole log, the tier included."""

    log_start: int
    replicas: tuple[ReplicaCoverage, ...]


class StoredCoverage(NamedTuple):
    record: CoverageRecord
    rev: int


class CoveragePut(NamedTuple):
    """A change of the image."""

    topic_id: bytes
    partition: int
    stored: StoredCoverage


class CoverageGone(NamedTuple):
    topic_id: bytes
    partition: int


def remember(known: dict[tuple[bytes, int], StoredCoverage], change: CoveragePut | CoverageGone) -> None:
    key = change.topic_id, change.partition
    if isinstance(change, CoverageGone):
        known.pop(key, None)
    elif key not in known or known[key].rev < change.stored.rev:
        known[key] = change.stored


class _Registered(Protocol):
    @property
    def epoch(self) -> int: ...
    @property
    def intact_since(self) -> int: ...
    @property
    def last_epoch(self) -> int: ...


def thresholds_of(config: TopicConfig) -> Thresholds | None:
    """None where the topic is not tiered, or no threshold is set."""
    if not config.remote_storage_enable:
        return None
    found = Thresholds(config.leader_election_eligible_local_log_ms, config.leader_election_eligible_local_log_bytes)
    return found if found.are_set else None


def is_complete(local: LocalCoverage, log_start: int) -> bool:
    """Nothing is in the tier alone."""
    return log_start != UNKNOWN_OFFSET and local.local_log_start <= log_start


def is_thin(local: LocalCoverage | None, log_start: int, thresholds: Thresholds | None, now_ms: int) -> bool:
    if thresholds is None or local is None or is_complete(local, log_start) or local.at_local_retention:
        return False
    by_time = thresholds.ms > 0 and now_ms - local.coverage_since_ms >= thresholds.ms
    by_bytes = thresholds.bytes > 0 and local.local_bytes >= thresholds.bytes
    return not (by_time or by_bytes)


def order(replicas: R, thin: Collection[int]) -> R | tuple[int, ...]:
    """Those that are not thin first, else as they were; the very same object when there is nothing to order."""
    if not thin:
        return replicas
    return tuple(sorted(replicas, key=lambda replica: replica in thin))


def counting(record: CoverageRecord, brokers: Mapping[int, _Registered]) -> dict[int, LocalCoverage]:
    """What still holds: a node that lost its log since it said so has said nothing."""
    return {
        known.broker_id: known.local
        for known in record.replicas
        if known.broker_id not in brokers or _still_holds(known.broker_epoch, brokers[known.broker_id])
    }


def _still_holds(epoch: int, broker: _Registered) -> bool:
    return broker.intact_since <= epoch and (epoch <= broker.last_epoch or epoch == broker.epoch)


def merged(
    known: CoverageRecord | None,
    told: Mapping[int, LocalCoverage],
    log_start: int,
    epochs: Mapping[int, int],
    replicas: Collection[int],
    brokers: Mapping[int, _Registered],
) -> CoverageRecord:
    """What is to be remembered: what was told now, and of other replicas what still holds.

    `epochs` are those of the members of the ISR for which it was told.
    """
    kept = {}
    if known is not None:
        holds = counting(known, brokers)
        kept = {r.broker_id: r for r in known.replicas if r.broker_id in holds and r.broker_id in replicas}
    new = {n: ReplicaCoverage(n, epochs[n], local) for n, local in told.items() if n in epochs and n in replicas}
    start = log_start if known is None else max(log_start, known.log_start)
    return CoverageRecord(start, tuple(replica for _, replica in sorted((kept | new).items())))


def thin_replicas(
    record: CoverageRecord | None,
    replicas: Iterable[int],
    brokers: Mapping[int, _Registered],
    thresholds: Thresholds | None,
    now_ms: int,
) -> frozenset[int]:
    if record is None or thresholds is None:
        return frozenset()
    known = counting(record, brokers)
    return frozenset(r for r in replicas if is_thin(known.get(r), record.log_start, thresholds, now_ms))


class Edge(NamedTuple):
    """What makes a report due when it changes. Plain growth does not, nor does time: both are seen without one."""

    local_log_start: int
    at_local_retention: bool
    is_complete: bool
    has_bytes: bool
    thresholds: Thresholds | None
    local_retention: tuple[int, int]


def edge_of(
    local: LocalCoverage, log_start: int, thresholds: Thresholds | None, local_retention: tuple[int, int] = (-1, -1)
) -> Edge:
    return Edge(
        local.local_log_start,
        local.at_local_retention,
        is_complete(local, log_start),
        thresholds is not None and 0 < thresholds.bytes <= local.local_bytes,
        thresholds,
        local_retention,
    )
