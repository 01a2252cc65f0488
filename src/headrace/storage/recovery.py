"""After a process or a machine died: what of a log can be trusted, and the indexes anew.

Everything from the recovery point on is read and checked. Whole valid batches stay; the first one that is not valid,
and everything behind it, was never promised to anybody who asked for durability, and is cut off. The same below the
recovery point is corruption, and is left as it is for somebody to look at.
"""

from collections.abc import Callable
from dataclasses import dataclass

from headrace.core.epochs import EpochList
from headrace.errors import CorruptLog
from headrace.storage.files import File
from headrace.storage.segment import RELATIVE_OFFSET_MAX, Segment
from headrace.storage.segments import Segments
from headrace.wire.batch import (
    HEADER_BYTES,
    MAGIC,
    SIZE_AHEAD_OF_LENGTH,
    SIZE_MIN,
    BatchHeader,
    crc_of,
    read_header,
)

CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class Recovery:
    """What was found and done."""

    end_offset: int
    bytes_scanned: int = 0
    bytes_cut: int = 0
    segments_dropped: int = 0
    reason: str | None = None
    """Why something was cut, as one clause."""
    is_torn_tail: bool = False
    """Nothing but an incomplete last batch was cut, as a process death leaves it."""


def recover(segments: Segments, recovery_point: int, epochs: EpochList) -> Recovery:
    """Scans from the recovery point on, cuts, and rebuilds indexes and, in memory, the epoch list."""
    first = segments.index_of(recovery_point)
    expected = segments[first].base_offset
    result = Recovery(end_offset=expected)
    epochs.truncate_from_end(expected)
    for at in range(first, len(segments)):
        segment = segments[at]
        if segment.base_offset > expected >= recovery_point and at > first and not _is_far(segments, at):
            result.reason = f"offsets {expected} to {segment.base_offset - 1} are missing"
            segments.losing()
            _drop_from(segments, at, result, recovery_point)
            return result
        scan = _Scan(segment, max(expected, segment.base_offset), _last_offset_max(segments, at), epochs)
        scan.run()
        result.bytes_scanned += scan.position
        result.end_offset = expected = scan.expected
        if scan.reason is not None:
            result.reason = scan.reason
            _require_above(recovery_point, scan.expected, f"{segment.log.path}, byte {scan.position}: {scan.reason}")
            result.is_torn_tail = scan.is_torn and at + 1 == len(segments)
            if not result.is_torn_tail:
                segments.losing()
            result.bytes_cut += segment.size - scan.position
            segment.cut(scan.position, scan.expected)
            _drop_from(segments, at + 1, result, recovery_point)
            return result
        segment.end_offset = expected
        if at + 1 < len(segments):
            segment.complete()
    _require_above(recovery_point, expected, f"{segments[-1].log.path} ends at offset {expected}")
    return result


def _is_far(segments: Segments, at: int) -> bool:
    """Whether the segment begins where the one before could not have ended: between them offsets were left out."""
    return segments[at].base_offset - segments[at - 1].base_offset > RELATIVE_OFFSET_MAX // 2


def _last_offset_max(segments: Segments, at: int) -> int:
    """The highest offset that has a place in the segment."""
    next_offset = segments[at + 1].base_offset if at + 1 < len(segments) else 2**63 - 1
    return min(next_offset - 1, segments[at].base_offset + RELATIVE_OFFSET_MAX)


def _require_above(recovery_point: int, offset: int, found: str) -> None:
    if offset < recovery_point:
        raise CorruptLog(f"{found}, although everything below offset {recovery_point} was on the disk.")


def _drop_from(segments: Segments, at: int, result: Recovery, recovery_point: int) -> None:
    """The log ends with the segment before `at`."""
    _require_above(recovery_point, result.end_offset, f"{segments[at - 1].log.path}: {result.reason}")
    doomed = list(segments)[at:]
    result.bytes_cut += sum(segment.size for segment in doomed)
    result.segments_dropped = len(doomed)
    segments.drop_from(at)
    # For good: what was cut must not come back behind records that are appended now.
    segments[at - 1].log.sync()
    segments.sync_directory()


class _Scan:
    """One segment, batch by batch, until its end or the first batch that is not valid."""

    def __init__(self, segment: Segment, expected: int, last_offset_max: int, epochs: EpochList) -> None:
        self.segment = segment
        self.expected = expected
        self.last_offset_max = last_offset_max
        self.epochs = epochs
        self.position = 0
        self.reason: str | None = None
        self.is_torn = False

    def run(self) -> None:
        self.segment.reset_indexes()
        self.position = scan_batches(self.segment.log, self.segment.size, self._take)
        left = self.segment.size - self.position
        if left and self.reason is None:
            self.reason = "a batch is incomplete"
            self.is_torn = left < HEADER_BYTES or self._is_next(self.segment.log.read(self.position, HEADER_BYTES))

    def _is_next(self, raw: bytes) -> bool:
        header = read_header(raw)
        return header.magic == MAGIC and header.base_offset == self.expected and header.size >= SIZE_MIN

    def _take(self, position: int, header: BatchHeader, crc: int) -> bool:
        self.reason = self._fault(header, crc)
        if self.reason is not None:
            return False
        self.segment.note(position, ((None, header),))
        self.expected = header.last_offset + 1
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        return True

    def _fault(self, header: BatchHeader, crc: int) -> str | None:
        if header.magic != MAGIC:
            return f"a batch has magic {header.magic}"
        if crc != header.crc:
            return "a batch fails its checksum"
        if header.base_offset < self.expected or header.last_offset_delta < 0:
            return f"a batch says offset {header.base_offset} where {self.expected} is due"
        if header.last_offset > self.last_offset_max:
            # Offsets may be missing, but the checksum does not cover them.
            return f"a batch says offset {header.base_offset}, which its segment cannot hold"
        if header.leader_epoch < self.epochs.latest:
            return f"leader epoch {header.leader_epoch} follows {self.epochs.latest}"
        return None


def scan_batches(file: File, end: int, take: Callable[[int, BatchHeader, int], bool]) -> int:
    """Hands every whole batch to `take` with the checksum it really has, until it says no. Returns where it stopped."""
    position = 0
    chunk = b""
    chunk_at = 0
    while position + HEADER_BYTES <= end:
        at = position - chunk_at
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_at, at = file.read(position, min(CHUNK_BYTES, end - position)), position, 0
            if len(chunk) < HEADER_BYTES:
                break
        header = read_header(chunk, at)
        size = header.batch_length + SIZE_AHEAD_OF_LENGTH
        if size < SIZE_MIN or position + size > end:
            break
        if at + size > len(chunk):
            chunk, chunk_at, at = file.read(position, max(size, min(CHUNK_BYTES, end - position))), position, 0
            if len(chunk) < size:
                break
        if not take(position, header, crc_of(chunk, at, size)):
            break
        position += size
    return position
