"""Finding records by time. The only place where a broker opens a batch: one batch per lookup."""

from typing import NamedTuple

from headrace.errors import CorruptLog
from headrace.storage.segment import Segment
from headrace.storage.segments import Segments
from headrace.storage.walk import walk
from headrace.wire.batch import BatchHeader, crc_of, read_records
from headrace.wire.errors import ProtocolError
from headrace.wire.records import Record


class Found(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(segments: Segments, timestamp: int, start_offset: int, limit_offset: int) -> Found | None:
    """The first record of [start_offset, limit_offset) whose time is `timestamp` or later."""
    for segment in segments:
        if segment.end_offset <= start_offset or not segment.size or segment.largest_timestamp() < timestamp:
            continue
        if segment.base_offset >= limit_offset:
            return None
        found = _first_in(segment, timestamp, start_offset, limit_offset)
        if found is not None:
            return found
    return None


def _first_in(segment: Segment, timestamp: int, start_offset: int, limit_offset: int) -> Found | None:
    begin = segment.locate(max(segment.open_indexes()[1].floor(timestamp), start_offset))
    if begin is None:
        return None
    for position, header in walk(segment.log, begin[0], segment.size):
        if header.base_offset >= limit_offset:
            return None
        if header.max_timestamp < timestamp:
            continue
        for record in _records(segment, position, header):
            if record.timestamp >= timestamp and start_offset <= record.offset < limit_offset:
                return Found(record.timestamp, record.offset, header.leader_epoch)
    return None


def newest(segments: Segments, start_offset: int, limit_offset: int) -> Found | None:
    """The record of [start_offset, limit_offset) with the highest time; the first of them."""
    best: Found | None = None
    for segment in segments:
        if segment.end_offset <= start_offset or segment.base_offset >= limit_offset or not segment.size:
            continue
        if best is not None and segment.largest_timestamp() <= best.timestamp:
            continue
        best = _newest_in(segment, start_offset, limit_offset, best)
    return best


def _newest_in(segment: Segment, start_offset: int, limit_offset: int, best: Found | None) -> Found | None:
    offset = segment.max_timestamp_offset
    begin = segment.locate(offset) if start_offset <= offset < limit_offset else None
    if begin is not None and not begin[1].record_count:
        begin = None  # compaction has emptied the batch
    # Only where the newest batch is not readable does the rest of the segment have to be looked through.
    first, last = begin if begin is not None else (0, None)
    for position, header in walk(segment.log, first, segment.size):
        if header.base_offset >= limit_offset:
            break
        if header.last_offset < start_offset or (best is not None and header.max_timestamp <= best.timestamp):
            continue
        for record in _records(segment, position, header):
            if start_offset <= record.offset < limit_offset and (best is None or record.timestamp > best.timestamp):
                best = Found(record.timestamp, record.offset, header.leader_epoch)
        if last is not None:
            break
    return best


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    return records_of(segment.log.read(position, header.size), header, f"{segment.log.path}, byte {position}")


def records_of(raw: bytes, header: BatchHeader, where: str) -> list[Record]:
    """Nobody looked into the batch when it came: if its producer put nonsense inside, it counts as one record."""
    if len(raw) < header.size or crc_of(raw, 0, len(raw)) != header.crc:
        raise CorruptLog(f"{where}: the batch fails its checksum.")
    try:
        return read_records(raw, check_crc=False)
    except ProtocolError:
        return [Record(header.base_offset, header.max_timestamp, None, None, ())]
