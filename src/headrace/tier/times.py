"""Finding records by time in remote segments, as storage.times does it in local ones: one batch is opened per lookup.

Of a segment both indexes are read, a few kilobytes of its log behind what they say, and the batch.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from headrace.core.tier_rows import SegmentRow
from headrace.errors import CorruptLog
from headrace.storage.index import TIME_ENTRY
from headrace.storage.times import Found, records_of
from headrace.tier.segment_object import read_section
from headrace.tier.spans import SpanMap
from headrace.tier.store import ObjectStore
from headrace.wire.batch import HEADER_BYTES, MAGIC, SIZE_MIN, BatchHeader, read_header
from headrace.wire.records import Record

CHUNK_BYTES = 64 << 10
NO_SPANS = 1 << 40


class RemoteSegment(NamedTuple):
    store: ObjectStore
    key: str
    row: SegmentRow


async def first_at_or_after(
    segments: Iterable[RemoteSegment], timestamp: int, start_offset: int, limit_offset: int
) -> Found | None:
    """The first record of [start_offset, limit_offset) whose time is `timestamp` or later; segments in order."""
    for segment in segments:
        row = segment.row
        if row.end_offset < start_offset or row.max_timestamp_ms < timestamp:
            continue
        if row.base_offset >= limit_offset:
            return None
        found = await _first_in(segment, timestamp, start_offset, limit_offset)
        if found is not None:
            return found
    return None


async def _first_in(segment: RemoteSegment, timestamp: int, start_offset: int, limit_offset: int) -> Found | None:
    begin = max(await _floor(segment, timestamp), start_offset)
    async for position, header in _batches_from(segment, begin):
        if header.base_offset >= limit_offset:
            return None
        if header.max_timestamp < timestamp:
            continue
        for record in await _records(segment, position, header):
            if record.timestamp >= timestamp and start_offset <= record.offset < limit_offset:
                return Found(record.timestamp, record.offset, header.leader_epoch)
    return None


async def newest(
    segments: Iterable[RemoteSegment], start_offset: int, limit_offset: int, best: Found | None
) -> Found | None:
    """The record of [start_offset, limit_offset) with the highest time, the first of them; `best` is a later one."""
    asked = [one for one in segments if one.row.end_offset >= start_offset and one.row.base_offset < limit_offset]
    for segment in sorted(asked, key=lambda one: (-one.row.max_timestamp_ms, one.row.base_offset)):
        if best is not None and (best.timestamp, -best.offset) > (
            segment.row.max_timestamp_ms,
            -segment.row.base_offset,
        ):
            continue
        found = await _newest_in(segment, start_offset, limit_offset)
        if found is not None and (best is None or (found.timestamp, -found.offset) > (best.timestamp, -best.offset)):
            best = found
    return best


async def _newest_in(segment: RemoteSegment, start_offset: int, limit_offset: int) -> Found | None:
    offset = await _floor(segment, segment.row.max_timestamp_ms)
    is_readable = start_offset <= offset < limit_offset
    best: Found | None = None
    # Only where the newest batch is not readable does the rest of the segment have to be looked through.
    async for position, header in _batches_from(segment, offset if is_readable else start_offset):
        if header.base_offset >= limit_offset:
            break
        if best is None or header.max_timestamp > best.timestamp:
            for record in await _records(segment, position, header):
                if start_offset <= record.offset < limit_offset and (best is None or record.timestamp > best.timestamp):
                    best = Found(record.timestamp, record.offset, header.leader_epoch)
        if is_readable and best is not None:
            break
    return best


async def _floor(segment: RemoteSegment, timestamp: int) -> int:
    """Every record newer than `timestamp` lies at or after this offset."""
    row = segment.row
    index = await read_section(segment.store, segment.key, row.sections.timeindex)
    entries = range(len(index) // TIME_ENTRY.size)
    at = bisect_right(entries, timestamp, key=lambda at: TIME_ENTRY.unpack_from(index, at * TIME_ENTRY.size)[0])
    return (
        row.base_offset + int(TIME_ENTRY.unpack_from(index, (at - 1) * TIME_ENTRY.size)[1]) if at else row.base_offset
    )


async def _batches_from(segment: RemoteSegment, offset: int) -> AsyncIterator[tuple[int, BatchHeader]]:
    """Position and header of every batch that ends at `offset` or later."""
    store, key, row = segment
    spans = SpanMap(row, await read_section(store, key, row.sections.index), NO_SPANS)
    log_at, log_bytes = row.sections.log
    position = chunk_at = spans.floor(offset)
    chunk = b""
    while position < log_bytes:
        at = position - chunk_at
        if at + HEADER_BYTES > len(chunk):
            end = min(position + CHUNK_BYTES, log_bytes)
            chunk, chunk_at, at = await store.get(key, log_at + position, log_at + end), position, 0
        if at + HEADER_BYTES > len(chunk):
            raise CorruptLog(f"{spans.name} ends inside a batch.")
        header = read_header(chunk, at)
        if header.magic != MAGIC or header.size < SIZE_MIN:
            raise CorruptLog(f"{spans.name} has no record batch at byte {position}.")
        if header.last_offset >= offset:
            yield position, header
        position += header.size


async def _records(segment: RemoteSegment, position: int, header: BatchHeader) -> list[Record]:
    start = segment.row.sections.log[0] + position
    raw = await segment.store.get(segment.key, start, start + header.size)
    return records_of(raw, header, f"{segment.key}, byte {start}")
