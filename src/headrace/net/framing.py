"""Cuts the byte stream of a connection into frames, without private read buffers for idle connections."""

from struct import Struct

from headrace.net.buffers import FrameBuffers
from headrace.wire.errors import ProtocolError

SCRATCH_BYTES = 256 << 10
"""Of the one read buffer that all connections of a loop share."""

BIG_BYTES = 64 << 10
"""A frame of which so much has come, and more is to come, gets memory of its own and is read straight into it."""

GROWTH = 16
GROWTH_SCARCE = 2
"""A client gets at most this many times the memory that it has filled: declaring a length reserves next to nothing."""

READ_BYTES_MAX = 1 << 20
"""Per read, so that one connection does not own a turn of the loop."""

_length = Struct(">i").unpack_from


class FrameReader:
    """One per connection. Ask for `size()` and `take()` until nothing is ready, then for `lacks_room`, then `keep()`.

    Bytes arrive in the shared scratch buffer, or in `_big` once a large frame has begun. Between reads nothing
    of this connection is in the scratch buffer: `keep` moves what is left into memory of its own.
    """

    __slots__ = (
        "_big",
        "_big_size",
        "_buffers",
        "_end",
        "_filled",
        "_frame_bytes_max",
        "_pos",
        "_scratch",
        "_size",
        "_source",
    )

    def __init__(self, scratch: memoryview, buffers: FrameBuffers, frame_bytes_max: int) -> None:
        self._scratch = scratch
        self._buffers = buffers
        self._frame_bytes_max = frame_bytes_max
        self._source: bytearray | memoryview = scratch
        self._pos = 0
        self._end = 0
        self._size = -1
        self._big: bytearray | None = None
        self._big_size = 0
        self._filled = 0

    @property
    def kept_bytes(self) -> int:
        """Left between reads, outside of a large frame."""
        return self._end - self._pos

    @property
    def mid_frame(self) -> bool:
        """Part of a frame is here, or frames nobody took."""
        return self._big is not None or self._end > self._pos

    def buffer(self, bytes_max: int) -> memoryview:
        """Where the next bytes go."""
        if self._big is not None:
            return memoryview(self._big)[self._filled : self._filled + READ_BYTES_MAX]
        kept = self._end
        if kept:
            self._scratch[:kept] = self._source
        return self._scratch[kept : kept + bytes_max]

    def received(self, count: int) -> None:
        """So many bytes were put into the buffer."""
        if self._big is None:
            self._source = self._scratch
            self._end += count
            return
        self._filled += count

    def size(self) -> int:
        """Of the next whole frame; -1 when there is none. ProtocolError when the stream makes no sense."""
        if self._big is not None:
            return self._big_size if self._filled == self._big_size else -1
        left = self._end - self._pos - 4
        if left < 0:
            return -1
        size: int = _length(self._source, self._pos)[0]
        if size > left or size < 0:
            self._check(size)
            return -1
        self._size = size
        return size

    def take(self) -> bytearray:
        """The frame that `size` has just announced."""
        if self._big is not None:
            frame, self._big = self._big, None
            return frame
        start = self._pos + 4
        self._pos = stop = start + self._size
        frame = bytearray(self._source[start:stop])
        if stop == self._end:
            self._pos = self._end = 0
        return frame

    def keep(self) -> None:
        """Empties the shared buffer of what is left: the next connection reads into it."""
        left = self._end - self._pos
        if left == 0:
            self._source = self._scratch
        elif self._pos or self._source is self._scratch:
            self._source = bytearray(self._source[self._pos : self._end])
        self._pos = 0
        self._end = left

    def lacks_room(self) -> bool:
        """An unfinished large frame needs memory of its own, or more of it: `make_room` before the next read."""
        left = self._end - self._pos
        if self._big is not None:
            return self._filled == len(self._big) < self._big_size
        if left < BIG_BYTES:
            return False
        size: int = _length(self._source, self._pos)[0]
        self._check(size)
        return size + 4 > left

    @property
    def room_bytes(self) -> int:
        """That the large frame has so far."""
        return 0 if self._big is None else len(self._big)

    def next_room_bytes(self, growth: int) -> int:
        """That it should have next: so many times what is filled, and never more than the whole frame."""
        if self._big is not None:
            return min(self._big_size, growth * self._filled)
        size: int = _length(self._source, self._pos)[0]
        return min(size, growth * (self._end - self._pos - 4))

    def make_room(self, size: int) -> None:
        """Moves what is there of the unfinished frame to memory of that size."""
        if self._big is None:
            self._big_size = _length(self._source, self._pos)[0]
            self._filled = self._end - self._pos - 4
            there = memoryview(self._source)[self._pos + 4 : self._end]
            self._pos = self._end
        else:
            there = memoryview(self._big)
        self._big = self._buffers.lend(size)
        self._big[: self._filled] = there

    def _check(self, size: int) -> None:
        if size < 0:
            raise ProtocolError(f"a frame of {size} bytes was announced")
        if size > self._frame_bytes_max:
            raise ProtocolError(
                f"a frame of {size} bytes was announced, more than socket.request.max.bytes ({self._frame_bytes_max})"
            )
