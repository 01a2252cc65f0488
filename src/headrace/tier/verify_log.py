"""The batches of a remote segment, looked at as they come: whole, unharmed, in order, and as the manifest says."""

from headrace.core.tier_rows import SegmentRow
from headrace.wire.batch import HEADER_BYTES, MAGIC, SIZE_MIN, BatchHeader, crc_of, read_header


class LogCheck:
    """Fed the log in pieces of any size. It keeps one batch at most, and its problems."""

    def __init__(self, row: SegmentRow, indexed: dict[int, int]) -> None:
        """`indexed` says which batches the offset index names: position, and last offset of the batch there."""
        self.problems: list[str] = []
        self._row = row
        self._indexed = indexed
        self._rest = bytearray()
        self._position = 0
        self._next_offset = row.base_offset
        self._epochs: list[tuple[int, int]] = []
        self._max_timestamp_ms = -1
        self._lost = False

    def feed(self, chunk: bytes) -> None:
        self._rest += chunk
        at = 0
        while not self._lost and len(self._rest) - at >= HEADER_BYTES:
            header = read_header(self._rest, at)
            if header.size < SIZE_MIN or header.magic != MAGIC:
                self._lost = True
                self._note("is no record batch")
                break
            if len(self._rest) - at < header.size:
                break
            self._look_at(at, header)
            at += header.size
            self._position += header.size
        if self._lost:
            at = len(self._rest)
        del self._rest[:at]

    def _look_at(self, at: int, header: BatchHeader) -> None:
        if crc_of(self._rest, at, header.size) != header.crc:
            self._note("fails its checksum")
        if header.base_offset < self._next_offset or not header.base_offset <= header.last_offset:
            self._note(f"has offset {header.base_offset}, at least {self._next_offset} was expected")
        if header.last_offset > self._row.end_offset:
            self._note(f"ends at offset {header.last_offset}, beyond the segment's {self._row.end_offset}")
        self._next_offset = max(self._next_offset, header.last_offset + 1)
        if not self._epochs or self._epochs[-1][0] != header.leader_epoch:
            self._epochs.append((header.leader_epoch, header.base_offset))
        self._max_timestamp_ms = max(self._max_timestamp_ms, header.max_timestamp)
        indexed = self._indexed.pop(self._position, None)
        if indexed is not None and indexed != header.last_offset:
            self._note(f"ends at offset {header.last_offset}, its index says {indexed}")

    def finish(self) -> None:
        if self._lost:
            return
        if self._rest:
            self._note("is cut off")
        if self._indexed:
            self.problems.append(f"The offset index names {len(self._indexed)} positions at which no batch begins.")
        if self._max_timestamp_ms > self._row.max_timestamp_ms:
            known = self._row.max_timestamp_ms
            self.problems.append(f"The log goes up to timestamp {self._max_timestamp_ms}, the manifest says {known}.")
        if any(self._epoch_at(offset) != epoch for epoch, offset in self._epochs):
            self.problems.append(f"The log has leader epochs {self._epochs}, the manifest says {self._row.epochs}.")

    def _epoch_at(self, offset: int) -> int:
        return max((epoch for epoch, start in self._row.epochs if start <= offset), default=-1)

    def _note(self, what: str) -> None:
        self.problems.append(f"The batch at byte {self._position} of the log {what}.")
