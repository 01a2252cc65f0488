"""Reads from the tier: what is at hand is given at once, what is not is loaded, and whoever waits is told.

Nothing here waits. A fetch asks for what it will read and parks; when a load has come, the partition's sessions are
looked at again. All loads go through one queue: so many run at once, each has its room in the cache before it begins,
and what somebody waits for goes before what is read ahead.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from headrace.broker.tier_metrics import Counts
from headrace.core.producers import AbortedTransaction
from headrace.core.tier_lineage import RemoteLog
from headrace.core.tier_rows import Section, SegmentRow
from headrace.errors import CorruptLog, ErrorCode
from headrace.model import Buffer
from headrace.runtime import Clock
from headrace.storage.txn_index import CorruptTransactionIndex, decode_entries, overlapping
from headrace.tier.read_ahead import Streams
from headrace.tier.read_cache import Piece, ReadCache
from headrace.tier.spans import Span, SpanMap, batch_at, whole_batches
from headrace.tier.store import ObjectMissing, ObjectStore, StoreUnavailable
from headrace.wire.batch import end_of

log = logging.getLogger(__name__)

SPAN_BYTES = 1 << 20
SPANS_MIN = 16
"""In the cache at the least: a small one has small spans."""

AHEAD_BYTES_MAX = 8 << 20
BACKOFF_MS = 1_000
FAILURES_MAX = 1_000
ROOM_WAIT_S = 0.25


class RemotePartition(Protocol):
    """What is asked of a partition whose older part is in the tier."""

    @property
    def local_log_start_offset(self) -> int: ...


class Want(NamedTuple):
    """What somebody will read next. `is_committed`: with the transactions that it must leave out."""

    partition: RemotePartition
    offset: int
    is_committed: bool


class _Load(NamedTuple):
    partition: RemotePartition
    key: tuple[str, str | int]
    row: SegmentRow
    object_key: str
    section: Section
    weight: int
    keep: Callable[[bytes, bool], None]
    """The bytes, and whether nobody waits for them yet."""


class _Failure(NamedTuple):
    """`error` is told to readers; without one they wait, and it is tried again."""

    until_ms: int
    error: ErrorCode | None


class _Place(NamedTuple):
    """The batch with an offset, in memory."""

    spans: SpanMap
    span: Span
    piece: Piece
    position: int


class _Absent(NamedTuple):
    """The span in which it is, or may be."""

    spans: SpanMap
    span: Span
    position: int


class TierReads:
    """`remote_log_of` is None while it is not known; `loaded` is told of partitions that have something to read."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        store: ObjectStore,
        remote_log_of: Callable[[RemotePartition], RemoteLog | None],
        key_of: Callable[[RemotePartition, SegmentRow], str],
        loaded: Callable[[RemotePartition], None],
        counts_of: Callable[[RemotePartition], Counts],
        cache_bytes: int,
        running_max: int,
        waiting_max: int,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._store = store
        self._remote_log_of = remote_log_of
        self._key_of = key_of
        self._loaded = loaded
        self._counts_of = counts_of
        self._running_max = running_max
        self._waiting_max = waiting_max
        self.cache = ReadCache(cache_bytes)
        self._span_bytes = min(SPAN_BYTES, cache_bytes // SPANS_MIN)
        self._streams = Streams(min(AHEAD_BYTES_MAX, cache_bytes // 8))
        self._waiting: dict[Want, None] = {}
        self._running: dict[tuple[str, str | int], list[Want]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[str, _Failure] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    # Reading what is at hand.

    def read(self, want: Want, bytes_max: int, limit_offset: int, at_least_one: bool) -> Buffer | ErrorCode:
        """Whole batches, as a local log gives them. Nothing while they are not at hand."""
        remote = self._remote_log_of(want.partition)
        if remote is None:
            return b""
        try:
            return self._read(remote, want, bytes_max, limit_offset, at_least_one)
        except CorruptLog as failure:
            log.error("the tier cannot be read: %s", failure)
            return ErrorCode.KAFKA_STORAGE_ERROR

    def _read(
        self, remote: RemoteLog, want: Want, bytes_max: int, limit_offset: int, at_least_one: bool
    ) -> Buffer | ErrorCode:
        parts: list[memoryview] = []
        only: SegmentRow | None = None
        offset, local_start = want.offset, want.partition.local_log_start_offset
        while offset < min(limit_offset, local_start) or not parts:
            row = remote.row_for(offset)
            if row is None:
                return _joined(parts) if parts else ErrorCode.OFFSET_OUT_OF_RANGE
            failure = self._failure_of(row)
            if failure is not None and failure.error is not None:
                return _joined(parts) if parts else failure.error
            only = only or row
            # Committed records of one segment at a time, so that only its transactions need be known.
            if want.is_committed and (row is not only or self._absent_aborts(remote, want, row) is not None):
                break
            place = self._find(row, offset)
            if place is None:
                offset, only = row.end_offset + 1, None
                continue
            if not isinstance(place, _Place):
                break
            end, next_offset = place.spans.end_of(
                place.piece.data, place.piece.start, place.position, bytes_max, limit_offset, at_least_one and not parts
            )
            if end == place.position:
                break
            parts.append(memoryview(place.piece.data)[place.position - place.piece.start : end - place.piece.start])
            self._note_read(remote, want.partition, place, end, next_offset)
            read_bytes = end - place.position
            offset = next_offset
            # Pieces are joined by copying them. One that fills half of what is asked for is enough, and the next read
            # begins with a piece again.
            if end < place.piece.end or read_bytes > bytes_max // 2:
                break
            bytes_max -= read_bytes
        return _joined(parts)

    def _note_read(
        self, remote: RemoteLog, partition: RemotePartition, place: _Place, end: int, next_offset: int
    ) -> None:
        spans, row = place.spans, place.spans.row
        spans.remember(next_offset, end)
        self.cache.piece_read(row.id, place.span.start, is_done=end == place.piece.end)
        following = remote.row_for(row.end_offset + 1) if end == spans.log_bytes else None
        after = (row.id, end) if following is None else (following.id, 0)
        ahead_bytes = self._streams.read((row.id, place.position), after, end - place.position)
        if ahead_bytes:
            self._read_ahead(remote, partition, row if following is None else following, after[1], ahead_bytes)

    def is_at_hand(self, partition: RemotePartition, offset: int, is_committed: bool) -> bool:
        """Whether a read gives something now: records, or the error why there are none."""
        remote = self._remote_log_of(partition)
        if remote is None:
            return False
        row = remote.row_for(offset)
        if row is None:
            return True
        failure = self._failure_of(row)
        if failure is not None and failure.error is not None:
            return True
        want = Want(partition, offset, is_committed)
        try:
            return self._next_load(remote, want) is None
        except CorruptLog:
            return True

    def aborted_in(self, want: Want, records: Buffer) -> tuple[list[AbortedTransaction], bool]:
        """What a reader of these records must leave out, and whether local segments cannot add to it."""
        remote = self._remote_log_of(want.partition)
        end_offset = end_of(records)
        found: dict[AbortedTransaction, None] = {}
        for row in () if remote is None else _with_aborts(remote, want):
            index = self.cache.aborted_of(row.id)
            assert index is not None, "whoever reads in this way has looked whether it is at hand"
            more, is_complete = overlapping(index, want.offset, end_offset)
            found.update(dict.fromkeys(more))
            if is_complete:
                return list(found), True
        return list(found), False

    # Finding out what is missing.

    def _find(self, row: SegmentRow, offset: int) -> _Place | _Absent | SegmentRow | None:
        """The row itself if its index is missing; None if it has no batch from `offset` on."""
        spans = self.cache.map_of(row.id)
        if spans is None:
            return row
        position = spans.floor(offset)
        while position < spans.log_bytes:
            span = spans.span_at(position)
            piece = self.cache.piece(row.id, span.start, position)
            if piece is None:
                return _Absent(spans, span, position)
            position = spans.position_of(piece.data, piece.start, position, offset)
            if position < piece.end:
                return _Place(spans, span, piece, position)
        return None

    def _next_load(self, remote: RemoteLog, want: Want) -> _Load | None:
        """What must come first. None: all is at hand, or nothing can be had."""
        offset = want.offset
        while (row := remote.row_for(offset)) is not None:
            found = self._find(row, offset)
            if found is None:
                offset = row.end_offset + 1
                continue
            if isinstance(found, SegmentRow):
                return self._load_map(want.partition, row)
            if isinstance(found, _Absent):
                return self._load_span(want.partition, found)
            break
        if want.is_committed and row is not None:
            absent = self._absent_aborts(remote, want, row)
            return None if absent is None else self._load_aborts(want.partition, absent)
        return None

    def _absent_aborts(self, remote: RemoteLog, want: Want, row: SegmentRow) -> SegmentRow | None:
        for other in _with_aborts(remote, want):
            index = self.cache.aborted_of(other.id)
            if index is None:
                return other
            if overlapping(index, want.offset, row.end_offset + 1)[1]:
                break
        return None

    def _load_map(self, partition: RemotePartition, row: SegmentRow) -> _Load:
        weight = SpanMap.memory_bytes(row, self._span_bytes)

        def keep(index: bytes, _: bool) -> None:
            self.cache.put_map(SpanMap(row, index, self._span_bytes), weight, self._clock.monotonic_ms())

        return _Load(partition, (row.id, "map"), row, self._key_of(partition, row), row.sections.index, weight, keep)

    def _load_aborts(self, partition: RemotePartition, row: SegmentRow) -> _Load:
        assert row.sections.txnindex is not None

        def keep(index: bytes, is_ahead: bool) -> None:  # noqa: ARG001
            try:
                for _ in decode_entries(index):
                    pass
            except CorruptTransactionIndex as failure:
                raise CorruptLog(str(failure)) from failure
            self.cache.put_aborted(row.id, index, self._clock.monotonic_ms())

        section = row.sections.txnindex
        return _Load(partition, (row.id, "aborted"), row, self._key_of(partition, row), section, section[1], keep)

    def _load_span(self, partition: RemotePartition, absent: _Absent) -> _Load:
        spans, span, position = absent
        row = spans.row

        def keep(data: bytes, is_ahead: bool) -> None:
            start, size = span.start, len(data)
            if not span.is_exact:
                start, size = position, whole_batches(data, spans.name)
                if not size:
                    batch = batch_at(data, 0, spans.name)
                    if batch is None or position + batch.size > spans.log_bytes:
                        raise CorruptLog(f"{spans.name} ends inside a batch.")
                    spans.learn(position, position + batch.size)
                    return
                spans.learn(position, position + size)
            kept = data if size == len(data) else data[:size]
            piece = Piece(position, position + size, kept)
            self.cache.put_piece(row.id, start, piece, self._clock.monotonic_ms(), is_ahead=is_ahead)

        section = (row.sections.log[0] + position, span.end - position)
        return _Load(partition, (row.id, span.start), row, self._key_of(partition, row), section, section[1], keep)

    def _failure_of(self, row: SegmentRow) -> _Failure | None:
        failure = self._failures.get(row.id)
        return None if failure is None or failure.until_ms <= self._clock.monotonic_ms() else failure

    # Loading.

    def ask(self, want: Want) -> bool:
        """Loads what is missing. False when too much is asked for already."""
        if want in self._waiting or any(want in wants for wants in self._running.values()):
            return True
        if len(self._waiting) >= self._waiting_max:
            self._counts_of(want.partition).fetch_errors += 1
            return False
        self._waiting[want] = None
        self._pump()
        return True

    def _pump(self) -> None:
        told: dict[RemotePartition, None] = {}
        for want in list(self._waiting):
            if len(self._running) >= self._running_max:
                break
            load = self._first_load(want)
            if load is None:
                del self._waiting[want]
                told[want.partition] = None
            elif load.key in self._running:
                del self._waiting[want]
                self._running[load.key].append(want)
            elif self._start(load, want):
                del self._waiting[want]
            else:
                self._pump_later()
                break
        for partition in told:
            self._loaded(partition)

    def _first_load(self, want: Want) -> _Load | None:
        """None when there is nothing to do for it, or not now."""
        remote = self._remote_log_of(want.partition)
        row = None if remote is None else remote.row_for(want.offset)
        if remote is None or row is None or self._failure_of(row) is not None:
            return None
        try:
            load = self._next_load(remote, want)
        except CorruptLog as failure:
            self._fail(want.partition, row, ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
            return None
        return None if load is None or self._failure_of(load.row) is not None else load

    def _pump_later(self) -> None:
        """All room is taken by what somebody will read soon, or by what is on its way."""
        if self._timer is None:
            self._timer = self._loop.call_later(ROOM_WAIT_S, self._pump_again)

    def _pump_again(self) -> None:
        self._timer = None
        self._pump()

    def _start(self, load: _Load, want: Want | None) -> bool:
        if not self.cache.make_room(load.weight, self._clock.monotonic_ms(), is_ahead=want is None):
            return False
        self._running[load.key] = [] if want is None else [want]
        task = self._loop.create_task(self._run(load))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _run(self, load: _Load) -> None:
        start, size = load.section
        counts = self._counts_of(load.partition)
        counts.fetch_requests += 1
        try:
            data = await self._store.get(load.object_key, start, start + size) if size else b""
            counts.fetched_bytes += size
            self._failures.pop(load.row.id, None)
        except StoreUnavailable as failure:
            self._fail(load.partition, load.row, None, str(failure))
            data = None
        except ObjectMissing as failure:
            self._fail(load.partition, load.row, ErrorCode.KAFKA_STORAGE_ERROR, f"there is no object {failure}")
            data = None
        finally:
            self.cache.give_back(load.weight)
            wants = self._running.pop(load.key)
        if data is not None:
            try:
                load.keep(data, not wants)
            except CorruptLog as failure:
                self._fail(load.partition, load.row, ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        self._waiting = dict.fromkeys([*wants, *self._waiting])
        self._pump()

    def _fail(self, partition: RemotePartition, row: SegmentRow, error: ErrorCode | None, why: str) -> None:
        self._counts_of(partition).fetch_errors += 1
        log.warning("remote segment %d (%s) cannot be read: %s", row.base_offset, row.id, why)
        if len(self._failures) >= FAILURES_MAX:
            self._failures.clear()
        self._failures[row.id] = _Failure(self._clock.monotonic_ms() + BACKOFF_MS, error)

    def _read_ahead(
        self, remote: RemoteLog, partition: RemotePartition, row: SegmentRow | None, position: int, ahead_bytes: int
    ) -> None:
        """Not at the expense of those who wait, and no further than to where local segments begin."""
        while row is not None and ahead_bytes > 0 and row.base_offset < partition.local_log_start_offset:
            spans = self.cache.map_of(row.id)
            if spans is None:
                self._start_ahead(self._load_map(partition, row))
                return
            while position < spans.log_bytes and ahead_bytes > 0:
                span = spans.span_at(position)
                piece = self.cache.piece(row.id, span.start, position)
                if piece is None and not self._start_ahead(self._load_span(partition, _Absent(spans, span, position))):
                    return
                if not span.is_exact:
                    return
                ahead_bytes -= span.end - position
                position = span.end
            row, position = remote.row_for(row.end_offset + 1), 0

    def _start_ahead(self, load: _Load) -> bool:
        if load.key in self._running:
            return True
        if self._waiting or len(self._running) >= self._running_max or self._failure_of(load.row) is not None:
            return False
        return self._start(load, None)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _joined(parts: list[memoryview]) -> Buffer:
    return b"" if not parts else parts[0] if len(parts) == 1 else b"".join(parts)


def _with_aborts(remote: RemoteLog, want: Want) -> Iterator[SegmentRow]:
    """Those of its segment and of later ones: a marker may lie behind what it ends."""
    for row in remote.rows_from(want.offset):
        if row.base_offset >= want.partition.local_log_start_offset:
            return
        if row.sections.txnindex is not None and row.sections.txnindex[1]:
            yield row
