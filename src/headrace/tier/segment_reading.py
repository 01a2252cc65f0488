"""The records of a remote segment from one offset to another, for who reads objects without a broker."""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.core.producers import AbortedTransaction
from headrace.core.tier_rows import Section, SegmentRow
from headrace.errors import CorruptLog
from headrace.storage.txn_index import CorruptTransactionIndex, decode_entries, overlapping
from headrace.tier.segment_object import read_section
from headrace.tier.spans import SpanMap, batch_at, whole_batches
from headrace.tier.store import ObjectStore

CHUNK_BYTES = 4 << 20


class AbortIndex(NamedTuple):
    """Where the aborted transactions stand whose markers lie in one segment."""

    key: str
    section: Section


class SegmentReader:
    """Reads on in chunks of whole batches. A call that fails changes nothing, so that it can be made again."""

    def __init__(
        self, store: ObjectStore, key: str, row: SegmentRow, start: int, end: int, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        """The first chunk may begin before `start`, and the last may go on behind `end`, by a few batches."""
        self._store = store
        self._key = key
        self._row = row
        self._start = start
        self._end = end
        self._chunk_bytes = chunk_bytes
        self._spans: SpanMap | None = None
        self._position = self._limit = 0

    async def next(self) -> memoryview | None:
        """None behind the last one. Raises ObjectMissing, StoreUnavailable, CorruptLog."""
        if self._spans is None:
            index = await read_section(self._store, self._key, self._row.sections.index)
            self._spans = SpanMap(self._row, index, self._chunk_bytes)
            self._position, self._limit = self._spans.floor(self._start), self._spans.ceiling(self._end - 1)
        if self._position >= self._limit:
            return None
        span = self._spans.span_at(self._position)
        end = min(span.end, self._limit)
        data = await self._get(end)
        if not span.is_exact and end < self._limit:
            size = whole_batches(data, self._spans.name)
            if not size:
                data = await self._get(self._end_of_batch(data, self._spans))
                size = len(data)
            data = data[:size]
        elif whole_batches(data, self._spans.name) != len(data):  # of a length that no checksum covers
            raise CorruptLog(f"{self._spans.name} ends inside a batch.")
        self._position += len(data)
        return data

    async def _get(self, end: int) -> memoryview:
        log_at = self._row.sections.log[0]
        return memoryview(await self._store.get(self._key, log_at + self._position, log_at + end))

    def _end_of_batch(self, data: memoryview, spans: SpanMap) -> int:
        """Of the one that is larger than a chunk."""
        batch = batch_at(data, 0, spans.name)
        if batch is None or self._position + batch.size > spans.log_bytes:
            raise CorruptLog(f"{spans.name} ends inside a batch.")
        return self._position + batch.size


async def aborted_between(
    store: ObjectStore, indexes: Iterable[AbortIndex], start: int, end: int
) -> tuple[list[AbortedTransaction], bool]:
    """What a reader of [start, end) must leave out by these, in the order of their segments, the first that of `start`;
    and whether none behind them can add to it. Raises ObjectMissing, StoreUnavailable, CorruptLog."""
    found: dict[AbortedTransaction, None] = {}
    for key, section in indexes:
        content = await read_section(store, key, section)
        try:
            for _ in decode_entries(content):
                pass  # `overlapping` does not look at all of them
            more, is_complete = overlapping(content, start, end)
        except CorruptTransactionIndex as error:
            raise CorruptLog(f"{key}: {error}") from error
        found.update(dict.fromkeys(more))
        if is_complete:
            return list(found), True
    return list(found), False
