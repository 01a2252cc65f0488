"""One segment of a log: a file of batches and its two indexes.

A read is one lookup and one pread. It is cut between batches without walking over all of them: the last index entry
inside what was read is where the walk begins.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress

from headrace.errors import CorruptLog
from headrace.model import Buffer
from headrace.storage.files import File, Files
from headrace.storage.index import NO_TIMESTAMP, OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from headrace.storage.log_config import LogConfig
from headrace.storage.residency import Residency
from headrace.storage.txn_index import TransactionIndex
from headrace.storage.walk import walk
from headrace.wire.batch import HEADER_BYTES, MAGIC, SIZE_AHEAD_OF_LENGTH, SIZE_MIN, BatchHeader, read_header

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
BESIDE_SUFFIXES = SUFFIXES[1:]
CLEANED_SUFFIX, SWAP_SUFFIX = ".cleaned", ".swap"
"""Behind the names of a segment that compaction makes, and of one that is made and replaces others."""

RELATIVE_OFFSET_MAX = 2**31 - 1
CURSORS_MAX = 32
UNWRITTEN_ENTRIES_MAX = 512
ENTRIES_MAX = RELATIVE_OFFSET_MAX

_PLACE_IN_LOG = struct.Struct(">qi11xi")  # base offset, length, last offset delta


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def offsets_of(names: Iterable[str], suffix: str) -> list[int]:
    """Of the files with that suffix that are named as `file_name` names them, ascending; others are nobody's."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isascii() and stem.isdigit())


class Segment:
    __slots__ = (
        "_appended_at",
        "_appended_offset",
        "_bytes_since_entry",
        "_cursors",
        "_files",
        "_first_timestamp",
        "_in_memory",
        "_index_bytes_max",
        "_index_interval_bytes",
        "_offset_index",
        "_stem",
        "_time_index",
        "_txn_index",
        "_unnamed",
        "_unwritten_entries",
        "base_offset",
        "created_ms",
        "end_offset",
        "entries_left",
        "log",
        "max_timestamp",
        "max_timestamp_offset",
        "size",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        config: LogConfig,
        indexes_in_memory: Residency,
        *,
        size: int | None,
        end_offset: int,
        created_ms: int | None,
        ending: str = "",
    ) -> None:
        """`size` is that of the log file; None makes a new one. `ending` is behind the names of all files for now."""
        self._files = files
        self._stem = f"{directory}/{base_offset:020d}"
        self._unnamed = dict.fromkeys(SUFFIXES if ending else (), ending)
        self._index_interval_bytes = config.index_interval_bytes
        self._index_bytes_max = config.index_bytes_max
        self._in_memory = indexes_in_memory
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.created_ms = created_ms
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self._first_timestamp: int | None = None
        self._bytes_since_entry = 0
        self._unwritten_entries = 0
        self.entries_left = ENTRIES_MAX
        """How many more batches can be indexed; a bound while the indexes are not open."""
        # Where the batch begins that holds an offset at which somebody will most likely read next.
        self._cursors: dict[int, int] | None = None
        self._appended_offset = self._appended_at = -1
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TransactionIndex | None = None
        path = self.path_of(LOG_SUFFIX)
        if size is None:
            self.log: File = files.create(path)
            self.size = 0
            self._new_indexes()
        else:
            self.log = files.open(path)
            self.size = size

    def paths(self) -> list[str]:
        """Every file that belongs to the segment and is there."""
        return [path for suffix in SUFFIXES if self._files.exists(path := self.path_of(suffix))]

    def path_of(self, suffix: str) -> str:
        return self._stem + suffix + self._unnamed.get(suffix, "")

    def give_name(self, suffix: str) -> None:
        """The file loses the ending of its name."""
        path, named = self.path_of(suffix), self._stem + suffix
        del self._unnamed[suffix]
        if self._files.exists(path):
            self._files.rename(path, named)
        handles = dict(zip(SUFFIXES, (self.log, self._offset_index, self._time_index, self._txn_index), strict=True))
        handle = handles[suffix]
        if handle is not None:
            handle.moved(named)

    def drop_empty_aborted(self) -> None:
        """No file is kept for nothing."""
        aborted, path = self.aborted, self.path_of(TXN_INDEX_SUFFIX)
        if not aborted.size and aborted.file is not None:
            aborted.close()
            self._txn_index = None
            self._files.remove(path)

    # Appending

    def append(self, batches: Sequence[tuple[Buffer, BatchHeader]]) -> None:
        """One write. Either all of it counts, or none."""
        if self._offset_index is None:
            self.open_indexes()
        position = self.size
        try:
            self.log.write(position, [buffer for buffer, _ in batches])
        except OSError:
            # What was half written must not come to light between later batches.
            with suppress(OSError):
                self.log.truncate(position)
            raise
        self._appended_offset = batches[0][1].base_offset
        self._appended_at = position
        self.size = self.note(position, batches)
        last = batches[-1][1]
        self.end_offset = last.base_offset + last.last_offset_delta + 1

    def note(self, position: int, batches: Iterable[tuple[object, BatchHeader]]) -> int:
        """Indexes the batches from `position` on, which are the last ones; returns where they end."""
        if not position:
            self._first_timestamp = None
        for _, header in batches:
            # A batch that compaction emptied has a time, and no record of it.
            if header.max_timestamp > self.max_timestamp and header.record_count:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.base_offset + header.last_offset_delta
            if self._first_timestamp is None and not position:
                self._first_timestamp = header.max_timestamp
            if self._bytes_since_entry > self._index_interval_bytes:
                self._index(header.base_offset + header.last_offset_delta, position)
            size = header.batch_length + SIZE_AHEAD_OF_LENGTH
            self._bytes_since_entry += size
            position += size
        return position

    def _index(self, last_offset: int, position: int) -> None:
        assert self._offset_index is not None and self._time_index is not None
        self._offset_index.append(last_offset, position)
        self._time_index.append(self.max_timestamp, self.max_timestamp_offset)
        self._bytes_since_entry = 0
        self._unwritten_entries += 1
        self.entries_left -= 1

    @property
    def has_many_unwritten_entries(self) -> bool:
        return self._unwritten_entries >= UNWRITTEN_ENTRIES_MAX

    def write_indexes(self) -> list[File]:
        self._unwritten_entries = 0
        offset_index, time_index = self.open_indexes()
        return [offset_index.write_pending(), time_index.write_pending()]

    def complete(self) -> list[File]:
        """Nothing more is expected: the time index gets its last entry, and every entry is in its file."""
        _, time_index = self.open_indexes()
        time_index.append(self.max_timestamp, self.max_timestamp_offset)
        written = [self.log, *self.write_indexes()]
        return written if self._txn_index is None or self._txn_index.file is None else [*written, self._txn_index.file]

    def first_timestamp(self) -> int:
        """Age is counted from here, in record time."""
        if self._first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            self._first_timestamp = self._header_at(0).max_timestamp
        return self._first_timestamp

    def began_ms(self) -> int:
        """When it was begun, by the wall clock; after a restart, as far as that can be known."""
        if self.created_ms is None:
            first_timestamp = self.first_timestamp()
            self.created_ms = first_timestamp if first_timestamp >= 0 else self.modified_ms()
        return self.created_ms

    def largest_timestamp(self) -> int:
        """The highest record timestamp, -1 if there is none."""
        self.open_indexes()
        return self.max_timestamp

    def newest_ms(self) -> int:
        """How old the segment is counts from here."""
        largest_timestamp = self.largest_timestamp()
        return largest_timestamp if largest_timestamp >= 0 else self.modified_ms()

    def modified_ms(self) -> int:
        return self._files.modified_ms(self.log.path)

    # Indexes

    def open_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        if self._offset_index is not None and self._time_index is not None:
            return self._offset_index, self._time_index
        offset_path, time_path = self.path_of(INDEX_SUFFIX), self.path_of(TIME_INDEX_SUFFIX)
        try:
            offset_size, time_size = self._files.size(offset_path), self._files.size(time_path)
        except FileNotFoundError:
            return self.rebuild_indexes()
        offset_index = OffsetIndex(self._files, offset_path, self.base_offset, offset_size, self._in_memory)
        time_index = TimeIndex(self._files, time_path, self.base_offset, time_size)
        self._offset_index, self._time_index = offset_index, time_index
        self._count_entries_left()
        if not (offset_index.is_sound(self.size) and time_index.is_sound(max(self.end_offset, self.base_offset + 1))):
            return self.rebuild_indexes()
        self.max_timestamp, self.max_timestamp_offset = time_index.last_timestamp, time_index.last_offset
        return offset_index, time_index

    @property
    def aborted(self) -> TransactionIndex:
        """The aborted transactions whose markers lie here."""
        if self._txn_index is None:
            self._txn_index = TransactionIndex(self._files, self.path_of(TXN_INDEX_SUFFIX), self._in_memory)
        return self._txn_index

    def rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """From the headers of the log."""
        indexes = self.reset_indexes()
        for position, header in walk(self.log, 0, self.size):
            self.note(position, ((None, header),))
        self.complete()
        return indexes

    def reset_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """As if nothing had been appended; the files are written anew."""
        self._close_indexes()
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._first_timestamp = None
        self._bytes_since_entry = 0
        return self._new_indexes()

    def _new_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        offset_path, time_path = self.path_of(INDEX_SUFFIX), self.path_of(TIME_INDEX_SUFFIX)
        self._offset_index = OffsetIndex(self._files, offset_path, self.base_offset, None, self._in_memory)
        self._time_index = TimeIndex(self._files, time_path, self.base_offset, None)
        self._count_entries_left()
        return self._offset_index, self._time_index

    def _count_entries_left(self) -> None:
        assert self._offset_index is not None and self._time_index is not None
        self.entries_left = min(
            (self._index_bytes_max - self._offset_index.size) // OFFSET_ENTRY.size,
            # One place is kept for the entry that completes the index.
            (self._index_bytes_max - self._time_index.size) // TIME_ENTRY.size - 1,
        )

    # Reading

    def read(self, offset: int, bytes_max: int, limit_offset: int, at_least_one: bool) -> Buffer:
        """Whole batches from the one that holds `offset`, none that begins at or after `limit_offset`."""
        position = self._position_of(offset)
        if position < 0:
            found = self.locate(offset)
            if found is None:
                return b""
            position = found[0]
        end = min(position + bytes_max, self._limit_position(limit_offset))
        if end > position:
            data = self.log.read(position, end - position)
            cut, next_offset = self._whole_batches(data, position, limit_offset)
            if cut:
                self._remember(next_offset, position + cut)
                return data if cut == len(data) else memoryview(data)[:cut]
        return self._one_batch(position, limit_offset) if at_least_one else b""

    def _one_batch(self, position: int, limit_offset: int) -> bytes:
        if position >= self.size:
            return b""
        header = self._header_at(position)
        if header.base_offset >= limit_offset:
            return b""
        self._remember(header.last_offset + 1, position + header.size)
        return self.log.read(position, header.size)

    def _whole_batches(self, data: bytes, position: int, limit_offset: int) -> tuple[int, int]:
        """How many bytes of `data`, read at `position`, are whole batches below the limit, and the offset after."""
        end = position + len(data)
        if end == self.size and limit_offset >= self.end_offset:
            return len(data), self.end_offset
        offsets, positions = self.open_indexes()[0].arrays()
        readable_at = bisect_right(positions, end - _PLACE_IN_LOG.size)
        at = min(readable_at, bisect_left(offsets, limit_offset - self.base_offset)) - 1
        cut = max(positions[at] - position, 0) if at >= 0 else 0
        next_offset = -1
        while cut + _PLACE_IN_LOG.size <= len(data):
            next_offset, length, last_offset_delta = _PLACE_IN_LOG.unpack_from(data, cut)
            size = length + SIZE_AHEAD_OF_LENGTH
            if size < SIZE_MIN:
                raise CorruptLog(f"{self.log.path} has a batch of {size} bytes at byte {position + cut}.")
            if next_offset >= limit_offset or cut + size > len(data):
                break
            cut += size
            next_offset += last_offset_delta + 1
        return cut, next_offset

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The batch that holds `offset`, or the first one after it."""
        floor = self.open_indexes()[0].floor(offset)
        if floor and not self._begins_batch(floor, offset):
            floor = self.rebuild_indexes()[0].floor(offset)
        for position, header in walk(self.log, floor, self.size):
            if header.base_offset + header.last_offset_delta >= offset:
                return position, header
        return None

    def _begins_batch(self, position: int, offset: int) -> bool:
        """Guards against an index that does not belong to this log."""
        header = self._header_at(position)
        return header.magic == MAGIC and self.base_offset <= header.base_offset <= offset

    def _header_at(self, position: int) -> BatchHeader:
        raw = self.log.read(position, HEADER_BYTES)
        if len(raw) < HEADER_BYTES:
            raise CorruptLog(f"{self.log.path} ends inside a batch, at byte {position}.")
        return read_header(raw)

    def _position_of(self, offset: int) -> int:
        """Where the batch begins that holds `offset`, if somebody was there lately; else -1."""
        if offset == self._appended_offset:
            return self._appended_at
        return -1 if self._cursors is None else self._cursors.get(offset, -1)

    def _remember(self, offset: int, position: int) -> None:
        cursors = self._cursors
        if cursors is None:
            cursors = self._cursors = {}
        elif len(cursors) >= CURSORS_MAX:
            cursors.clear()
        if offset >= 0:
            cursors[offset] = position

    def _limit_position(self, limit_offset: int) -> int:
        """No batch that begins below `limit_offset` reaches beyond this; with an indexed batch between, not exact."""
        if limit_offset >= self.end_offset:
            return self.size
        offsets, positions = self.open_indexes()[0].arrays()
        # The first indexed batch that ends at or after the limit may hold it; the next one cannot.
        after = bisect_left(offsets, limit_offset - self.base_offset) + 1
        return positions[after] if after < len(positions) else self.size

    def bytes_between(self, offset: int, limit_offset: int) -> int:
        """About how many bytes lie between: exact at offsets where somebody reads, else up to an index interval off."""
        if offset >= self.end_offset:
            return 0
        start = self._position_of(offset)
        if start < 0:
            start = self.open_indexes()[0].floor(offset)
        end = self._position_of(limit_offset)
        if end < 0:
            end = self._limit_position(limit_offset)
        return max(end - start, 0)

    # Cutting and closing

    def cut(self, position: int, end_offset: int) -> None:
        """What lies behind `position` was never indexed, and goes."""
        self.log.truncate(position)
        self.size = position
        self.end_offset = end_offset

    def find_end(self) -> int:
        """The offset after the last batch, as the file has it."""
        self.end_offset = self.base_offset + RELATIVE_OFFSET_MAX
        end_offset = self.base_offset
        for _, header in walk(self.log, self.open_indexes()[0].last_position(), self.size):
            end_offset = header.last_offset + 1
        self.end_offset = end_offset
        return end_offset

    def truncate_to(self, offset: int) -> int:
        """Cuts off the batch that holds `offset` and all after it; returns the offset at which the segment ends."""
        found = self.locate(offset)
        if found is None:
            return self.find_end()
        position, header = found
        offset_index, time_index = self.open_indexes()
        offset_index.truncate(position)
        time_index.truncate(header.base_offset)
        self.aborted.truncate(header.base_offset)
        self.log.truncate(position)
        self.size = position
        self._cursors = None
        self._appended_offset = self._appended_at = -1
        self._bytes_since_entry = 0
        self.max_timestamp, self.max_timestamp_offset = time_index.last_timestamp, time_index.last_offset
        # Where compaction left offsets out, the segment ends with the last batch: a restart would find no other end.
        self.end_offset = self.base_offset
        for _, kept in walk(self.log, offset_index.last_position(), position):
            self.end_offset = kept.last_offset + 1
            if kept.max_timestamp > self.max_timestamp and kept.record_count:
                self.max_timestamp, self.max_timestamp_offset = kept.max_timestamp, kept.last_offset
        if not position:
            self._first_timestamp = None
        return self.end_offset

    def close(self) -> None:
        self.log.close()
        self._close_indexes()
        if self._txn_index is not None:
            self._txn_index.close()
            self._txn_index = None

    def _close_indexes(self) -> None:
        if self._offset_index is not None:
            self._offset_index.close()
        if self._time_index is not None:
            self._time_index.close()
        self._offset_index = self._time_index = None
