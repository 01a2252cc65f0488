"""What a partition remembers of each idempotent producer, so that a retried batch is stored once.

Sequences of a producer run on from batch to batch within an epoch. The last five batches are remembered with their
offsets: as many as a producer may have in flight, hence all that it can send again.
"""

from array import array
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from headrace.errors import ErrorCode
from headrace.wire.batch import CONTROL, NO_SEQUENCE, SEQUENCE_MASK, TRANSACTIONAL, BatchHeader
from headrace.wire.markers import Marker

WINDOW_BATCHES = 5
NO_TRANSACTION = -1
ALL_WRITTEN = 2**63 - 1
NEVER = 2**63 - 1
"""Where the first undecided transaction begins if there is none."""
DECIDED_MAX = 100_000
"""Transactions of a partition whose markers are not known to be committed; beyond it the oldest count as committed."""

_FIELDS = 4
_WINDOW_FIELDS = WINDOW_BATCHES * _FIELDS
_OK = ErrorCode.NONE
_OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class Duplicate(NamedTuple):
    """A batch that is already in the log, and where."""

    base_offset: int
    last_offset: int
    timestamp: int


class Appended(NamedTuple):
    """A batch in a producer's window."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class AbortedTransaction(NamedTuple):
    """Records of the producer from the first offset to the last, its marker, count as never written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """As it was when the marker was written."""


class Decided(NamedTuple):
    """A transaction that has ended; until its marker is committed, readers are not told."""

    producer_id: int
    first_offset: int
    marker_offset: int


class Producer:
    """One producer id in one partition."""

    __slots__ = (
        "_window",
        "alive_ms",
        "coordinator_epoch",
        "epoch",
        "former",
        "last_timestamp",
        "transaction_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.transaction_first_offset = NO_TRANSACTION
        self.last_timestamp = -1
        self.alive_ms = -1
        self.former: tuple[int, Appended] | None = None
        """The epoch before, and its last batch that was in the log when this epoch began."""
        # Last sequence, last offset, offset delta and timestamp of five batches, and of older ones as long as nothing
        # newer is written; oldest first. Flat, because there may be a million producers: 32 bytes a batch.
        self._window = array("q")

    @property
    def last_sequence(self) -> int:
        return self._window[-_FIELDS] if self._window else NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        """0 comes after 2^31 - 1, and at the beginning of an epoch."""
        return (self._window[-_FIELDS] + 1) & SEQUENCE_MASK if self._window else 0

    @property
    def batches(self) -> list[Appended]:
        """Oldest first."""
        return self.held[-WINDOW_BATCHES:]

    @property
    def held(self) -> list[Appended]:
        """The window, and the last batch that was written before it, if nothing in the window is. Oldest first."""
        return [Appended(*self._window[at : at + _FIELDS]) for at in range(0, len(self._window), _FIELDS)]

    def find(self, header: BatchHeader) -> Duplicate | None:
        """The batch of the window with the same sequences, if there is one."""
        window = self._window
        last_sequence = header.last_sequence
        for at in range(len(window) - _FIELDS, max(len(window) - _WINDOW_FIELDS, 0) - 1, -_FIELDS):
            # Sequences count records as offsets do, so equal ends and lengths are equal ranges.
            if window[at] == last_sequence and window[at + 2] == header.last_offset_delta:
                last_offset = window[at + 1]
                return Duplicate(last_offset - window[at + 2], last_offset, window[at + 3])
        return None

    def enter_epoch(self, epoch: int, written_end: int = ALL_WRITTEN) -> None:
        for batch in reversed(self.held):
            if batch.last_offset < written_end:
                self.former = self.epoch, batch
                break
        del self._window[:]
        self.epoch = epoch

    def remember(
        self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int, written_end: int = ALL_WRITTEN
    ) -> None:
        window = self._window
        # The newest batch that is written stays: until the others are, it is what the log knows of the producer.
        while len(window) >= _WINDOW_FIELDS and window[_FIELDS + 1] < written_end:
            del window[:_FIELDS]
        window.extend((last_sequence, last_offset, offset_delta, timestamp))


Producers: TypeAlias = dict[int, Producer]


class ProducerTable:
    """The producers of one partition. `check` decides, `record` remembers; between them the log assigns offsets.

    The number of producers is bounded by whoever owns the tables: see `idle` and `forget`.
    """

    __slots__ = ("_decided", "_open", "_producers", "unindexed")

    def __init__(self) -> None:
        self._producers: Producers = {}
        # First offset of each open transaction -> producer id, in the order of the log: the first is the lowest.
        self._open: dict[int, int] = {}
        # In the order of their markers.
        self._decided: list[Decided] = []
        self.unindexed: list[AbortedTransaction] = []
        """In the order of their markers, until whoever writes those to the log takes them."""

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def items(self) -> Iterator[tuple[int, Producer]]:
        """In the order of producer ids."""
        return iter(sorted(self._producers.items()))

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction began."""
        return next(iter(self._open), None)

    @property
    def oldest_open(self) -> Producer | None:
        """Whose transaction has been open for longest."""
        return None if not self._open else self._producers[next(iter(self._open.values()))]

    @property
    def is_settled(self) -> bool:
        """No transaction is undecided."""
        return not (self._open or self._decided)

    def first_undecided(self, high_watermark: int) -> int:
        """Where the oldest transaction began that is open, or whose marker is not committed; NEVER if there is none."""
        decided = self._decided
        if decided and decided[0].marker_offset < high_watermark:
            committed = sum(1 for _ in takewhile(lambda ended: ended.marker_offset < high_watermark, decided))
            del decided[:committed]
        first = next(iter(self._open), NEVER)
        return min(first, min(ended.first_offset for ended in decided)) if decided else first

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer, in this epoch, has a transaction here."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer.transaction_first_offset >= 0

    def open_at(self, offset: int) -> dict[int, int]:
        """Producer ids and first offsets of what was open when the log ended at `offset`, which is not committed."""
        was_open = {pid: first for first, pid in self._open.items() if first < offset}
        was_open.update(
            (e.producer_id, e.first_offset) for e in self._decided if e.first_offset < offset <= e.marker_offset
        )
        return was_open

    def check(self, header: BatchHeader) -> Duplicate | ErrorCode:
        """What to do with a client's batch that has a producer id. NONE: append it."""
        _, _, _, _, _, attributes, _, _, _, producer_id, epoch, sequence, _ = header
        if sequence < 0 or epoch < 0:
            return ErrorCode.INVALID_RECORD
        producer = self._producers.get(producer_id)
        # Nothing known, or no longer: any sequence may come next.
        if producer is None or producer.epoch < 0:
            return _OK
        if epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > producer.epoch:
            if sequence != 0:
                return _OUT_OF_ORDER
        elif sequence != producer.next_sequence:
            return producer.find(header) or _OUT_OF_ORDER
        if producer.transaction_first_offset >= 0 and not attributes & TRANSACTIONAL:
            return ErrorCode.INVALID_TXN_STATE
        return _OK

    def check_marker(self, header: BatchHeader, marker: Marker) -> ErrorCode:
        """Whether the end of a transaction comes from whoever decides on it now. What is refused is of the past."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return _OK
        if header.producer_epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < producer.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return _OK

    def record(
        self,
        header: BatchHeader,
        base_offset: int,
        now_ms: int,
        written_end: int = ALL_WRITTEN,
        marker: Marker | None = None,
    ) -> None:
        """The batch is in the log at `base_offset`, or will be: up to `written_end` the log is written.

        Nothing is checked: what the log holds is true. `marker` is what a control batch says; without one it ends
        nothing, as what compaction leaves of a transaction that is gone.
        """
        _, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = header
        if producer_id < 0:
            return
        if attributes & CONTROL:
            if marker is not None:
                producer = self._entered(producer_id, epoch, timestamp, now_ms, written_end)
                self._end_transaction(producer_id, producer, base_offset, marker)
            return
        producer = self._entered(producer_id, epoch, timestamp, now_ms, written_end)
        last_sequence = (sequence + delta) & SEQUENCE_MASK if sequence >= 0 else NO_SEQUENCE
        producer.remember(last_sequence, base_offset + delta, delta, timestamp, written_end)
        if attributes & TRANSACTIONAL and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = base_offset
            self._open[base_offset] = producer_id

    def _end_transaction(self, producer_id: int, producer: Producer, marker_offset: int, marker: Marker) -> None:
        producer.coordinator_epoch = marker.coordinator_epoch
        first_offset = producer.transaction_first_offset
        if first_offset < 0:
            return
        producer.transaction_first_offset = NO_TRANSACTION
        self._open.pop(first_offset, None)
        if len(self._decided) >= DECIDED_MAX:
            del self._decided[: DECIDED_MAX // 2]
        self._decided.append(Decided(producer_id, first_offset, marker_offset))
        if not marker.committed:
            stable_offset = next(iter(self._open), marker_offset + 1)
            self.unindexed.append(AbortedTransaction(producer_id, first_offset, marker_offset, stable_offset))

    def restore(self, producers: Producers) -> None:
        """Replace everything, as after a snapshot was read."""
        self._producers = producers
        opened = ((p.transaction_first_offset, pid) for pid, p in producers.items() if p.transaction_first_offset >= 0)
        self._open = dict(sorted(opened))
        self._decided = []
        self.unindexed = []

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers idle for that long, except within a transaction. Returns how many."""
        stale = [producer_id for alive_ms, producer_id in self.idle() if now_ms - alive_ms >= expiration_ms]
        for producer_id in stale:
            del self._producers[producer_id]
        return len(stale)

    def idle(self) -> Iterator[tuple[int, int]]:
        """(last alive, producer id) of all producers that may be forgotten: those without an open transaction."""
        for producer_id, producer in self._producers.items():
            if producer.transaction_first_offset < 0:
                yield producer.alive_ms, producer_id

    def forget(self, producer_id: int) -> None:
        """Whoever was forgotten may begin again with any sequence."""
        producer = self._producers.pop(producer_id, None)
        if producer is not None:
            self._open.pop(producer.transaction_first_offset, None)

    def _entered(
        self, producer_id: int, epoch: int, timestamp: int, now_ms: int, written_end: int = ALL_WRITTEN
    ) -> Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.enter_epoch(epoch, written_end)
        producer.last_timestamp = timestamp
        # Clients may send old timestamps: a producer that writes now is alive now.
        producer.alive_ms = timestamp if timestamp > now_ms else now_ms
        return producer
