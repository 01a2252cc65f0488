"""One replica of one partition: offsets, epochs, and what may be appended.

Always holds: log_start_offset ≤ high_watermark ≤ log_end_offset ≤ assigned_end_offset. `assigned` is given out when a
batch is accepted; `log_end_offset` follows when its bytes are written (and synced, where the topic asks for it).
Clients are answered from `log_end_offset` and below only.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from headrace.config import TopicConfig
from headrace.core.epochs import EpochList
from headrace.core.producers import Duplicate, ProducerTable
from headrace.errors import CorruptLog, ErrorCode
from headrace.model import Buffer
from headrace.wire.batch import (
    CODEC_BITS,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    SIZE_AHEAD_OF_LENGTH,
    TRANSACTIONAL,
    BatchHeader,
    crc_of,
    place,
    read_header,
    stamp_append_time,
)

if TYPE_CHECKING:
    from headrace.core.fetch_entries import Entry

CODEC_MAX = 4
NO_TIMESTAMP = -1
APPEND_TIME = "LogAppendTime"

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
        "high_watermark",
        "index",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "subscribers",
        "topic",
        "topic_id",
        "unwritten",
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
        self.error = ErrorCode.NONE
        self.log_start_offset = 0
        self.high_watermark = 0
        self.log_end_offset = 0
        self.assigned_end_offset = 0
        self.subscribers: Entry | None = None
        self.unwritten: list[Accepted] = []
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
        return self.high_watermark

    def gate(self, current_leader_epoch: int) -> ErrorCode:
        """Whether a request that names this leader epoch (-1: none) may be served."""
        if current_leader_epoch != self.leader_epoch and current_leader_epoch >= 0:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
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

    def admit(self, records: memoryview, now_ms: int) -> Appended | ErrorCode:
        """Judges one produced batch; if it is good, gives it offsets and queues its bytes for the turn's write."""
        if self.error:
            return self.error
        size = len(records)
        if size < HEADER_BYTES:
            return ErrorCode.INVALID_RECORD
        fields = HEADER.unpack_from(records)
        verdict = self._judge(records, size, fields, now_ms)
        if verdict:
            return verdict
        producers = self.log.producers  # Opens the log, which may correct what is assigned.
        base_offset = self.assigned_end_offset
        place(records, 0, base_offset, self.leader_epoch)
        header = read_header(records)
        if header.producer_id >= 0:
            known = producers.check(header)
            if isinstance(known, Duplicate):
                stamped = self.config.message_timestamp_type == APPEND_TIME
                return Appended(known.base_offset, known.last_offset + 1, known.timestamp if stamped else -1)
            if known:
                return known
        append_time_ms = -1
        if self.config.message_timestamp_type == APPEND_TIME:
            append_time_ms = now_ms
            stamp_append_time(records, 0, size, now_ms)
            header = read_header(records)
        if header.producer_id >= 0:
            producers.record(header, base_offset, now_ms, self.log_end_offset)
        end_offset = self.assigned_end_offset = base_offset + header.record_count
        self.unwritten.append((records, header))
        return Appended(base_offset, end_offset, append_time_ms)

    def _judge(self, records: memoryview, size: int, fields: tuple[int, ...], now_ms: int) -> ErrorCode:
        (
            base_offset,
            batch_length,
            _,
            magic,
            crc,
            attributes,
            last_offset_delta,
            base_ms,
            max_ms,
            producer_id,
            epoch,
            seq,
            count,
        ) = fields
        config = self.config
        if magic != MAGIC:
            return ErrorCode.INVALID_RECORD if magic < MAGIC else ErrorCode.CORRUPT_MESSAGE
        if batch_length + SIZE_AHEAD_OF_LENGTH != size:
            # Exactly one whole batch per partition: a longer one is cut off, a shorter one has company.
            return ErrorCode.INVALID_RECORD
        if size > config.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
        if crc_of(records, 0, size) != crc:
            return ErrorCode.CORRUPT_MESSAGE
        if count != last_offset_delta + 1 or count <= 0 or attributes & CONTROL or base_offset:
            return ErrorCode.INVALID_RECORD
        if attributes & CODEC_BITS > CODEC_MAX:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if attributes & TRANSACTIONAL:
            return ErrorCode.INVALID_TXN_STATE
        if producer_id >= 0 and (epoch < 0 or seq < 0):
            return ErrorCode.INVALID_RECORD
        if attributes & LOG_APPEND_TIME or (
            config.message_timestamp_type != APPEND_TIME
            and (
                max_ms - now_ms > config.message_timestamp_after_max_ms
                or (now_ms - base_ms > config.message_timestamp_before_max_ms and base_ms != NO_TIMESTAMP)
            )
        ):
            return ErrorCode.INVALID_TIMESTAMP
        return _NONE

    def written_up_to(self, offset: int) -> None:
        """The bytes below `offset` are where an acknowledgement wants them. A single replica commits by itself."""
        assert self.log_end_offset <= offset <= self.assigned_end_offset
        self.log_end_offset = offset
        self.high_watermark = offset

    def fail(self, error: ErrorCode) -> None:
        """The disk let this partition down: nothing more is accepted, and what was only queued never happened."""
        self.error = error
        self.unwritten.clear()
        self.assigned_end_offset = self.log_end_offset
        self._log = None

    def log_start_moved(self, offset: int) -> None:
        assert self.log_start_offset <= offset <= self.high_watermark
        self.log_start_offset = offset
