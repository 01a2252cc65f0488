"""One replica of one partition: offsets, epochs, and what may be appended.

Always holds: log_start_offset ≤ local_log_start_offset ≤ high_watermark ≤ log_end_offset ≤ assigned_end_offset. What
lies below `local_log_start_offset` is in the tier; without one it is the log start.
 `assigned` is given out when a
batch is accepted; `log_end_offset` follows when its bytes are written (and synced, where the topic asks for it).
Clients are answered from `log_end_offset` and below only.

A replica leads alone, leads others (`leadership`), or does not lead. `error` is what clients get: 6 where it does not
lead, else the `fault` of the disk. A new one leads alone, until it is told otherwise.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from headrace.config import TopicConfig
from headrace.core.cluster import IsrMember, PartitionRecord
from headrace.core.election import Nodes
from headrace.core.epochs import EpochList
from headrace.core.judging import APPEND_TIME, judge
from headrace.core.leading import LAG_MS_MAX, Leadership
from headrace.core.producers import NEVER, Duplicate, ProducerTable
from headrace.core.verified import VERIFY_FIRST, Verified, VerifyFirst, Verifying, begin
from headrace.errors import CorruptLog, ErrorCode
from headrace.model import Buffer
from headrace.wire.batch import (
    HEADER,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    place,
    read_header,
    stamp_append_time,
)
from headrace.wire.markers import read_marker

if TYPE_CHECKING:
    from headrace.core.fetch_entries import Entry
    from headrace.core.ownership_gate import Gate

LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4

_NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER

# Looking a name up in an enumeration costs more than the comparison.
_NONE = ErrorCode.NONE


class ReplicaLog(Protocol):
    """The part of a log that decisions need; storage.log has the real one."""

    @property
    def epochs(self) -> EpochList: ...
    @property
    def producers(self) -> ProducerTable: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    def readable_bytes(self, offset: int, limit_offset: int) -> int | None: ...


L = TypeVar("L", bound=ReplicaLog)


Accepted = tuple[Buffer, BatchHeader]
"""A batch with its place in the log; its bytes are not written yet."""


class Appended(NamedTuple):
    """What a producer is told once the log covers `end_offset`."""

    base_offset: int
    end_offset: int
    append_time_ms: int


class Partition(Generic[L]):
    __slots__ = (
        "_log",
        "_open_log",
        "assigned_end_offset",
        "config",
        "error",
        "fault",
        "high_watermark",
        "index",
        "leader_epoch",
        "leadership",
        "local_log_start_offset",
        "log_end_offset",
        "log_start_offset",
        "own",
        "subscribers",
        "topic",
        "topic_id",
        "undecided_from",
        "unwritten",
        "verifying",
        "waiting_acks",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        leader_epoch: int,
        config: TopicConfig,
        open_log: Callable[["Partition[L]"], L],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = leader_epoch
        self.config = config
        self.error = self.fault = ErrorCode.NONE
        self.leadership: Leadership | None = None
        self.log_start_offset = 0
        self.local_log_start_offset = 0
        self.high_watermark = 0
        self.log_end_offset = 0
        self.assigned_end_offset = 0
        self.subscribers: Entry | None = None
        self.own: Gate | None = None  # where somebody owns it, or nobody else may use it
        self.undecided_from = NEVER
        """No transaction that began below it is undecided, by what is known; -1: look again."""
        self.verifying: Verifying | None = None
        self.unwritten: Sequence[Accepted] = ()  # a list only while there is something in it
        self.waiting_acks: dict[Callable[[], None], None] | None = None
        self._log: L | None = None
        self._open_log = open_log

    @property
    def log(self) -> L:
        """Opened on first touch: an idle partition has no open file and no index in memory."""
        if self._log is None:
            self._log = self._open_log(self)
        return self._log

    @property
    def log_if_open(self) -> L | None:
        return self._log

    @property
    def last_stable_offset(self) -> int:
        """All transactions below it are decided, and their markers committed. It moves with the high watermark only."""
        high_watermark = self.high_watermark
        if high_watermark <= self.undecided_from:
            return high_watermark
        return self._stable_below(high_watermark)

    def _stable_below(self, high_watermark: int) -> int:
        if self._log is not None:
            self.undecided_from = self._log.producers.first_undecided(high_watermark)
        return max(min(high_watermark, self.undecided_from), self.log_start_offset)

    @property
    def is_leading(self) -> bool:
        """Also while it has stepped down: what was accepted before may still be acknowledged."""
        return self.leadership is not None or self.error is not _NOT_LEADER

    def gate(self, current_leader_epoch: int, by_follower: bool = False, debugs: bool = False) -> ErrorCode:
        """Whether a request that names this leader epoch (-1: none) may be served. Epochs come before leadership."""
        # Whoever debugs looks at this replica, whoever leads; but not past owners, whom only a leader knows.
        if current_leader_epoch != self.leader_epoch and current_leader_epoch >= 0:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if (by_follower and self.leadership is not None) or (debugs and not self.config.own_fetch_group):
            return self.fault
        return self.error

    def readable_bytes(self, offset: int, limit_offset: int) -> int | None:
        """None when it cannot be told cheaply, or at all: whoever then reads meets the error and deals with it."""
        try:
            return self.log.readable_bytes(offset, limit_offset)
        except (OSError, CorruptLog):
            return None

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Semantics of OffsetForLeaderEpoch: where that epoch ended in this log; (-1, -1) when unknown."""
        return self.log.epochs.end_offset_for(epoch, self.log_end_offset)

    def admit(
        self, records: memoryview, now_ms: int, verified: Verified | None = None
    ) -> Appended | ErrorCode | VerifyFirst:
        """Judges one produced batch; if it is good, gives it offsets and queues its bytes for the turn's write.

        The first batch of a transaction needs `verified`, from `begin_verification`. Nothing has happened to a batch
        that is refused for want of it.
        """
        if self.error:
            return self.error
        size = len(records)
        if size < HEADER_BYTES:
            return ErrorCode.INVALID_RECORD
        fields = HEADER.unpack_from(records)
        verdict = judge(records, size, fields, self.config, now_ms)
        if verdict:
            return verdict
        producers = self.log.producers  # Opens the log, which may correct what is assigned.
        producer_id = fields[9]
        transactional = producer_id >= 0 and fields[5] & TRANSACTIONAL
        if transactional and (refused := self._refuse_opening(BatchHeader._make(fields), verified)):
            return refused
        base_offset = self.assigned_end_offset
        place(records, 0, base_offset, self.leader_epoch)
        header = read_header(records)
        if producer_id >= 0:
            known = producers.check(header)
            if known is not _NONE:
                if not isinstance(known, Duplicate):
                    return known
                stamped = self.config.message_timestamp_type == APPEND_TIME
                return Appended(known.base_offset, known.last_offset + 1, known.timestamp if stamped else -1)
        append_time_ms = -1
        if self.config.message_timestamp_type == APPEND_TIME:
            append_time_ms = now_ms
            stamp_append_time(records, 0, size, now_ms)
            header = read_header(records)
        if producer_id >= 0:
            producers.record(header, base_offset, now_ms, self.log_end_offset)
            if transactional:
                self._note_transaction(producer_id)
        end_offset = self.assigned_end_offset = base_offset + fields[12]
        unwritten = self.unwritten
        if type(unwritten) is list:
            unwritten.append((records, header))
        else:
            self.unwritten = [(records, header)]
        return Appended(base_offset, end_offset, append_time_ms)

    def admit_own(
        self, records: bytearray | memoryview, now_ms: int, verified: Verified | None = None
    ) -> Appended | ErrorCode:
        """A batch that this node has made: the end of a transaction, or a coordinator's records. It is well-formed.

        Records in a transaction may come with what `begin_verification` gave; then that must still be good.
        """
        if self.error:
            return self.error
        header = read_header(records)
        marker = read_marker(records) if header.is_control else None
        producers = self.log.producers
        if marker is not None:
            refused = producers.check_marker(header, marker)
        else:
            refused = self._refuse_own(header, verified)
        if refused:
            return refused
        base_offset = self.assigned_end_offset
        place(records, 0, base_offset, self.leader_epoch)
        header = read_header(records)
        producers.record(header, base_offset, now_ms, self.log_end_offset, marker)
        if header.attributes & TRANSACTIONAL:
            self._note_transaction(header.producer_id)
        end_offset = self.assigned_end_offset = base_offset + header.record_count
        if type(self.unwritten) is list:
            self.unwritten.append((records, header))
        else:
            self.unwritten = [(records, header)]
        return Appended(base_offset, end_offset, -1)

    def _refuse_own(self, header: BatchHeader, verified: Verified | None) -> ErrorCode:
        if header.size > self.config.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
        if not header.attributes & TRANSACTIONAL:
            return _NONE
        producer = self.log.producers.get(header.producer_id)
        if producer is not None and header.producer_epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if verified is None or self.log.producers.is_open(header.producer_id, header.producer_epoch):
            return _NONE
        return _NONE if self._is_good(verified, header.producer_id) else ErrorCode.INVALID_TXN_STATE

    # Transactions.

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Verified | None:
        """Before the coordinator is asked whether this partition is in a transaction. None: one is open here."""
        if self.log.producers.is_open(producer_id, epoch):
            return None
        if self.verifying is None:
            self.verifying = {}
        return begin(self.verifying, producer_id, epoch, sequence, now_ms)

    def _is_good(self, verified: Verified, producer_id: int) -> bool:
        return self.verifying is not None and self.verifying.get(producer_id) is verified

    def _refuse_opening(self, header: BatchHeader, verified: Verified | None) -> ErrorCode | VerifyFirst | None:
        """Why a client's batch may not open a transaction; None if it does not, or may."""
        producers = self.log.producers
        producer_id, epoch = header.producer_id, header.producer_epoch
        if producers.is_open(producer_id, epoch) or producers.check(header) is not _NONE:
            return None
        if verified is None:
            return VERIFY_FIRST
        if not self._is_good(verified, producer_id) or verified.epoch != epoch:
            return ErrorCode.INVALID_TXN_STATE
        if header.base_sequence > verified.lowest_sequence:
            # One that was sent before it is still to come again.
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return None

    def _note_transaction(self, producer_id: int) -> None:
        """One of the producer's has gone on, or has ended."""
        self.undecided_from = self.log.producers.first_undecided(self.high_watermark)
        if self.verifying:
            self.verifying.pop(producer_id, None)

    def written_up_to(self, offset: int, now_ms: int = 0) -> None:
        """The bytes below `offset` are where an acknowledgement wants them. A single replica commits by itself."""
        assert self.log_end_offset <= offset <= self.assigned_end_offset
        self.log_end_offset = offset
        if self.leadership is not None:
            self.commit(now_ms)
        elif self.error is not _NOT_LEADER:
            self.high_watermark = offset

    def fail(self, error: ErrorCode) -> None:
        """The disk let this partition down: nothing more is accepted, and what was only queued never happened."""
        self.fault = error
        if self.is_leading:
            self.error = error
        self.unwritten = ()
        self.verifying = None
        self.assigned_end_offset = self.log_end_offset
        self._log = None

    def let_log_go(self) -> None:
        """It is opened again when somebody needs it, and then says anew what it holds."""
        assert not self.unwritten
        self._log = None

    def log_start_moved(self, offset: int) -> None:
        assert self.log_start_offset <= offset <= self.high_watermark
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)

    def local_log_start_moved(self, offset: int) -> None:
        """What lies below it is in the tier alone."""
        assert self.local_log_start_offset <= offset <= self.high_watermark
        self.local_log_start_offset = offset

    def log_found(
        self, log_start: int, log_end: int, committed: int, undecided_from: int = -1, *, local_log_start: int = -1
    ) -> None:
        """What the disk says. Only who leads alone knows that all of it is committed."""
        self.undecided_from = undecided_from
        self.log_start_offset = log_start
        self.local_log_start_offset = max(log_start, local_log_start)
        self.log_end_offset = self.assigned_end_offset = log_end
        if self.leadership is None and self.is_leading:
            self.high_watermark = log_end
        else:
            known = max(self.high_watermark, committed)
            self.high_watermark = min(max(known, self.local_log_start_offset), log_end)

    # Leading.

    def lead(
        self, record: PartitionRecord, broker_epoch: int, now_ms: int, nodes: Nodes, lag_ms_max: int = LAG_MS_MAX
    ) -> bool:
        """Takes or keeps the leadership that the record gives to the broker of this registration.

        False: it names another registration of the broker, from which nobody leads. What was queued for an earlier
        leadership has been written before.
        """
        if IsrMember(record.leader, broker_epoch) not in record.isr:
            self.stop_serving()
            return False
        known = self.leadership
        was_leading = self.is_leading
        goes_on = was_leading and record.leader_epoch - self.leader_epoch in (0, 1)
        if record.leader_epoch != self.leader_epoch or not was_leading:
            self._begin_epoch(record.leader_epoch)
            if self._log is not None:
                self.undecided_from = -1  # what waits for its sync may hold transactions too
        if len(record.replicas) == 1:
            self.leadership = None
            self.high_watermark = self.log_end_offset
        elif known is not None and goes_on and self._entry_of(known.record) == broker_epoch:
            known.adopt(record, self.assigned_end_offset, now_ms)
        else:
            end = self.assigned_end_offset
            self.leadership = Leadership(record, self.topic_id, self.index, nodes, end, now_ms, lag_ms_max)
        self._tell_role()
        self.commit(now_ms)
        return True

    @staticmethod
    def _entry_of(record: PartitionRecord) -> int:
        return next((member.broker_epoch for member in record.isr if member.broker_id == record.leader), -1)

    def _begin_epoch(self, leader_epoch: int) -> None:
        """Behind all bytes of the log: also those that wait for their sync, and count only after it."""
        self.leader_epoch = leader_epoch
        if self._log is not None:
            self.assigned_end_offset = max(self.assigned_end_offset, self._log.log_end_offset)
            self._log.epochs.assign(leader_epoch, self.assigned_end_offset)

    def _tell_role(self) -> None:
        leadership = self.leadership
        stepped_down = leadership is not None and leadership.stepped_down_ms is not None
        self.error = _NOT_LEADER if stepped_down else self.fault

    def commit(self, now_ms: int = 0) -> bool:
        """Moves the high watermark as far as the replicas allow. True if it moved."""
        leadership = self.leadership
        if leadership is None:
            return False
        before = self.high_watermark
        self.high_watermark = leadership.high_watermark(
            self.log_end_offset, before, self.config.min_insync_replicas, now_ms
        )
        return self.high_watermark > before

    def step_down(self, partition_epoch: int, now_ms: int) -> ErrorCode:
        """Stops serving clients, for this record. Followers are served on."""
        if self.leadership is None:
            return _NOT_LEADER
        refused = self.leadership.step_down(partition_epoch, now_ms)
        self._tell_role()
        return refused

    def refuses_acks_all(self) -> bool:
        """Too few replicas are in sync, so that nothing is appended that should be on more of them."""
        leadership = self.leadership
        return leadership is not None and leadership.is_under_min_isr(self.config.min_insync_replicas)

    def lacks_acks_all(self) -> bool:
        """The same, of what was appended and is committed."""
        leadership = self.leadership
        return leadership is not None and leadership.is_maximal_isr_under_min(self.config.min_insync_replicas)

    @property
    def is_list_guarded(self) -> bool:
        """The leader before may have told clients of offsets that this one does not yet know to be committed."""
        leadership = self.leadership
        return (
            leadership is not None
            and leadership.list_guard > self.high_watermark
            and not self.config.unclean_leader_election_enable
        )

    def list_guard_refuses(self, scope: str, timestamp: int, found: int | None, limit_offset: int) -> bool:
        """Whether a client's lookup of this timestamp, which found this offset (None: nothing), is not answered.

        `limit_offset` is the first offset that the client may not read.
        """
        if not self.is_list_guarded:
            return False
        if scope == "all" or timestamp == LATEST:
            return True
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return False
        return found is None or found >= limit_offset

    # Not leading.

    def follow(self, record: PartitionRecord) -> None:
        """Another node leads, or nobody does. What was queued has been written before."""
        self.stop_serving()
        self.leader_epoch = record.leader_epoch

    def stop_serving(self) -> None:
        """This node does not lead it, by whatever it knows now. What was queued has been written before."""
        assert not self.unwritten
        self.leadership = None
        self.verifying = None
        self.error = _NOT_LEADER
        if self._log is not None:
            # Bytes that wait for their sync are there, and the next go after them; they count once they are synced.
            self.assigned_end_offset = self._log.log_end_offset

    def follower_appended(self, end_offset: int, leader_high_watermark: int, leader_log_start: int) -> bool:
        """The log ends there after a fetch, and the leader told its offsets. True if offsets that clients see moved."""
        assert end_offset >= self.log_end_offset
        self.log_end_offset = self.assigned_end_offset = end_offset
        before = self.high_watermark, self.log_start_offset
        self.high_watermark = max(self.high_watermark, min(leader_high_watermark, end_offset))
        self.log_start_offset = max(self.log_start_offset, min(leader_log_start, self.high_watermark))
        self.local_log_start_offset = max(self.local_log_start_offset, self.log_start_offset)
        if self._log is not None and not (self._log.producers.is_settled and self.undecided_from == NEVER):
            self.undecided_from = self._log.producers.first_undecided(self.high_watermark)
        return before != (self.high_watermark, self.log_start_offset)

    def truncated_to(self, offset: int) -> None:
        self.undecided_from = -1
        self.log_end_offset = self.assigned_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.local_log_start_offset = min(self.local_log_start_offset, offset)

    def restarted_at(self, offset: int, log_start: int | None = None) -> None:
        """Everything here was dropped; the log begins and ends at `offset`. Before it, from `log_start` on, is tier."""
        self.undecided_from = NEVER
        self.log_end_offset = self.assigned_end_offset = offset
        self.high_watermark = self.local_log_start_offset = offset
        self.log_start_offset = offset if log_start is None else min(log_start, offset)
