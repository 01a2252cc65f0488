"""Aborted transactions of a log: written to the indexes of its segments, and found for who reads committed records."""

from collections.abc import Callable

from headrace.core.producers import AbortedTransaction, ProducerTable
from headrace.model import Buffer
from headrace.storage.segment import Segment
from headrace.storage.segments import Segments
from headrace.storage.txn_index import CorruptTransactionIndex
from headrace.wire.batch import end_of


def index(table: ProducerTable, segment: Segment) -> None:
    """Those of which `table` says that they are not indexed, if their markers are written: then they lie in here."""
    for aborted in taken(table, segment):
        segment.aborted.append(aborted)


def taken(table: ProducerTable, segment: Segment) -> list[AbortedTransaction]:
    written = [aborted for aborted in table.unindexed if aborted.last_offset < segment.end_offset]
    del table.unindexed[: len(written)]
    return written


def overlapping(
    segments: Segments, offset: int, records: Buffer, reindex: Callable[[Segment], None]
) -> list[AbortedTransaction]:
    """Of the records, read from `offset` on. A marker may lie in a later segment than what it ends."""
    return _collect(segments, offset, lambda: end_of(records), reindex)


def across(segments: Segments, offset: int, reindex: Callable[[Segment], None]) -> list[AbortedTransaction]:
    """Those that began before `offset`, where segments begin, and ended there or later."""
    return _collect(segments, offset, lambda: offset, reindex)


def _collect(
    segments: Segments, offset: int, end_offset_of: Callable[[], int], reindex: Callable[[Segment], None]
) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    end_offset = -1
    for at in range(segments.index_of(offset), len(segments)):
        aborted = segments[at].aborted
        if not aborted.size:
            continue
        if end_offset < 0:
            end_offset = end_offset_of()
        try:
            more, is_complete = aborted.overlapping(offset, end_offset)
        except CorruptTransactionIndex:
            reindex(segments[at])
            more, is_complete = aborted.overlapping(offset, end_offset)
        found += more
        if is_complete:
            break
    return found
