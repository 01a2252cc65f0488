"""What was read from remote segments, in memory, and never more of it than agreed.

What nobody has read yet stays for a while, whatever else wants its place: otherwise readers that come one after another
would each drive out what the one before waits for. After that, what was not used for longest goes first.
"""

from typing import NamedTuple

from headrace.model import Buffer
from headrace.tier.spans import SpanMap

FRESH_MS = 10_000
"""How long something that nobody reads keeps its place."""

_MAP, _ABORTED = "map", "aborted"

_Key = tuple[str, str | int]
"""Id of the segment; and where in its log, or what else it is."""


class Piece(NamedTuple):
    """Whole batches: those of a span from `start` on."""

    start: int
    end: int
    data: Buffer


class _Item:
    __slots__ = ("fresh_until_ms", "value", "weight")

    def __init__(self, value: object, weight: int, fresh_until_ms: int) -> None:
        self.value = value
        self.weight = weight
        self.fresh_until_ms = fresh_until_ms


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

    def piece_read(self, row_id: str, span_start: int) -> None:
        """Somebody has it."""
        self._use((row_id, span_start))
        self._use((row_id, _MAP))

    def _use(self, key: _Key) -> object:
        item = self._items.pop(key, None)
        if item is None:
            return None
        item.fresh_until_ms = 0
        self._items[key] = item
        return item.value

    # Filling. Room was made before.

    def put_map(self, spans: SpanMap, now_ms: int) -> None:
        self._put((spans.row.id, _MAP), spans, spans.memory_bytes, now_ms)

    def put_aborted(self, row_id: str, index: bytes, now_ms: int) -> None:
        self._put((row_id, _ABORTED), index, len(index), now_ms)

    def put_piece(self, row_id: str, span_start: int, piece: Piece, now_ms: int) -> None:
        if (row_id, span_start) not in self._items:
            self._pieces_of[row_id] = self._pieces_of.get(row_id, 0) + 1
        self._put((row_id, span_start), piece, len(piece.data), now_ms)

    def _put(self, key: _Key, value: object, weight: int, now_ms: int) -> None:
        known = self._items.pop(key, None)
        self.bytes += weight - (known.weight if known is not None else 0)
        self._items[key] = _Item(value, weight, now_ms + FRESH_MS)

    # Room.

    def make_room(self, weight: int, now_ms: int) -> bool:
        """Takes so many bytes for something that is on its way, if others can go for it.

        Something that is larger than all there is may come when there is nothing else.
        """
        if self.bytes + weight > self.bytes_max:
            self._evict(weight, now_ms)
        if self.bytes + weight > self.bytes_max and self.bytes:
            return False
        self.bytes += weight
        return True

    def give_back(self, weight: int) -> None:
        """What was on its way is here, or will not come."""
        self.bytes -= weight

    def _evict(self, weight: int, now_ms: int) -> None:
        for key, item in list(self._items.items()):
            if self.bytes + weight <= self.bytes_max:
                return
            if item.fresh_until_ms > now_ms or (key[1] == _MAP and self._pieces_of.get(key[0])):
                continue
            self._drop(key)

    def _drop(self, key: _Key) -> None:
        item = self._items.pop(key)
        self.bytes -= item.weight
        if isinstance(item.value, Piece):
            self._pieces_of[key[0]] -= 1
            if not self._pieces_of[key[0]]:
                del self._pieces_of[key[0]]

    def forget(self, row_id: str) -> None:
        """The segment is not read any more."""
        for key in [key for key in self._items if key[0] == row_id]:
            self._drop(key)

    def __len__(self) -> int:
        return len(self._items)
