"""Which remote segments belong to the log as its leader has it, and what can be read from them.

After an unclean election a manifest may still name a segment of records that the new leader does not have. A leader
epoch has one leader, which writes an offset once: where segment and leader agree on the epoch of an offset, they agree
on its record.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import StrEnum

from headrace.core.epochs import NO_OFFSET
from headrace.core.tier_rows import COPY_FINISHED, SegmentRow


class Verdict(StrEnum):
    INSIDE = "inside"
    """Every offset of it that the leader's epoch list covers has the same epoch there."""
    DIVERGENT = "divergent"
    """It holds records of another history."""
    BEYOND = "beyond"
    """It goes on where the leader's log has ended."""
    BEFORE = "before"
    """All of it lies before the first epoch that the leader knows."""


def verdict(row: SegmentRow, epochs: Sequence[tuple[int, int]], log_end_offset: int) -> Verdict:
    """`epochs` is the leader's list of (epoch, first offset), in order.

    The list begins where the log does: what a segment has below that is neither judged nor read.
    """
    if not epochs or row.end_offset < epochs[0][1] or row.leader_epoch < epochs[0][0]:
        return Verdict.BEFORE
    ends = [start - 1 for _, start in epochs[1:]] + [log_end_offset - 1]
    known = {epoch: (start, end) for (epoch, start), end in zip(epochs, ends, strict=True)}
    first_offset = epochs[0][1]
    for epoch, start, end in row.ranges():
        if end < first_offset:
            continue
        leaders = known.get(epoch)
        if leaders is None or max(start, first_offset) < leaders[0]:
            return Verdict.DIVERGENT
        if end > leaders[1]:
            return Verdict.BEYOND if epoch == epochs[-1][0] else Verdict.DIVERGENT
    return Verdict.INSIDE


class RemoteLog:
    """The finished segments inside the lineage, for lookups. Made anew when rows, epochs or a truncation change it."""

    __slots__ = ("_bases", "_first_offset", "rows")

    rows: list[SegmentRow]
    """By base offset, and so by end offset: a segment that lies within another one is left out."""

    def __init__(self, rows: Iterable[SegmentRow], epochs: Sequence[tuple[int, int]], log_end_offset: int) -> None:
        served = [
            row for row in rows if row.state is COPY_FINISHED and verdict(row, epochs, log_end_offset) is Verdict.INSIDE
        ]
        served.sort(key=lambda row: (row.base_offset, -row.end_offset, row.id))
        self.rows = []
        for row in served:
            if not self.rows or row.end_offset > self.rows[-1].end_offset:
                self.rows.append(row)
        self._bases = [row.base_offset for row in self.rows]
        self._first_offset = epochs[0][1] if epochs else 0

    def row_at(self, epoch: int, offset: int) -> SegmentRow | None:
        """The segment with the record of that offset, if it was written in that epoch."""
        row = self.row_for(offset)
        if row is None or all(not (at == epoch and start <= offset <= end) for at, start, end in row.ranges()):
            return None
        return row

    def row_for(self, offset: int) -> SegmentRow | None:
        """Of segments that overlap, the one that goes on for longest."""
        at = bisect_right(self._bases, offset)
        if not at or offset < self._first_offset or self.rows[at - 1].end_offset < offset:
            return None
        return self.rows[at - 1]

    def rows_from(self, offset: int) -> list[SegmentRow]:
        """The segment of that offset, and all behind it; none if it is not remote."""
        at = bisect_right(self._bases, offset)
        return self.rows[at - 1 :] if self.row_for(offset) is not None else []

    def first_offset(self) -> int:
        """Where the oldest segment begins, or, if that is later, the leader's epoch list; -1 without segments."""
        return max(self._bases[0], self._first_offset) if self.rows else NO_OFFSET

    def highest_offset(self, log_start_offset: int) -> int:
        """The last offset up to which there is no gap from the log start on; -1 if the log start is not remote."""
        row = self.row_for(log_start_offset)
        highest = NO_OFFSET
        while row is not None:
            highest = row.end_offset
            row = self.row_for(highest + 1)
        return highest


def log_start_after(doomed: Iterable[SegmentRow], log_start_offset: int) -> int:
    """Where the log begins once these are gone. They may overlap, and come in any order."""
    return max([log_start_offset, *(row.end_offset + 1 for row in doomed)])
