"""One internal topic as its coordinators use it: what this node leads of it, loads of it, and appends to it.

State that a coordinator reports to anybody is committed: `append` calls back when the high watermark has passed the
record, and a leadership serves only when all that was in the log when it began is committed and replayed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headrace.broker.broker import Broker
from headrace.broker.coordinators.loading import Loading, Replay
from headrace.broker.partitions import Hosted
from headrace.core.internal_topics import coordinating_partition
from headrace.core.partition import Appended
from headrace.core.verified import Verified
from headrace.errors import CorruptLog, ErrorCode
from headrace.model import Buffer
from headrace.wire.batch import DECOMPRESSED_BYTES_MAX, BatchHeader, NewRecord, Record, build, read_records
from headrace.wire.compression import Codec

Then = Callable[[ErrorCode], None]
Entry = tuple[bytes, bytes | None]
"""Key and value; None is a tombstone."""

REFUSED = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE: ErrorCode.INVALID_TXN_STATE,
}
"""What a partition says, as a coordinator says it; anything else is -1."""


COMPRESSED_RECORDS_MIN: Final = 1_000
COMPRESSED_BYTES_MIN: Final = 2 << 20
BATCH_BYTES_MAX: Final = 16 << 20
"""What fetches and recovery are made for; more is refused (-1)."""
RECORD_BYTES: Final = 32
"""Of a record in a batch at most, without its key and value."""


class Keeper(Protocol):
    """The groups, or the transactions, that one internal topic keeps."""

    def begin(self, index: int, leader_epoch: int) -> None:
        """This node leads it now; until `loaded` all of it answers 14."""

    def replay(self, index: int, header: BatchHeader, records: Sequence[Record]) -> None:
        """Every batch in order, control batches too. Not called where `replay_bytes` is given."""

    def loaded(self, index: int) -> None:
        """All that was committed when the leadership began has been replayed."""

    def ended(self, index: int) -> None:
        """The leadership is over: drop its state, answer whoever waits with 16."""


class StateLog:
    def __init__(self, broker: Broker, topic: str, keeper: Keeper, replay_bytes: Replay | None = None) -> None:
        """`replay_bytes` reads the batches itself."""
        self.topic = topic
        self._broker = broker
        self._keeper = keeper
        self._led: dict[int, _Led] = {}
        self._loading = Loading(broker, replay_bytes or self._replay)
        self.load_ms_last = self.load_ms_max = self.load_ms_sum = self.loads = 0
        broker.roles.on_leading.append(self._leading)
        broker.roles.on_ended.append(self._ended)

    def index_of(self, key: str) -> int | None:
        """None: the topic does not exist yet, and its creation has begun."""
        topic = self._broker.image.topics.get(self.topic)
        if topic is None:
            self._broker.internal_topics.create(self.topic)
            return None
        return coordinating_partition(self.topic, key, len(topic.partitions))

    def led(self, index: int) -> Hosted | ErrorCode:
        """14 while it loads, 15 without the topic, 16 where others lead."""
        led = self._led.get(index)
        if led is None:
            known = self.topic in self._broker.image.topics
            return ErrorCode.NOT_COORDINATOR if known else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return led.hosted if led.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def led_indexes(self) -> list[int]:
        """Those that are loaded."""
        return [index for index, led in self._led.items() if led.is_loaded]

    @property
    def is_loading(self) -> bool:
        return any(not led.is_loaded for led in self._led.values())

    def append(
        self,
        index: int,
        entries: Sequence[Entry],
        then: Then,
        *,
        producer: tuple[int, int] | None = None,
        verified: Verified | None = None,
    ) -> ErrorCode:
        """One batch. Anything but NONE: refused, nothing was appended.

        NONE: it is in the log. `then` is called once, never in here: with NONE when it is committed, with
        NOT_COORDINATOR when the leadership ended first. `producer`: id and epoch of its transaction, which
        may be `verified`.
        """
        hosted = self.led(index)
        if isinstance(hosted, ErrorCode):
            return hosted
        if hosted.refuses_acks_all():
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker = self._broker
        now_ms = broker.clock.wall_ms()
        records = [NewRecord(now_ms, key, value) for key, value in entries]
        if producer is None:
            batch = _batch_of(records)
            if batch is None:
                return ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            batch = build(
                records, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True
            )
        try:
            outcome = hosted.admit_own(batch, now_ms, verified)
        except (OSError, CorruptLog) as failure:
            broker.faults.failed(hosted, "opening the log", failure)
            return ErrorCode.NOT_COORDINATOR
        if not isinstance(outcome, Appended):
            return REFUSED.get(outcome, ErrorCode.UNKNOWN_SERVER_ERROR)
        broker.appends.queue(hosted)
        self._led[index].wait(outcome.end_offset, then)
        return ErrorCode.NONE

    def _replay(self, index: int, header: BatchHeader, chunk: Buffer, pos: int) -> None:
        self._keeper.replay(index, header, read_records(chunk, pos))

    # Leaderships.

    def _leading(self, hosted: Hosted) -> None:
        if hosted.topic != self.topic:
            return
        self._ended(hosted)  # Under another epoch it is read anew: what waits belongs to the one before.
        led = self._led[hosted.index] = _Led(self._broker, hosted, self._keeper, self._loaded)
        led.begin()
        self._loading.start(led)

    def _ended(self, hosted: Hosted) -> None:
        if hosted.topic != self.topic:
            return
        led = self._led.pop(hosted.index, None)
        if led is not None:
            led.end()
            self._keeper.ended(hosted.index)

    def _loaded(self, led: "_Led") -> None:
        took_ms = self._broker.clock.monotonic_ms() - led.began_ms
        self.loads += 1
        self.load_ms_last, self.load_ms_max = took_ms, max(self.load_ms_max, took_ms)
        self.load_ms_sum += took_ms
        self._keeper.loaded(led.hosted.index)


def _batch_of(records: Sequence[NewRecord]) -> bytearray | None:
    """None if it would be too large, as it is or when it is read: what cannot be loaded must not be in the log."""
    size = sum(RECORD_BYTES + len(record.key or b"") + len(record.value or b"") for record in records)
    if size > DECOMPRESSED_BYTES_MAX:
        return None
    # Keys that begin alike, and values that name the same partitions, become a tenth or less.
    is_compressed = len(records) >= COMPRESSED_RECORDS_MIN or size >= COMPRESSED_BYTES_MIN
    batch = build(records, codec=Codec.ZSTD if is_compressed else Codec.NONE)
    return batch if len(batch) <= BATCH_BYTES_MAX else None


class _Led:
    """One leadership: whether its state is in memory, and who waits for what it appended."""

    def __init__(self, broker: Broker, hosted: Hosted, keeper: Keeper, on_loaded: "Callable[[_Led], None]") -> None:
        self.hosted = hosted
        self.is_loaded = self.is_over = False
        self.began_ms = broker.clock.monotonic_ms()
        self._broker = broker
        self._keeper = keeper
        self._on_loaded = on_loaded
        self._pending: deque[tuple[int, Then]] = deque()
        self._is_due = False

    def begin(self) -> None:
        self._keeper.begin(self.hosted.index, self.hosted.leader_epoch)

    def was_read(self, end_offset: int) -> None:
        """What came from an earlier leader is told to nobody before it is committed."""
        self._pending.append((end_offset, self._serve))
        self._settle()

    def _serve(self, error: ErrorCode) -> None:
        if not error:
            self.is_loaded = True
            self._on_loaded(self)

    def wait(self, end_offset: int, then: Then) -> None:
        self._pending.append((end_offset, then))
        if not self._is_due:
            self._is_due = True
            self._broker.appends.after_turn(self._written)

    def _written(self) -> None:
        self._is_due = False
        self._settle()

    def _settle(self) -> None:
        pending, hosted = self._pending, self.hosted
        while pending and not self.is_over and pending[0][0] <= hosted.high_watermark:
            pending.popleft()[1](ErrorCode.NONE)
        if pending and not self.is_over:
            if hosted.waiting_acks is None:
                hosted.waiting_acks = {}
            hosted.waiting_acks[self._settle] = None

    def end(self) -> None:
        self.is_over = True
        pending, self._pending = self._pending, deque()
        for _, then in pending:
            then(ErrorCode.NOT_COORDINATOR)
