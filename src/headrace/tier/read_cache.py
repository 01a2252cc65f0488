"""What was read from remote segments, in memory, and never more of it than agreed.

What somebody waits for stays for a while, whatever else wants its place: otherwise readers that come one after another
would each drive out what the one before waits for. Of the rest, what was read to its end goes first, then what somebody
is reading, and then what was read ahead; what was not used for longest before others. To read ahead drives out only
what was read to its end.
"""

from enum import IntEnum
from typing import NamedTuple

from headrace.model import Buffer
from headrace.tier.spans import SpanMap

FRESH_MS = 10_000
"""How long something that was waited for, and that nobody reads, keeps its place."""

_MAP, _ABORTED = "map", "aborted"

_Key = tuple[str, str | int]
"""Id of the segment; and where in its log, or what else it is."""


class Piece(NamedTuple):
    """Whole batches: those of a span from `start` on."""

    start: int
    end: int
    data: Buffer
    is_near: bool = False
    """It was in memory on this machine, and what follows it will be."""
    is_passing: bool = False
    """Once it is read, it need not be kept: what is in memory is in memory."""


class Use(IntEnum):
    """In the order in which they go."""

    DONE = 0
    READING = 1
    AHEAD = 2
    AWAITED = 3


class _Item:
    __slots__ = ("since_ms", "use", "value", "weight")

    def __init__(self, value: object, weight: int, use: Use, since_ms: int) -> None:
        self.value = value
        self.weight = weight
        self.use = use
        self.since_ms = since_ms


class ReadCache:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        """With what is on its way here."""
        self._items: dict[_Key, _Item] = {}
        self._pieces_of: dict[str, int] = {}

    # Looking. What was looked at is used.

    def map_of(self, row_id: str) -> SpanMap | None:
        found = self._use((row_id, _MAP))
        assert found is None or isinstance(found, SpanMap)
        return found

    def aborted_of(self, row_id: str) -> bytes | None:
        """The index of aborted transactions."""
        found = self._use((row_id, _ABORTED))
        assert found is None or isinstance(found, bytes)
        return found

    def piece(self, row_id: str, span_start: int, position: int) -> Piece | None:
        """What there is of a span, if it has the batch at `position`."""
        item = self._items.get((row_id, span_start))
        if item is None or not isinstance(item.value, Piece) or position < item.value.start:
            return None
        return item.value

    def piece_read(self, row_id: str, span_start: int, *, is_done: bool) -> None:
        """Somebody has it, or a part of it."""
        self._use((row_id, span_start), Use.DONE if is_done else Use.READING)
        self._use((row_id, _MAP))

    def drop_piece(self, row_id: str, span_start: int) -> None:
        """It was read. Its memory is used again at once, while the processor still has it in its own caches."""
        self._drop((row_id, span_start))
        self._use((row_id, _MAP))

    def _use(self, key: _Key, use: Use = Use.READING) -> object:
        item = self._items.pop(key, None)
        if item is None:
            return None
        item.use = use
        self._items[key] = item
        return item.value

    # Filling. Room was made before.

    def put_map(self, spans: SpanMap, weight: int, now_ms: int) -> None:
        self._put((spans.row.id, _MAP), spans, weight, now_ms)

    def put_aborted(self, row_id: str, index: bytes, now_ms: int) -> None:
        self._put((row_id, _ABORTED), index, len(index), now_ms)

    def put_piece(self, row_id: str, span_start: int, piece: Piece, now_ms: int, *, is_ahead: bool = False) -> None:
        if (row_id, span_start) not in self._items:
            self._pieces_of[row_id] = self._pieces_of.get(row_id, 0) + 1
        self._put((row_id, span_start), piece, len(piece.data), now_ms, Use.AHEAD if is_ahead else Use.AWAITED)

    def _put(self, key: _Key, value: object, weight: int, now_ms: int, use: Use = Use.AWAITED) -> None:
        known = self._items.pop(key, None)
        self.bytes += weight - (known.weight if known is not None else 0)
        self._items[key] = _Item(value, weight, use, now_ms)

    # Room.

    def make_room(self, weight: int, now_ms: int, *, row_id: str = "", is_ahead: bool = False) -> bool:
        """Takes so many bytes for something of a segment that is on its way, if others can go for it.

        The map of that segment stays. What does not fit even so may come when there is nothing else.
        """
        # What is read ahead leaves room for what somebody will wait for.
        bytes_max = self.bytes_max * 3 // 4 if is_ahead else self.bytes_max
        if self.bytes + weight > bytes_max:
            self._evict(bytes_max - weight, now_ms, Use.DONE if is_ahead else Use.AWAITED, row_id)
        own = self._items.get((row_id, _MAP))
        if self.bytes + weight > bytes_max and (is_ahead or self.bytes > (own.weight if own is not None else 0)):
            return False
        self.bytes += weight
        return True

    def give_back(self, weight: int) -> None:
        """What was on its way is here, or will not come."""
        self.bytes -= weight

    def _evict(self, bytes_max: int, now_ms: int, last_use: Use, row_id: str) -> None:
        for use in Use:
            if use > last_use:
                return
            for key, item in list(self._items.items()):
                if self.bytes <= bytes_max:
                    return
                if item.use is use and key != (row_id, _MAP) and not self._must_stay(key, item, now_ms):
                    self._drop(key)

    def _must_stay(self, key: _Key, item: _Item, now_ms: int) -> bool:
        if item.use is Use.AWAITED and now_ms - item.since_ms < FRESH_MS:
            return True
        return key[1] == _MAP and key[0] in self._pieces_of

    def _drop(self, key: _Key) -> None:
        item = self._items.pop(key)
        self.bytes -= item.weight
        if isinstance(item.value, Piece):
            self._pieces_of[key[0]] -= 1
            if not self._pieces_of[key[0]]:
                del self._pieces_of[key[0]]

    def __len__(self) -> int:
        return len(self._items)
