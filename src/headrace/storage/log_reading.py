"""What a log answers without changing anything: where it begins and ends, and the records between."""

from headrace.core.producers import AbortedTransaction
from headrace.model import Buffer
from headrace.storage import aborts, producer_state, times
from headrace.storage.segment import Segment
from headrace.storage.segments import Segments
from headrace.storage.shared import Shared
from headrace.storage.times import Found


class ReadableLog:
    """See `storage.log.Log`, which is the only one."""

    __slots__ = ("_exists", "directory", "log_end_offset", "log_start_offset", "segments", "shared")

    _exists: bool
    directory: str
    log_end_offset: int
    log_start_offset: int
    """Of the whole log: what of it is in the tier included."""
    segments: Segments
    shared: Shared

    @property
    def is_tiered(self) -> bool:
        return self.segments.config.is_tiered

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def exists(self) -> bool:
        """Whether there is a directory: not before the first append."""
        return self._exists

    @property
    def local_log_start_offset(self) -> int:
        """Where the log begins on this disk: later than it does where the tier has the rest."""
        return max(self.log_start_offset, self.segments[0].base_offset if len(self.segments) else self.log_end_offset)

    @property
    def starts_inside(self) -> bool:
        """Whether the names of the files do not tell the log start."""
        return self.log_start_offset != (self.segments[0].base_offset if len(self.segments) else 0)

    def read(self, offset: int, bytes_max: int, limit_offset: int, at_least_one: bool) -> Buffer:
        """Whole batches from the one that holds `offset`, none that begins at or after `limit_offset`.

        At most `bytes_max` bytes, except for a first batch that is longer and asked for with `at_least_one`.
        """
        if offset >= limit_offset or offset >= self.log_end_offset:
            return b""
        segment = self.segments.active
        assert segment is not None
        if offset >= segment.base_offset:
            return segment.read(offset, bytes_max, limit_offset, at_least_one)
        return self.segments.read(offset, bytes_max, limit_offset, at_least_one)

    def readable_bytes(self, offset: int, limit_offset: int) -> int | None:
        """About how many bytes a read would find; None if `offset` lies in an older segment than the limit."""
        segment = self.segments.active
        if segment is None or offset >= limit_offset:
            return 0
        if limit_offset <= segment.base_offset:
            segment = self.segments[self.segments.index_of(limit_offset - 1)]
        return None if offset < segment.base_offset else segment.bytes_between(offset, limit_offset)

    def aborted_in(self, offset: int, records: Buffer) -> list[AbortedTransaction]:
        """What a reader of these records, which it got from `offset` on, must leave out."""
        return aborts.overlapping(self.segments, offset, records, self._reindex)

    def aborted_across_local_start(self) -> list[AbortedTransaction]:
        """What a reader of the part that is in the tier alone must leave out, and the tier does not tell: transactions
        that began there, and whose markers are here."""
        if not len(self.segments):
            return []
        return aborts.across(self.segments, self.local_log_start_offset, self._reindex)

    def _reindex(self, segment: Segment) -> None:
        """Somebody has spoilt the index of aborted transactions: anew from the batches."""
        files = self.shared.files
        offsets = producer_state.snapshot_offsets(files.names(self.directory))
        end_offset = min(segment.end_offset, self.log_end_offset)
        producer_state.load(files, self.directory, offsets, self.segments, end_offset, reindex=[segment])

    def find_time(self, timestamp: int, limit_offset: int) -> Found | None:
        """The first record at or after `timestamp`: its time, offset and leader epoch."""
        return times.first_at_or_after(self.segments, timestamp, self.log_start_offset, limit_offset)

    def max_timestamp(self, limit_offset: int) -> Found | None:
        """The newest record by time; the first of them if there are several."""
        return times.newest(self.segments, self.log_start_offset, limit_offset)
