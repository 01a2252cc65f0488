"""The two sparse indexes of a segment, in Apache Kafka's file format.

Entries are kept in memory until there are enough for a write: an index that misses its last entries is still right,
only coarser, and after a crash it is built anew from the log. Lookups hold the offset index as two arrays; how much
memory all of them take together is bounded by a `Residency`.
"""

import struct
import sys
from array import array
from bisect import bisect_right

from headrace.storage.files import File, Files
from headrace.storage.residency import Residency

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
NO_TIMESTAMP = -1

_WORD = "I"
assert array(_WORD).itemsize == 4


class _IndexFile:
    """Fixed-size entries at the end of a file, the newest of them not written yet."""

    __slots__ = ("_file", "_files", "_path", "_pending", "_written_bytes")

    def __init__(self, files: Files, path: str, size: int | None) -> None:
        """`size` is that of the file; None when there is none yet."""
        self._files = files
        self._path = path
        self._file: File | None = None if size is None else files.open(path)
        self._written_bytes = size or 0
        self._pending = bytearray()

    def write_pending(self) -> File:
        """Every entry is in the file; there is a file even without entries, since Kafka expects one."""
        file = self._file
        if file is None:
            file = self._file = self._files.create(self._path)
        if self._pending:
            file.write(self._written_bytes, [self._pending])
            self._written_bytes += len(self._pending)
            self._pending = bytearray()
        return file

    def _content(self) -> bytes:
        written = self._file.read(0, self._written_bytes) if self._file is not None else b""
        return written + self._pending

    def _cut(self, size: int) -> None:
        if size < self._written_bytes and self._file is not None:
            self._file.truncate(size)
            self._written_bytes = size
        del self._pending[max(0, size - self._written_bytes) :]

    @property
    def size(self) -> int:
        return self._written_bytes + len(self._pending)

    def moved(self, path: str) -> None:
        self._path = path
        if self._file is not None:
            self._file.moved(path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class OffsetIndex(_IndexFile):
    """(last offset of a batch, where in the log that batch begins), every few kilobytes."""

    __slots__ = ("_base_offset", "_in_memory", "offsets", "positions", "used")

    def __init__(self, files: Files, path: str, base_offset: int, size: int | None, in_memory: Residency) -> None:
        super().__init__(files, path, size)
        self._base_offset = base_offset
        self._in_memory = in_memory
        self.used = True
        self.offsets: array[int] | None = None
        self.positions: array[int] | None = None

    def append(self, last_offset: int, position: int) -> None:
        relative = last_offset - self._base_offset
        self._pending += OFFSET_ENTRY.pack(relative, position)
        if self.offsets is not None and self.positions is not None:
            self.offsets.append(relative)
            self.positions.append(position)
            if not len(self.offsets) & 0x3FF:
                self._in_memory.admit(self, self._memory_bytes())

    def arrays(self) -> "tuple[array[int], array[int]]":
        """Offsets, relative to the segment's base, and positions; both rising."""
        self.used = True
        if self.offsets is None or self.positions is None:
            return self._load()
        return self.offsets, self.positions

    def _load(self) -> "tuple[array[int], array[int]]":
        words: array[int] = array(_WORD)
        content = self._content()
        words.frombytes(content[: len(content) - len(content) % OFFSET_ENTRY.size])
        if sys.byteorder == "little":
            words.byteswap()
        offsets, positions = words[0::2], words[1::2]
        self.offsets, self.positions = offsets, positions
        self._in_memory.admit(self, self._memory_bytes())
        return offsets, positions

    def floor(self, offset: int) -> int:
        """Where the last indexed batch begins that ends at or before `offset`; 0 if there is none."""
        offsets, positions = self.arrays()
        at = bisect_right(offsets, offset - self._base_offset)
        return positions[at - 1] if at else 0

    def truncate(self, position: int) -> None:
        """Forget batches that begin at `position` or later."""
        _, positions = self.arrays()
        keep = bisect_right(positions, position - 1) if position else 0
        self._cut(keep * OFFSET_ENTRY.size)
        self.evict()
        self._in_memory.forget(self)

    def is_sound(self, log_bytes: int) -> bool:
        """Whether the index can belong to a log of that size. Kafka, killed, leaves zeros behind its last entry."""
        if self._written_bytes % OFFSET_ENTRY.size:
            return False
        if not self.size:
            return True
        offsets, positions = self.arrays()
        return positions[0] > 0 and positions[-1] < log_bytes and offsets[-1] >= offsets[0]

    def last_position(self) -> int:
        """Where the last indexed batch begins; 0 without entries."""
        _, positions = self.arrays()
        return positions[-1] if positions else 0

    def reset(self) -> None:
        self._cut(0)
        self.evict()
        self._in_memory.forget(self)

    def close(self) -> None:
        super().close()
        self.evict()
        self._in_memory.forget(self)

    def evict(self) -> None:
        self.offsets = self.positions = None

    def _memory_bytes(self) -> int:
        return 256 + 2 * self.size


class TimeIndex(_IndexFile):
    """(highest timestamp so far, last offset of the batch that holds it): both never fall."""

    __slots__ = ("_base_offset", "last_offset", "last_timestamp")

    def __init__(self, files: Files, path: str, base_offset: int, size: int | None) -> None:
        super().__init__(files, path, size)
        self._base_offset = base_offset
        self.last_timestamp = NO_TIMESTAMP
        self.last_offset = base_offset
        if size:
            self._note_last()

    def append(self, timestamp: int, offset: int) -> None:
        """No news, no entry."""
        if timestamp > self.last_timestamp:
            self._pending += TIME_ENTRY.pack(timestamp, offset - self._base_offset)
            self.last_timestamp = timestamp
            self.last_offset = offset

    def floor(self, timestamp: int) -> int:
        """Every record newer than `timestamp` lies at or after this offset."""
        low, high = 0, self.size // TIME_ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self._entry(low - 1)[1] if low else self._base_offset

    def truncate(self, offset: int) -> None:
        """Forget entries about records at `offset` or later."""
        keep = self.size // TIME_ENTRY.size
        while keep and self._entry(keep - 1)[1] >= offset:
            keep -= 1
        self._cut(keep * TIME_ENTRY.size)
        self._note_last()

    def is_sound(self, end_offset: int) -> bool:
        """Whether the index can belong to a segment that ends at `end_offset`. Zeros behind the last entry cannot."""
        count, remainder = divmod(self.size, TIME_ENTRY.size)
        if remainder or not count:
            return not remainder
        rises = count == 1 or self._entry(count - 2)[0] < self.last_timestamp
        return rises and self._base_offset <= self.last_offset < end_offset

    def reset(self) -> None:
        self._cut(0)
        self._note_last()

    def _entry(self, at: int) -> tuple[int, int]:
        position = at * TIME_ENTRY.size
        if position < self._written_bytes and self._file is not None:
            content: bytes | bytearray = self._file.read(position, TIME_ENTRY.size)
            position = 0
        else:
            content = self._pending
            position -= self._written_bytes
        timestamp, relative = TIME_ENTRY.unpack_from(content, position)
        return timestamp, self._base_offset + relative

    def _note_last(self) -> None:
        count = self.size // TIME_ENTRY.size
        self.last_timestamp, self.last_offset = self._entry(count - 1) if count else (NO_TIMESTAMP, self._base_offset)
