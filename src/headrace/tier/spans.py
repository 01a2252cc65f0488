"""Which ranges of a remote segment to ask for, by its sparse index, and where to cut what came.

A span is about a megabyte and holds whole batches: it begins and ends where the index says that a batch begins. Where
the index is too sparse for that, a span is cut at a guess, and the batch that does not fit begins the next one.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right, insort
from typing import NamedTuple

from headrace.core.tier_rows import SegmentRow
from headrace.errors import CorruptLog
from headrace.model import Buffer
from headrace.storage.index import OFFSET_ENTRY
from headrace.wire.batch import MAGIC, MAGIC_AT, SIZE_AHEAD_OF_LENGTH, SIZE_MIN

SPARSE = 2
"""How many times its usual size a span may have before it is cut at a guess."""

CURSORS_MAX = 64

_WORD = "I"
_PLACE_IN_LOG = struct.Struct(">qi11xi")  # base offset, length, last offset delta
_OBJECT_BYTES = 8 << 10
_CUT_BYTES = 128


class Batch(NamedTuple):
    """Where it lies in the log of its segment."""

    base_offset: int
    last_offset: int
    size: int


class Span(NamedTuple):
    """Bytes of the log of a segment, from a batch on. Unless it `is_exact`, it may end in the middle of one."""

    start: int
    end: int
    is_exact: bool


def batch_at(data: Buffer, at: int, name: str) -> Batch | None:
    """None if less of it is there than tells its size."""
    if at + _PLACE_IN_LOG.size > len(data):
        return None
    base_offset, length, last_offset_delta = _PLACE_IN_LOG.unpack_from(data, at)
    size = length + SIZE_AHEAD_OF_LENGTH
    if size < SIZE_MIN or data[at + MAGIC_AT] != MAGIC or last_offset_delta < 0:
        raise CorruptLog(f"{name} has no record batch where one should begin.")
    return Batch(base_offset, base_offset + last_offset_delta, size)


class SpanMap:
    """The spans of one segment. What is learned of a sparsely indexed one is remembered."""

    __slots__ = (
        "_cursors",
        "_cuts",
        "_learned",
        "_offsets",
        "_positions",
        "_span_bytes",
        "log_bytes",
        "name",
        "row",
    )

    def __init__(self, row: SegmentRow, index: bytes, span_bytes: int) -> None:
        """`index` is the offset index of the segment, as it is stored."""
        self.row = row
        self.name = f"remote segment {row.base_offset} ({row.id})"
        self.log_bytes = row.sections.log[1]
        words: array[int] = array(_WORD)
        words.frombytes(index[: len(index) - len(index) % OFFSET_ENTRY.size])
        if sys.byteorder == "little":
            words.byteswap()
        self._offsets, self._positions = words[0::2], words[1::2]
        if self._positions and not 0 < self._positions[-1] < self.log_bytes:
            raise CorruptLog(f"{self.name} has an index that is not its own.")
        self._span_bytes = span_bytes
        self._learned: set[int] = set()
        # Where the batch begins at which somebody will most likely read next.
        self._cursors: dict[int, int] = {}
        self._cuts = [0]
        at = 0
        while at + span_bytes < self.log_bytes:
            fits = bisect_right(self._positions, at + span_bytes)
            if fits and self._positions[fits - 1] > at:
                at = self._positions[fits - 1]
            elif fits < len(self._positions):
                at = self._positions[fits]
            else:
                break
            self._cuts.append(at)

    @staticmethod
    def memory_bytes(row: SegmentRow, span_bytes: int) -> int:
        """About what a map takes."""
        return _OBJECT_BYTES + row.sections.index[1] + _CUT_BYTES * (row.sections.log[1] // span_bytes)

    def floor(self, offset: int) -> int:
        """Where a batch begins that holds `offset` or lies before it, near to it."""
        known = self._cursors.get(offset)
        if known is not None:
            return known
        at = bisect_right(self._offsets, offset - self.row.base_offset)
        return self._positions[at - 1] if at else 0

    def ceiling(self, offset: int) -> int:
        """Where a batch begins, or the log ends, before which all lies that holds `offset` or is older."""
        at = bisect_left(self._offsets, offset - self.row.base_offset) + 1
        return self._positions[at] if at < len(self._positions) else self.log_bytes

    def span_at(self, position: int) -> Span:
        """The one with the batch that begins at `position`."""
        assert 0 <= position < self.log_bytes
        at = bisect_right(self._cuts, position)
        start, end = self._cuts[at - 1], self._cuts[at] if at < len(self._cuts) else self.log_bytes
        if end - start > SPARSE * self._span_bytes and start not in self._learned:
            return Span(position, min(position + self._span_bytes, end), is_exact=False)
        return Span(start, end, is_exact=True)

    def remember(self, offset: int, position: int) -> None:
        """The batch with that offset begins there."""
        if len(self._cursors) >= CURSORS_MAX:
            self._cursors.clear()
        if position < self.log_bytes:
            self._cursors[offset] = position

    def learn(self, start: int, end: int) -> None:
        """A batch begins at `start`, and one ends at `end`: that is a span from now on."""
        for cut in (start, end):
            if cut < self.log_bytes and self._cuts[bisect_right(self._cuts, cut) - 1] != cut:
                insort(self._cuts, cut)
        self._learned.add(start)

    def position_of(self, data: Buffer, data_at: int, position: int, offset: int) -> int:
        """Of the batch that holds `offset` or is the first behind it, looked for from the batch at `position` on.

        `data` are whole batches, the first of them at `data_at`. Where they end if they end before `offset`.
        """
        while batch := batch_at(data, position - data_at, self.name):
            if batch.last_offset >= offset:
                break
            position += batch.size
        return position

    def end_of(
        self, data: Buffer, data_at: int, position: int, bytes_max: int, limit_offset: int, at_least_one: bool
    ) -> tuple[int, int]:
        """How far to read from the batch at `position`: where the last one ends, and the offset after it.

        Without any batch, `position` and -1.
        """
        end = min(position + bytes_max, data_at + len(data))
        # What lies between is walked over only from the last indexed batch on.
        indexed = bisect_right(self._positions, end - _PLACE_IN_LOG.size)
        indexed = min(indexed, bisect_left(self._offsets, limit_offset - self.row.base_offset)) - 1
        at, next_offset = position, -1
        if indexed >= 0 and self._positions[indexed] > position:
            at = self._positions[indexed]
        is_first = at == position
        while batch := batch_at(data, at - data_at, self.name):
            if batch.base_offset >= limit_offset or (at + batch.size > end and not (is_first and at_least_one)):
                next_offset = batch.base_offset if at > position else next_offset
                break
            at += batch.size
            next_offset = batch.last_offset + 1
            is_first = False
        return at, next_offset


def whole_batches(data: Buffer, name: str) -> int:
    """How many bytes of `data`, which begins with a batch, are whole batches."""
    at = 0
    while batch := batch_at(data, at, name):
        if at + batch.size > len(data):
            break
        at += batch.size
    return at
