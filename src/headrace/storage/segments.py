"""The segments of a log, oldest first; the last one is appended to."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from headrace.model import Buffer
from headrace.storage.log_config import LogConfig
from headrace.storage.segment import SWAP_SUFFIX, Segment
from headrace.storage.shared import Shared
from headrace.storage.walk import walk
from headrace.wire.batch import BatchHeader


class Segments:
    __slots__ = ("_bases", "_directory", "_segments", "_shared", "active", "config")

    def __init__(self, shared: Shared, directory: str, config: LogConfig) -> None:
        self._shared = shared
        self._directory = directory
        self.config = config
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self.active: Segment | None = None

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, at: int) -> Segment:
        return self._segments[at]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def add(self, base_offset: int, *, size: int | None, end_offset: int, created_ms: int | None) -> Segment:
        """`size` is None for a new segment."""
        segment = Segment(
            self._shared.files,
            self._directory,
            base_offset,
            self.config,
            self._shared.indexes_in_memory,
            size=size,
            end_offset=end_offset,
            created_ms=created_ms,
        )
        self._segments.append(segment)
        self._bases.append(base_offset)
        self.active = segment
        return segment

    def index_of(self, offset: int) -> int:
        """The segment that holds `offset`, or ended before it; the first one for anything older."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def drop_first(self, count: int) -> None:
        """Oldest first, so that a crash leaves no hole."""
        for segment in self._segments[:count]:
            self._drop(segment)
        del self._segments[:count], self._bases[:count]
        if not self._segments:
            self.active = None

    def drop_from(self, at: int) -> None:
        """Newest first, for the same reason."""
        for segment in reversed(self._segments[at:]):
            self._drop(segment)
        del self._segments[at:], self._bases[at:]
        self.active = self._segments[-1] if self._segments else None

    def replace(self, base_offset: int, end_offset: int, size: int) -> Segment:
        """All from `base_offset` up to `end_offset` go; a segment whose files end in `.swap` is there instead."""
        replacement = Segment(
            self._shared.files,
            self._directory,
            base_offset,
            self.config,
            self._shared.indexes_in_memory,
            size=size,
            end_offset=end_offset,
            created_ms=None,
            ending=SWAP_SUFFIX,
        )
        first, end = bisect_left(self._bases, base_offset), bisect_left(self._bases, end_offset)
        assert self._bases[first] == base_offset and end < len(self._bases), "the active segment stays"
        replaced = self._segments[first:end]
        self._segments[first:end], self._bases[first:end] = [replacement], [base_offset]
        for segment in replaced:
            self._drop(segment)
        return replacement

    def _drop(self, segment: Segment) -> None:
        segment.close()
        self._shared.discard(segment.paths(), self.config.file_delete_delay_ms)

    def losing(self) -> None:
        """More is about to be cut off than a process death explains. Raises OSError if that cannot be noted down."""
        self._shared.before_loss()

    def sync_directory(self) -> None:
        self._shared.files.sync_directory(self._directory)

    def headers_from(self, offset: int) -> Iterator[tuple[Segment, BatchHeader]]:
        """Every batch that ends at `offset` or later."""
        return ((segment, header) for segment, _, header in self.batches_from(offset))

    def batches_from(self, offset: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
        """The same, with where in its segment each begins."""
        for segment in self._segments[self.index_of(offset) :]:
            found = segment.locate(offset)
            if found is not None:
                for position, header in walk(segment.log, found[0], segment.size):
                    yield segment, position, header

    def close(self) -> None:
        for segment in self._segments:
            segment.close()

    def read(self, offset: int, bytes_max: int, limit_offset: int, at_least_one: bool) -> Buffer:
        """From the segment that holds `offset`, or a later one: compaction leaves out offsets at the end of one."""
        for at in range(self.index_of(offset), len(self)):
            segment = self[at]
            if segment.base_offset >= limit_offset:
                break
            found = segment.read(offset, bytes_max, limit_offset, at_least_one)
            if found or not at_least_one:
                return found
        return b""
