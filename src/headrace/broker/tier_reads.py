"""Reads from the tier: what is at hand is given at once, what is not is loaded, and whoever waits is told.

Nothing here waits. A fetch asks for what it will read and parks; when a load has come (tier_loads), the partition's
sessions are looked at again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from headrace.broker.tier_loads import Load, Loaded, NearStore, RemotePartition, TierLoads, Want
from headrace.broker.tier_metrics import Counts
from headrace.core.producers import AbortedTransaction
from headrace.core.tier_lineage import RemoteLog
from headrace.core.tier_rows import SegmentRow
from headrace.errors import CorruptLog, ErrorCode
from headrace.model import Buffer
from headrace.runtime import Clock
from headrace.storage.txn_index import CorruptTransactionIndex, decode_entries, overlapping
from headrace.tier.read_ahead import Streams
from headrace.tier.read_cache import Piece, ReadCache
from headrace.tier.spans import Span, SpanMap, batch_at, whole_batches
from headrace.tier.store import ObjectStore
from headrace.wire.batch import end_of

log = logging.getLogger(__name__)

SPAN_BYTES = 1 << 20
SPANS_MIN = 16
"""In the cache at the least: a small one has small spans."""

AHEAD_BYTES_MAX = 8 << 20

LOADS_AT_ONCE_MAX = 4
"""For one want: the map of its segment, what was aborted there, and a span; more is rare."""


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

    @property
    def row(self) -> SegmentRow:
        return self.spans.row


class _NoMap(NamedTuple):
    """It is not known which spans its segment has."""

    row: SegmentRow


class _NoAborts(NamedTuple):
    """It is not known which transactions end in a segment."""

    row: SegmentRow


_Missing: TypeAlias = _Absent | _NoMap | _NoAborts


class _Ahead(NamedTuple):
    """What will be read next, most likely: so many bytes from a position in a segment on."""

    row: SegmentRow
    position: int
    bytes: int


class TierReads:
    """`remote_log_of` is None while it is not known; `loaded` is told of partitions that have something to read."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        store: ObjectStore,
        near: NearStore | None = None,
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
        self._ahead: dict[RemotePartition, _Ahead] = {}
        self._is_ahead_due = False
        self._remote_log_of = remote_log_of
        self._key_of = key_of
        self.cache = ReadCache(cache_bytes)
        self._span_bytes = min(SPAN_BYTES, cache_bytes // SPANS_MIN)
        self._streams = Streams(min(AHEAD_BYTES_MAX, cache_bytes // 8))
        self.loads = TierLoads(
            loop=loop,
            clock=clock,
            store=store,
            near=near,
            cache=self.cache,
            next_load=self._first_load,
            loaded=loaded,
            counts_of=counts_of,
            running_max=running_max,
            waiting_max=waiting_max,
        )

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
            error = self.loads.error_of(row)
            if error is not None:
                return _joined(parts) if parts else error
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
        is_done = end == place.piece.end
        if is_done and place.piece.is_passing:
            self.cache.drop_piece(row.id, place.span.start)
        else:
            self.cache.piece_read(row.id, place.span.start, is_done=is_done)
        following = remote.row_for(row.end_offset + 1) if end == spans.log_bytes else None
        after = (row.id, end) if following is None else (following.id, 0)
        ahead_bytes = self._streams.read((row.id, place.position), after, end - place.position)
        if ahead_bytes and not place.piece.is_near:
            self._ahead[partition] = _Ahead(row if following is None else following, after[1], ahead_bytes)
            self._go_ahead_soon()

    def _go_ahead_soon(self) -> None:
        """For one partition in each turn of the loop, so that nobody waits for all of them."""
        if self._ahead and not self._is_ahead_due:
            self._is_ahead_due = True
            self._loop.call_soon(self._go_ahead)

    def _go_ahead(self) -> None:
        self._is_ahead_due = False
        partition = next(iter(self._ahead))
        row, position, ahead_bytes = self._ahead.pop(partition)
        self._go_ahead_soon()
        remote = self._remote_log_of(partition)
        if remote is not None:
            self._read_ahead(remote, partition, row, position, ahead_bytes)

    def is_at_hand(self, partition: RemotePartition, offset: int, is_committed: bool) -> bool:
        """Whether a read gives something now: records, or the error why there are none."""
        try:
            return self._look(Want(partition, offset, is_committed)) is True
        except CorruptLog:
            return True

    def aborted_in(self, want: Want, records: Buffer) -> tuple[list[AbortedTransaction], bool]:
        """What a reader of these records must leave out, and whether local segments cannot add to it."""
        remote = self._remote_log_of(want.partition)
        found: dict[AbortedTransaction, None] = {}
        end_offset = -1
        for row in () if remote is None else _with_aborts(remote, want):
            index = self.cache.aborted_of(row.id)
            assert index is not None, "whoever reads in this way has looked whether it is at hand"
            if end_offset < 0:
                end_offset = end_of(records)  # which takes a while
            more, is_complete = overlapping(index, want.offset, end_offset)
            found.update(dict.fromkeys(more))
            if is_complete:
                return list(found), True
        return list(found), False

    # Finding out what is missing.

    def _look(self, want: Want) -> "_Missing | bool":
        """What must come first for it. True: a read gives something now; False: nothing can be done for it yet.

        Raises CorruptLog.
        """
        remote = self._remote_log_of(want.partition)
        if remote is None:
            return False
        row = remote.row_for(want.offset)
        if row is None or self.loads.error_of(row) is not None:
            return True
        return self._missing(remote, want) or True

    def _find(self, row: SegmentRow, offset: int) -> _Place | _Absent | _NoMap | None:
        """None if it has no batch from `offset` on."""
        spans = self.cache.map_of(row.id)
        if spans is None:
            return _NoMap(row)
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

    def _missing(self, remote: RemoteLog, want: Want) -> _Missing | None:
        """What must come first. None: all is at hand, or nothing can be had."""
        offset = want.offset
        while (row := remote.row_for(offset)) is not None:
            found = self._find(row, offset)
            if found is None:
                offset = row.end_offset + 1
                continue
            if not isinstance(found, _Place):
                return found
            break
        if want.is_committed and row is not None:
            absent = self._absent_aborts(remote, want, row)
            return None if absent is None else _NoAborts(absent)
        return None

    def _load(self, partition: RemotePartition, missing: _Missing) -> Load:
        match missing:
            case _Absent():
                return self._load_span(partition, missing)
            case _NoMap(row):
                return self._load_map(partition, row)
            case _NoAborts(row):
                return self._load_aborts(partition, row)

    def _absent_aborts(self, remote: RemoteLog, want: Want, row: SegmentRow) -> SegmentRow | None:
        for other in _with_aborts(remote, want):
            index = self.cache.aborted_of(other.id)
            if index is None:
                return other
            if overlapping(index, want.offset, row.end_offset + 1)[1]:
                break
        return None

    def _load_map(self, partition: RemotePartition, row: SegmentRow) -> Load:
        weight = SpanMap.memory_bytes(row, self._span_bytes)

        def keep(loaded: Loaded) -> None:
            self.cache.put_map(
                SpanMap(row, bytes(loaded.content), self._span_bytes), weight, self._clock.monotonic_ms()
            )

        return Load(partition, (row.id, "map"), row, self._key_of(partition, row), row.sections.index, weight, keep)

    def _load_aborts(self, partition: RemotePartition, row: SegmentRow) -> Load:
        assert row.sections.txnindex is not None

        def keep(loaded: Loaded) -> None:
            index = bytes(loaded.content)
            try:
                for _entry in decode_entries(index):
                    pass
            except CorruptTransactionIndex as failure:
                raise CorruptLog(str(failure)) from failure
            self.cache.put_aborted(row.id, index, self._clock.monotonic_ms())

        section = row.sections.txnindex
        return Load(partition, (row.id, "aborted"), row, self._key_of(partition, row), section, section[1], keep)

    def _load_span(self, partition: RemotePartition, absent: _Absent) -> Load:
        spans, span, position = absent
        row = spans.row

        def keep(loaded: Loaded) -> None:
            data = loaded.content
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
            piece = Piece(position, position + size, kept, loaded.is_near, loaded.is_passing)
            self.cache.put_piece(row.id, start, piece, self._clock.monotonic_ms(), is_ahead=loaded.is_ahead)

        section = (row.sections.log[0] + position, span.end - position)
        return Load(partition, (row.id, span.start), row, self._key_of(partition, row), section, section[1], keep)

    # Loading.

    def ask(self, want: Want) -> bool:
        """Loads what is missing. False when too much is asked for already."""
        return self.loads.ask(want)

    def load_at_once(self, want: Want) -> int | None:
        """How many loads of what is in memory on this machine it took until it was at hand. None: it is not."""
        for loads in range(LOADS_AT_ONCE_MAX + 1):
            try:
                found = self._look(want)
            except CorruptLog:
                return loads
            if isinstance(found, bool):
                return loads if found else None
            if not self.loads.at_once(self._load(want.partition, found)):
                return None
        return None

    def _first_load(self, want: Want) -> Load | None:
        """None when there is nothing to do for it, or not now."""
        try:
            found = self._look(want)
        except CorruptLog as failure:
            remote = self._remote_log_of(want.partition)
            row = None if remote is None else remote.row_for(want.offset)
            if row is not None:
                self.loads.fail(want.partition, row, ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
            return None
        if isinstance(found, bool) or self.loads.is_failed(found.row):
            return None
        return self._load(want.partition, found)

    def _read_ahead(
        self, remote: RemoteLog, partition: RemotePartition, row: SegmentRow | None, position: int, ahead_bytes: int
    ) -> None:
        """Not at the expense of those who wait, and no further than to where local segments begin."""
        while row is not None and ahead_bytes > 0 and row.base_offset < partition.local_log_start_offset:
            spans = self.cache.map_of(row.id)
            if spans is None:
                if self.loads.can_go_ahead:
                    self.loads.ahead(self._load_map(partition, row))
                return
            while position < spans.log_bytes and ahead_bytes > 0:
                span = spans.span_at(position)
                piece = self.cache.piece(row.id, span.start, position)
                if piece is None and not self.loads.is_running((row.id, span.start)):
                    if not self.loads.can_go_ahead:
                        return
                    if not self.loads.ahead(self._load_span(partition, _Absent(spans, span, position))):
                        return
                if not span.is_exact:
                    return
                ahead_bytes -= span.end - position
                position = span.end
            row, position = remote.row_for(row.end_offset + 1), 0


def _joined(parts: list[memoryview]) -> Buffer:
    return b"" if not parts else parts[0] if len(parts) == 1 else b"".join(parts)


def _with_aborts(remote: RemoteLog, want: Want) -> Iterator[SegmentRow]:
    """Those of its segment and of later ones: a marker may lie behind what it ends."""
    for row in remote.rows_from(want.offset):
        if row.base_offset >= want.partition.local_log_start_offset:
            return
        if row.sections.txnindex is not None and row.sections.txnindex[1]:
            yield row
