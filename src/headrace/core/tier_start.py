"""Where a follower begins whose leader has the records that it lacks in the tier alone.

It takes over what the tier knows of a segment's end, the epochs and producers up to there, and fetches from that offset
on. By default the segment is the one before the leader's local log, so that the leader's disk is copied whole; with
`follower.fetch.last.tiered.offset.enable` an empty follower begins behind the last segment of the tier (KIP-1023).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from headrace.core.epochs import NO_EPOCH, NO_OFFSET
from headrace.core.tier_rows import COPY_FINISHED, SegmentRow


class OffsetAndEpoch(NamedTuple):
    offset: int
    epoch: int


class StartAt(NamedTuple):
    """Nothing of the tier is needed: the log begins there, or goes on there if it ends there."""

    offset: int


class StartBehind(NamedTuple):
    """Take over the remote segment that holds the record before `offset`, and begin behind it."""

    offset: int
    epoch: int
    """Of the record at `offset`, as the leader has it."""


class NotYet(NamedTuple):
    """The leader, or this node, does not know it yet; it is tried again."""

    reason: str


Start: TypeAlias = StartAt | StartBehind | NotYet


def begins_behind_tier(is_enabled: bool, is_tiered: bool, is_compacted: bool, own_end: int, leader_end: int) -> bool:
    """Whether an empty follower leaves to the tier all that is there. Anybody else begins at the leader's local log."""
    return is_enabled and is_tiered and not is_compacted and own_end == 0 and leader_end != 0


def earliest_pending_upload(
    is_tiered: bool, highest_remote: int | None, log_start_offset: int, local_log_start_offset: int
) -> int:
    """The first offset that is not in the tier, as its leader knows it; -1: not tiered, or not known yet.

    `highest_remote` is None where the leader has not read the manifest, and -1 where nothing is remote.
    """
    if not is_tiered:
        return NO_OFFSET
    if highest_remote is None:
        return log_start_offset if local_log_start_offset == log_start_offset else NO_OFFSET
    return max(highest_remote + 1, log_start_offset)


def start_by_pending_upload(pending: OffsetAndEpoch, earliest: int, earliest_local: int) -> Start:
    """`pending` is the leader's answer, the others are its log start and where its disk begins."""
    if pending.offset < 0:
        if earliest == earliest_local:
            return StartAt(earliest)
        return NotYet("the leader does not know yet what is in the tier")
    if pending.offset <= earliest:
        return StartAt(earliest)
    return StartBehind(*pending)


def start_by_earliest_local(earliest_local: OffsetAndEpoch, earliest: int, own_end: int) -> Start:
    if earliest_local.offset <= own_end:
        return StartAt(own_end)  # the leader before was another one
    if earliest_local.offset <= earliest:
        return StartAt(earliest)
    return StartBehind(*earliest_local)


def epoch_before(start: StartBehind, epoch: int, end_offset: int) -> int:
    """The epoch of the record before `start`; the leader says that `epoch`, below that of `start`, ended there."""
    return epoch if epoch != NO_EPOCH and end_offset > start.offset - 1 else start.epoch


def segments_with(rows: Iterable[SegmentRow], epoch: int, offset: int) -> list[SegmentRow]:
    """Finished segments with the record of that offset and epoch, those first that go on for longest."""
    found = [
        row
        for row in rows
        if row.state is COPY_FINISHED and any(at == epoch and start <= offset <= end for at, start, end in row.ranges())
    ]
    return sorted(found, key=lambda row: (-row.end_offset, row.id))


def is_inside(row: SegmentRow, offset: int, leader_ends: Mapping[int, tuple[int, int]]) -> bool:
    """Whether the leader has all of a segment, given that it has the record at `offset` of it.

    What comes before that record is then the same; what comes after it may be of another history. `leader_ends` is
    what the leader answers for the epochs of the segment: the largest that it knows up to it, and where that ended.
    """
    for epoch, _, end in row.ranges():
        known, known_end = leader_ends.get(epoch, (NO_EPOCH, NO_OFFSET))
        if end >= offset and (known != epoch or known_end <= end):
            return False
    return True
