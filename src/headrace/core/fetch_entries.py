"""A partition inside a fetch session, and what is wrong with it, if anything.

Nothing here remembers events. What an entry is worth follows from the replica as it is now and from what the fetcher
asked last, so that a lost or doubled event cannot make a session lie.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Optional, Protocol, TypeAlias

from headrace.core.coverage import LocalCoverage
from headrace.core.ownership_gate import Gated
from headrace.errors import CorruptLog, ErrorCode
from headrace.wire.messages.fetch import FetchPartition

if TYPE_CHECKING:
    from headrace.core.fetch_session import FetchSession
    from headrace.core.leading import Leadership
    from headrace.core.ownership_gate import Gate

TopicKey: TypeAlias = str | bytes
"""A name up to Fetch version 12, an id from 13 on."""

UNLIMITED_BYTES = 1 << 40
"""More than any fetch can ask for: `min_bytes` has 31 bits."""


class Replica(Protocol):
    """What a session needs to know of a partition that this node hosts."""

    topic: str
    topic_id: bytes
    index: int
    leader_epoch: int
    log_start_offset: int
    local_log_start_offset: int  # what lies below it is in the tier alone
    log_end_offset: int
    high_watermark: int
    leadership: Optional["Leadership"]  # of a leader with followers
    own: Optional["Gate"]  # where not everybody may read
    subscribers: Optional["Entry"]  # the first of a chain that this module alone changes

    @property
    def last_stable_offset(self) -> int: ...
    def gate(self, current_leader_epoch: int, by_follower: bool = False, debugs: bool = False) -> ErrorCode: ...
    def readable_bytes(self, offset: int, limit_offset: int) -> int | None: ...
    def end_offset_for(self, epoch: int) -> tuple[int, int]: ...


class View(IntEnum):
    """How far a fetcher may read."""

    HIGH_WATERMARK = 0  # a consumer, READ_UNCOMMITTED
    STABLE = 1  # a consumer, READ_COMMITTED
    LOG_END = 2  # a follower, or somebody who debugs


class Divergence(NamedTuple):
    """The fetcher's log is not a prefix of ours: where the epoch that it last fetched ends here."""

    epoch: int
    end_offset: int


Fault: TypeAlias = ErrorCode | Divergence | Gated

RIDES_ALONG: frozenset[Fault] = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID, *Gated}
)
"""Faults that are told with the next answer but do not cause one: the client can do nothing about them at once."""


class Entry:
    """Fields keep the names of the request; `sent_*` is what the fetcher was told last, -1 at first and after an error.

    `following` and `previous` chain the entries that watch one replica: a dict per partition would cost more than the
    entry itself.
    """

    __slots__ = (
        "coverage",
        "current_leader_epoch",
        "fault",
        "fetch_offset",
        "fetcher_log_start",
        "following",
        "index",
        "last_fetched_epoch",
        "max_bytes",
        "previous",
        "replica",
        "sent_high_watermark",
        "sent_log_start",
        "session",
        "topic",
    )

    def __init__(self, session: "FetchSession", topic: TopicKey, asked: FetchPartition) -> None:
        self.session = session
        self.topic = topic
        self.index = asked.partition
        self.replica: Replica | None = None
        self.fault: Fault | None = None
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self.following: Entry | None = None
        self.previous: Entry | None = None
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.fetcher_log_start = asked.log_start_offset
        self.coverage = _coverage(asked)

    def ask(self, asked: FetchPartition) -> None:
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.fetcher_log_start = asked.log_start_offset
        self.coverage = _coverage(asked)


def _coverage(asked: FetchPartition) -> LocalCoverage | None:
    """What a follower of a tiered partition tells of its own disk."""
    if asked.local_log_start_offset < 0:
        return None
    return LocalCoverage(
        asked.local_log_start_offset, asked.coverage_since_ms, asked.local_bytes, asked.at_local_retention
    )


def limit_of(replica: Replica, view: View) -> int:
    """The first offset that the fetcher may not read."""
    if view is View.HIGH_WATERMARK:
        return replica.high_watermark
    return replica.last_stable_offset if view is View.STABLE else replica.log_end_offset


def fault_of(entry: Entry, replica: Replica) -> Fault | None:
    """Why this entry cannot be served from its replica. The order of the checks is part of the protocol."""
    session = entry.session
    refusal = replica.gate(entry.current_leader_epoch, session.privileged, session.debugs)
    if refusal:
        return refusal
    if replica.own is not None and not entry.session.privileged:
        barred = replica.own.fetch_fault(entry.session.visitor)
        if barred is not None:
            return barred
    if replica.leadership is not None and entry.session.privileged:
        stranger = _stranger(entry, replica.leadership)
        if stranger is not None:
            return stranger
    offset, last_fetched_epoch = entry.fetch_offset, entry.last_fetched_epoch
    # Of the leader's own epoch it is known where it ends, so that an idle log need not be opened to look it up.
    if last_fetched_epoch >= 0 and (last_fetched_epoch != replica.leader_epoch or offset > replica.log_end_offset):
        try:
            end = Divergence(*replica.end_offset_for(last_fetched_epoch))
        except (OSError, CorruptLog):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if end.epoch < 0 or end.end_offset < 0 or offset < replica.log_start_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if end.epoch < last_fetched_epoch or end.end_offset < offset:
            return end
    if not replica.log_start_offset <= offset <= replica.log_end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if offset < replica.local_log_start_offset and (session.privileged or session.debugs):
        return ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    return None


def _stranger(entry: Entry, leadership: "Leadership") -> ErrorCode | None:
    """A node that holds no replica knows another assignment than we do: it, or we, must learn the newer one."""
    if entry.session.fetcher.replica_id in leadership.followers:
        return None
    if entry.current_leader_epoch >= 0:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def counted_bytes(entry: Entry, replica: Replica, limit_offset: int) -> int:
    """What a readable entry adds to the bytes that a parked fetch waits for."""
    readable = replica.readable_bytes(entry.fetch_offset, limit_offset)
    if readable is None:
        # It lies in an older segment than the newest readable record: such a reader is far behind and never waits.
        return UNLIMITED_BYTES
    # At least one: an estimate of nothing must not put a reader to sleep that could read.
    return max(min(readable, entry.max_bytes), min(entry.max_bytes, 1), 0)


class Subscriptions:
    """Who watches which partition: at the replica itself, or by its key while this node does not host it."""

    def __init__(self) -> None:
        self._absent: dict[tuple[TopicKey, int], dict[Entry, None]] = {}

    def add(self, entry: Entry) -> None:
        replica = entry.replica
        if replica is None:
            self._absent.setdefault((entry.topic, entry.index), {})[entry] = None
            return
        first = replica.subscribers
        entry.following = first
        if first is not None:
            first.previous = entry
        replica.subscribers = entry

    def remove(self, entry: Entry) -> None:
        replica = entry.replica
        if replica is None:
            key = (entry.topic, entry.index)
            waiting = self._absent[key]
            del waiting[entry]
            if not waiting:
                del self._absent[key]
            return
        before, after = entry.previous, entry.following
        if before is None:
            replica.subscribers = after
        else:
            before.following = after
        if after is not None:
            after.previous = before
        entry.previous = entry.following = None

    def absent(self, topic: str, topic_id: bytes, index: int) -> list[Entry]:
        """Those who wait for this partition to be hosted here, by name or by id."""
        return [*self._absent.get((topic, index), ()), *self._absent.get((topic_id, index), ())]

    @property
    def any_absent(self) -> bool:
        return bool(self._absent)


def watching(replica: Replica) -> Iterator[Entry]:
    """The entries subscribed to a replica. Whoever holds the iterator may unsubscribe the entry that it just got."""
    entry = replica.subscribers
    while entry is not None:
        following = entry.following
        yield entry
        entry = following
