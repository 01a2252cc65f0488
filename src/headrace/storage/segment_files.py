"""The files of a complete segment, for whoever copies them elsewhere."""

from typing import NamedTuple

from headrace.storage import producer_state
from headrace.storage.log import Log
from headrace.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    Segment,
    file_name,
)
from headrace.storage.snapshots import CorruptSnapshot, decode_snapshot, encode_snapshot


class Part(NamedTuple):
    path: str
    bytes: int


class SegmentFiles(NamedTuple):
    base_offset: int
    end_offset: int
    """Where the next segment begins."""
    max_timestamp_ms: int
    log: Part
    offset_index: Part
    time_index: Part
    txn_index: Part | None
    """None if no transaction was aborted in it."""
    snapshot: bytes
    """The producers as of its end."""


def segment_files(log: Log, base_offset: int) -> SegmentFiles | None:
    """None if there is no such segment any more, or it is still appended to."""
    at = log.segments.index_of(base_offset) if len(log.segments) else 0
    if at + 1 >= len(log.segments) or log.segments[at].base_offset != base_offset:
        return None
    segment = log.segments[at]
    segment.open_indexes()  # which makes them anew where they are missing or damaged
    segment.write_indexes()
    aborted = segment.aborted.size
    return SegmentFiles(
        base_offset=base_offset,
        end_offset=log.segments[at + 1].base_offset,
        max_timestamp_ms=segment.largest_timestamp(),
        log=Part(segment.path_of(LOG_SUFFIX), segment.size),
        offset_index=_part(log, segment, INDEX_SUFFIX),
        time_index=_part(log, segment, TIME_INDEX_SUFFIX),
        txn_index=_part(log, segment, TXN_INDEX_SUFFIX) if aborted else None,
        snapshot=_snapshot(log, log.segments[at + 1].base_offset),
    )


def _part(log: Log, segment: Segment, suffix: str) -> Part:
    path = segment.path_of(suffix)
    return Part(path, log.shared.files.size(path))


def _snapshot(log: Log, offset: int) -> bytes:
    """As it was written when the segment was completed; after a power cut it may have to be made from the batches."""
    files = log.shared.files
    try:
        found = files.read(f"{log.directory}/{file_name(offset, producer_state.SNAPSHOT_SUFFIX)}")
        decode_snapshot(found, alive_ms=0)
        return found
    except (FileNotFoundError, CorruptSnapshot):
        offsets = producer_state.snapshot_offsets(files.names(log.directory))
        return encode_snapshot(producer_state.load(files, log.directory, offsets, log.segments, offset))
