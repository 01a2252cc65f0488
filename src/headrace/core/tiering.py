"""What a leader does with the tier: which segments it copies, and which of those that were copied have had their time.

Offsets that end something are exclusive here, except for those of rows.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.core.epochs import EpochEntry
from headrace.core.tier_lineage import RemoteLog, log_start_after
from headrace.core.tier_rows import COPY_FINISHED, Manifest, SegmentRow


class LocalSegment(NamedTuple):
    """One on the leader's disk. The last one of a log is still appended to."""

    base_offset: int
    end_offset: int
    bytes: int


def to_copy(segments: Sequence[LocalSegment], tiered_up_to: int, limit_offset: int) -> list[LocalSegment]:
    """Those that are complete, whose records are committed and decided, and that the tier has not wholly.

    `limit_offset` is the last stable offset. Also one of which the tier has a part, copied by a leader that had rolled
    elsewhere.
    """
    return [
        segment
        for segment in segments[:-1]
        if tiered_up_to < segment.end_offset <= limit_offset and segment.base_offset < segment.end_offset
    ]


def epochs_within(entries: Sequence[EpochEntry], base_offset: int, end_offset: int) -> tuple[tuple[int, int], ...]:
    """The leader's list of epochs, cut to what lies between; the first begins at `base_offset`."""
    before = [entry.epoch for entry in entries if entry.start_offset <= base_offset][-1:]
    inside = [(entry.epoch, entry.start_offset) for entry in entries if base_offset < entry.start_offset < end_offset]
    return (*((epoch, base_offset) for epoch in before), *inside)


def epochs_up_to(entries: Sequence[EpochEntry], end_offset: int) -> tuple[EpochEntry, ...]:
    return tuple(entry for entry in entries if entry.start_offset < end_offset)


class Kept(NamedTuple):
    """How much of a log is kept, tier included. -1 is no limit."""

    ms: int
    bytes: int


def log_start_by_retention(
    remote: RemoteLog, local: Sequence[LocalSegment], kept: Kept, log_start_offset: int, now_ms: int
) -> int:
    """Where the log begins once the oldest remote segments go that nothing keeps. Each is counted once."""
    tiered_up_to = remote.rows[-1].end_offset + 1 if remote.rows else log_start_offset
    living = [row for row in remote.rows if row.end_offset >= log_start_offset]
    only_local = sum(segment.bytes for segment in local if segment.end_offset > tiered_up_to)
    excess_bytes = only_local + sum(map(log_bytes, living)) - kept.bytes if kept.bytes >= 0 else -1
    doomed = []
    for row in living:
        if not (excess_bytes >= log_bytes(row) or is_old(row, kept.ms, now_ms)):
            break
        excess_bytes -= log_bytes(row)
        doomed.append(row)
    return log_start_after(doomed, log_start_offset)


def log_bytes(row: SegmentRow) -> int:
    return row.sections.log[1]


def is_old(row: SegmentRow, kept_ms: int, now_ms: int) -> bool:
    """Records without a time, or from the future, count from when they were copied."""
    if kept_ms < 0:
        return False
    newest_ms = row.max_timestamp_ms if 0 <= row.max_timestamp_ms <= now_ms else row.finished_ms
    return now_ms - newest_ms > kept_ms


def below(rows: Iterable[SegmentRow], log_start_offset: int) -> list[SegmentRow]:
    """Finished ones of which nothing is left to be read, inside the lineage or not."""
    return [row for row in rows if row.state is COPY_FINISHED and row.end_offset < log_start_offset]


def unfinished(manifest: Manifest) -> list[SegmentRow]:
    """What a copy or a deletion left behind that is not under way any more."""
    return [row for row in manifest.rows if row.state is not COPY_FINISHED]


def log_start_without_hole(remote: RemoteLog, log_start_offset: int, local_log_start: int) -> int:
    """The log start, or, if something is neither in the tier nor local, where there is nothing more of the kind.

    That is so only after an election of a replica that lacked committed records.
    """
    if log_start_offset >= local_log_start:
        return log_start_offset
    start = local_log_start
    for row in reversed(remote.rows):
        if row.end_offset + 1 < start:
            break
        start = min(start, max(row.base_offset, remote.first_offset()))
    return max(start, log_start_offset)
