"""Which batches of a leader's answer a follower may append: judged by header and checksum, never decoded or copied."""

from typing import NamedTuple

from headrace.model import Buffer
from headrace.wire.batch import HEADER, HEADER_BYTES, MAGIC, SIZE_AHEAD_OF_LENGTH, SIZE_MIN, BatchHeader, crc_of


class OffsetMismatch(Exception):
    """The records are not those that were asked for: asking again would bring them again."""


class Taken(NamedTuple):
    """Batches that follow the log, each a slice of the answer, up to the first that does not."""

    batches: list[tuple[Buffer, BatchHeader]]
    fault: str | None
    """What is wrong with the one after them; it may come right by itself."""


def take(records: Buffer, log_end: int, latest_epoch: int, leader_epoch: int, *, is_empty: bool) -> Taken:
    """`leader_epoch` is the one that was fetched with, `latest_epoch` the last one of the log.

    An empty log takes a first batch that began before it: the leader's log may start inside a batch. A batch may begin
    after the log's end, where compaction left offsets out. What is cut off at the end of the answer comes again.
    """
    view = memoryview(records)
    batches: list[tuple[Buffer, BatchHeader]] = []
    at, end = 0, len(view)
    while at + HEADER_BYTES <= end:
        header: BatchHeader = tuple.__new__(BatchHeader, HEADER.unpack_from(view, at))
        base_offset, length, epoch, magic, crc, _, last_delta, _, _, _, _, _, _ = header
        size = length + SIZE_AHEAD_OF_LENGTH
        if magic != MAGIC or size < SIZE_MIN or last_delta < 0:
            return Taken(batches, f"the batch after offset {log_end - 1} has magic {magic} and {size} bytes")
        if at + size > end:
            break
        if crc_of(view, at, size) != crc:
            return Taken(batches, f"the batch at offset {base_offset} fails its checksum")
        if base_offset < log_end:
            mismatch = f"offset {base_offset} came where {log_end} is due"
            if batches:
                return Taken(batches, mismatch)
            if not is_empty or base_offset + last_delta < log_end:
                raise OffsetMismatch(mismatch)
        if not latest_epoch <= epoch <= leader_epoch:
            epochs = f"leader epoch {epoch} after {latest_epoch}, fetched in {leader_epoch}"
            return Taken(batches, f"the batch at offset {base_offset} is of {epochs}")
        latest_epoch = epoch
        log_end = base_offset + last_delta + 1
        batches.append((view[at : at + size], header))
        at += size
    if not batches and end:
        return Taken(batches, f"{end} bytes of the batch at offset {log_end} are less than the whole")
    return Taken(batches, None)
