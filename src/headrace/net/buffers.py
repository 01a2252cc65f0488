"""Memory for large frames, used again: a new bytearray is cleared first, which costs as much as reading into it."""

from sys import getrefcount

BUFFERS_MAX = 32
KEPT_BYTES_MAX = 32 << 20


class FrameBuffers:
    """Lends bytearrays of an exact size.

    A buffer is lent again when nobody but this object refers to it. Views of it count as references, so a
    frame that somebody still reads, writes to a file or sends is never touched.
    """

    def __init__(self) -> None:
        self._known: list[bytearray] = []
        self._known_bytes = 0

    def lend(self, size: int) -> bytearray:
        for index in range(len(self._known)):
            # The list and the argument of getrefcount.
            if getrefcount(self._known[index]) <= 2 and self._fit(self._known[index], size):
                return self._known[index]
        fresh = bytearray(size)
        if len(self._known) < BUFFERS_MAX and self._known_bytes + size <= KEPT_BYTES_MAX:
            self._known.append(fresh)
            self._known_bytes += size
        return fresh

    def _fit(self, buffer: bytearray, size: int) -> bool:
        """Frames of a busy producer differ by little; stretching a buffer much would cost what we save."""
        extra = size - len(buffer)
        if abs(extra) > size >> 3 or self._known_bytes + extra > KEPT_BYTES_MAX:
            return False
        self._known_bytes += extra
        if extra > 0:
            buffer.extend(bytes(extra))
        elif extra < 0:
            del buffer[size:]
        return True
