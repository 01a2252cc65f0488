"""Reads a remote segment back, and says what is wrong with it."""

from collections.abc import Callable
from itertools import pairwise

from headrace.core.tier_rows import Section, SegmentRow
from headrace.storage.checkpoints import CorruptCheckpoint, parse_leader_epochs
from headrace.storage.index import OFFSET_ENTRY, TIME_ENTRY
from headrace.storage.snapshots import CorruptSnapshot, decode_snapshot
from headrace.storage.txn_index import ENTRY_BYTES, CorruptTransactionIndex, decode_entries
from headrace.tier.segment_object import read_section
from headrace.tier.store import ObjectMissing, ObjectStore
from headrace.tier.verify_log import LogCheck

CHUNK_BYTES = 4 << 20
PROBLEMS_MAX = 20
"""Of one segment; whoever has so many need not hear of more."""


async def verify_segment(
    store: ObjectStore, key: str, row: SegmentRow, progress: Callable[[int], None] = lambda _: None
) -> list[str]:
    """Every problem as one sentence; none if it is whole. Reads all of the object, a few megabytes at a time.

    `progress` is told how many bytes were read since it was last told. Raises StoreUnavailable.
    """
    try:
        return (await _verify(store, key, row, progress))[:PROBLEMS_MAX]
    except ObjectMissing as missing:
        return [f"The object is missing, or a part of it: {missing}."]


async def _verify(store: ObjectStore, key: str, row: SegmentRow, progress: Callable[[int], None]) -> list[str]:
    size = await store.size(key)
    if size != row.bytes:
        return [f"The object has {size} bytes instead of {row.bytes}."]

    async def section(place: Section | None) -> bytes:
        content = await read_section(store, key, place)
        progress(len(content))
        return content

    sections = row.sections
    index = await section(sections.index)
    problems = check_offset_index(index, row)
    check = LogCheck(row, dict(_indexed(index, row)))
    at, end = sections.log[0], sum(sections.log)
    while at < end:
        chunk = await section((at, min(CHUNK_BYTES, end - at)))
        check.feed(chunk)
        at += len(chunk)
    check.finish()
    problems += check.problems
    problems += check_time_index(await section(sections.timeindex), row)
    problems += check_transaction_index(await section(sections.txnindex), row)
    if sections.snapshot is not None:
        problems += check_snapshot(await section(sections.snapshot))
    return problems + check_epochs(await section(sections.epochs), row)


def check_offset_index(content: bytes, row: SegmentRow) -> list[str]:
    if len(content) % OFFSET_ENTRY.size:
        return [f"The offset index has {len(content)} bytes, which are no whole entries."]
    entries = _indexed(content, row)
    if any(one[0] >= two[0] or one[1] >= two[1] for one, two in pairwise(entries)):
        return ["The entries of the offset index do not rise."]
    return []


def check_time_index(content: bytes, row: SegmentRow) -> list[str]:
    if len(content) % TIME_ENTRY.size:
        return [f"The time index has {len(content)} bytes, which are no whole entries."]
    entries = list(TIME_ENTRY.iter_unpack(content))
    if any(one[0] > two[0] or one[1] > two[1] for one, two in pairwise(entries)):
        return ["The entries of the time index do not rise."]
    if any(not 0 <= relative <= row.end_offset - row.base_offset for _, relative in entries):
        return ["The time index names offsets outside the segment."]
    if entries and entries[-1][0] > row.max_timestamp_ms:
        return [f"The time index goes up to {entries[-1][0]}, the manifest says {row.max_timestamp_ms}."]
    return []


def check_transaction_index(content: bytes, row: SegmentRow) -> list[str]:
    if len(content) % ENTRY_BYTES:
        return [f"The transaction index has {len(content)} bytes, which are no whole entries."]
    try:
        aborted = list(decode_entries(content))
    except CorruptTransactionIndex as error:
        return [str(error)]
    if any(not row.base_offset <= one.last_offset <= row.end_offset for one in aborted):
        return ["The transaction index names markers outside the segment."]
    return []


def check_snapshot(content: bytes) -> list[str]:
    try:
        decode_snapshot(content, alive_ms=0)
    except CorruptSnapshot as error:
        return [str(error)]
    return []


def check_epochs(content: bytes, row: SegmentRow) -> list[str]:
    """The list goes back to where the log began, and up to the end of the segment."""
    try:
        entries = parse_leader_epochs(content.decode())
    except (CorruptCheckpoint, UnicodeDecodeError) as error:
        return [f"The list of leader epochs cannot be read: {error}"]
    own = [(epoch, start) for epoch, start in entries if row.base_offset < start <= row.end_offset]
    before = [epoch for epoch, start in entries if start <= row.base_offset][-1:]
    if [*((epoch, row.base_offset) for epoch in before), *own] != list(row.epochs):
        return ["The list of leader epochs is not that of the manifest."]
    return []


def _indexed(content: bytes, row: SegmentRow) -> list[tuple[int, int]]:
    """Position in the log, and the last offset of the batch there."""
    whole = len(content) - len(content) % OFFSET_ENTRY.size
    return [(position, row.base_offset + relative) for relative, position in OFFSET_ENTRY.iter_unpack(content[:whole])]
