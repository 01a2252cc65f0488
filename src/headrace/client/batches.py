"""Records of one partition on their way out: collected into batches, sent in order, sent again in order."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from headrace.errors import KafkaError
from headrace.model import Buffer, TopicPartition
from headrace.runtime import Clock
from headrace.wire.batch import (
    SEQUENCE_MASK,
    TRANSACTIONAL,
    EncodedRecords,
    NewRecord,
    build,
    encoded_records,
    read_records,
    seal,
)
from headrace.wire.compression import Codec


class RecordMetadata(NamedTuple):
    """Where a record is now. The offset is -1 if nobody was asked (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Identity(NamedTuple):
    """By which a broker tells a repeated batch from a new one."""

    producer_id: int
    epoch: int
    transactional_id: str | None = None


class Pending(NamedTuple):
    """A record and who waits for it."""

    record: NewRecord
    size: int
    future: "asyncio.Future[RecordMetadata]"


class Batch:
    __slots__ = (
        "attempts",
        "base_sequence",
        "born_ms",
        "data",
        "done",
        "failure",
        "pending",
        "size",
        "uncertain",
        "urgent",
    )

    def __init__(self, now_ms: int) -> None:
        self.born_ms = now_ms
        self.pending: list[Pending] = []
        self.size = 0
        self.attempts = 0
        self.base_sequence = -1  # given when it is sent first
        self.data: Buffer | None = None
        self.uncertain = False  # an attempt may have been stored without our knowing
        self.urgent = False  # somebody flushes
        self.failure = ""
        self.done: asyncio.Future[None] | None = None

    @property
    def count(self) -> int:
        """Of its records."""
        return len(self.pending)

    def add(self, pending: Pending) -> None:
        self.pending.append(pending)
        self.size += pending.size

    def stored(self, topic: str, partition: int, base_offset: int, append_time_ms: int) -> None:
        """Whoever waits for its records is told where they are."""
        for index, (record, _, future) in enumerate(self.pending):
            if not future.done():
                offset = base_offset + index if base_offset >= 0 else -1
                timestamp = record.timestamp if append_time_ms < 0 else append_time_ms
                future.set_result(RecordMetadata(topic, partition, offset, timestamp))

    def lost(self, error: KafkaError, is_told: bool) -> None:
        """`is_told`: somebody hears of it, also if nobody asks the futures."""
        for pending in self.pending:
            if not pending.future.done():
                pending.future.set_exception(error)
                if is_told:
                    pending.future.exception()

    def encoded(self, codec: Codec, identity: Identity | None) -> Buffer:
        if self.data is None:
            producer_id, epoch, transactional_id = identity or Identity(-1, -1)
            self.data = build(
                [pending.record for pending in self.pending],
                codec=codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self.base_sequence,
                transactional=transactional_id is not None,
            )
        return self.data

    def forget_sequence(self) -> None:
        """It will be sent as if for the first time."""
        self.base_sequence = -1
        self.data = None

    def halves(self) -> "tuple[Batch, Batch]":
        """For a batch that is too large for the broker. Together they have the numbers of the whole."""
        first, second = Batch(self.born_ms), Batch(self.born_ms)
        middle = len(self.pending) // 2
        for half, pending in ((first, self.pending[:middle]), (second, self.pending[middle:])):
            half.attempts = self.attempts
            half.urgent = True
            for one in pending:
                half.add(one)
        if self.base_sequence >= 0:
            first.base_sequence = self.base_sequence
            second.base_sequence = (self.base_sequence + middle) & SEQUENCE_MASK
        return first, second


class ReadyBatch(Batch):
    """One whose records were encoded by somebody else. Nobody waits for single records of it."""

    __slots__ = ("_on_lost", "_records")

    def __init__(self, now_ms: int, records: EncodedRecords, size: int, on_lost: Callable[[KafkaError], None]) -> None:
        super().__init__(now_ms)
        self._records = records
        self._on_lost = on_lost
        self.size = size
        self.urgent = True  # nothing is added to it

    @property
    def count(self) -> int:
        return self._records.record_count

    def lost(self, error: KafkaError, _is_told: bool) -> None:
        self._on_lost(error)

    def encoded(self, _codec: Codec, identity: Identity | None) -> Buffer:
        if self.data is None:
            producer_id, epoch, transactional_id = identity or Identity(-1, -1)
            self.data = seal(
                self._records,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self.base_sequence,
                attributes=TRANSACTIONAL if transactional_id is not None else 0,
            )
        return self.data

    def halves(self) -> "tuple[Batch, Batch]":
        """They are read and encoded once more, which is slow, and rare: a topic that takes only small batches."""
        codec = self._records.codec
        records = [NewRecord(*record[1:]) for record in read_records(seal(self._records))]
        middle = len(records) // 2
        halves = []
        for part, size in ((records[:middle], self.size // 2), (records[middle:], self.size - self.size // 2)):
            half = ReadyBatch(self.born_ms, encoded_records(part, codec), size, self._on_lost)
            half.attempts = self.attempts
            halves.append(half)
        first, second = halves
        if self.base_sequence >= 0:
            first.base_sequence = self.base_sequence
            second.base_sequence = (self.base_sequence + middle) & SEQUENCE_MASK
        return first, second


class PartitionQueue:
    """The batches of one partition, oldest first: in flight, then `waiting`.

    A batch that has to be sent again waits in `failed` until nothing is in flight; then all of them go back to
    the head of `waiting`. So batches reach the log in the order of their records, however often they are sent.
    """

    def __init__(self, partition: TopicPartition, batch_bytes: int, codec: Codec) -> None:
        self.partition = partition
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.failed: list[Batch] = []
        self.retry_at_ms = 0
        self.identity: Identity | None = None
        self.broken_identity: Identity | None = None  # not to be used here again
        self.gap = ""  # why a number is missing: the identity has to be changed before anything else is sent
        self._topic_id: bytes | None = None  # of what is in flight, and of what comes next
        # Whether the partition has a batch of this identity, as far as is known. A partition that has none takes any
        # number: the second batch too, after it has refused the first one, which then is out of order for ever.
        self._is_begun = False
        self._next_sequence = 0
        self._batch_bytes = batch_bytes
        self._codec = codec

    def add(self, pending: Pending, clock: Clock) -> bool:
        """Whether a batch was begun for it."""
        last = self.waiting[-1] if self.waiting else None
        begun = (
            last is None
            or last.attempts > 0
            or last.base_sequence >= 0
            or last.size + pending.size > self._batch_bytes
            or last.urgent
        )
        if last is None or begun:
            last = Batch(clock.monotonic_ms())
            self.waiting.append(last)
        last.add(pending)
        return begun

    def add_ready(self, batch: ReadyBatch) -> None:
        self.waiting.append(batch)

    def is_due(self, now_ms: int, linger_ms: int) -> bool:
        """Whether the oldest waiting batch may leave now, as far as this partition is concerned."""
        return not self.gap and not self.failed and self.due_ms(linger_ms) <= now_ms

    def due_ms(self, linger_ms: int) -> int:
        first = self.waiting[0]
        if first.attempts:
            return self.retry_at_ms
        if first.urgent or len(self.waiting) > 1 or first.size >= self._batch_bytes:
            return 0
        return first.born_ms + linger_ms

    def has_room(self, topic_id: bytes, in_flight_max: int) -> bool:
        """Whether one more batch may go into flight. A topic that was deleted and created again begins anew."""
        if topic_id != self._topic_id:
            if self.in_flight:
                return False
            self._topic_id = topic_id
            self._is_begun = False
        return len(self.in_flight) < (in_flight_max if self._is_begun else 1)

    def begin(self) -> Buffer:
        """Takes the oldest waiting batch into flight; its bytes."""
        batch = self.waiting.popleft()
        self.in_flight.append(batch)
        if self.identity is not None and batch.base_sequence < 0:
            batch.base_sequence = self._next_sequence
            self._next_sequence = (self._next_sequence + batch.count) & SEQUENCE_MASK
        return batch.encoded(self._codec, self.identity)

    def is_oldest(self, batch: Batch) -> bool:
        """Whether everything before it is settled."""
        return not self.failed and bool(self.in_flight) and self.in_flight[0] is batch

    def was_stored(self) -> None:
        """One of its batches."""
        self._is_begun = True

    def put_back(self) -> None:
        """Once nothing is in flight: what failed goes to the head, in its old order."""
        if self.failed:
            self._is_begun = False  # for all that is known, after whatever went wrong
        self.waiting.extendleft(reversed(self.failed))
        self.failed.clear()

    def change_identity(self) -> list[Batch]:
        """After a gap, once nothing is in flight. Returns the batches that may be stored under the old identity:
        under a new one they could be stored twice."""
        self.broken_identity, self.identity = self.identity, None
        self._next_sequence = 0
        self._is_begun = False
        self.gap = ""
        lost = [batch for batch in self.waiting if batch.uncertain]
        self.waiting = deque(batch for batch in self.waiting if not batch.uncertain)
        for batch in self.waiting:
            batch.forget_sequence()
        return lost

    def take_unsent(self) -> list[Batch]:
        """All that is not in flight leaves, for good."""
        taken = [*self.failed, *self.waiting]
        self.failed.clear()
        self.waiting.clear()
        self.gap = ""
        return taken

    def begin_anew(self) -> None:
        """Under another identity, once there is nothing in it."""
        assert not self.batches()
        self.identity = self.broken_identity = None
        self._next_sequence = 0
        self._is_begun = False

    def batches(self) -> list[Batch]:
        return [*self.in_flight, *self.failed, *self.waiting]
