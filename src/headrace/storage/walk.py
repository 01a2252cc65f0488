"""From batch to batch through a file, reading headers and little else."""

from collections.abc import Iterator

from headrace.errors import CorruptLog
from headrace.storage.files import File
from headrace.wire.batch import HEADER_BYTES, SIZE_AHEAD_OF_LENGTH, SIZE_MIN, BatchHeader, read_header

CHUNK_BYTES = 4096
"""About the distance of two index entries: a walk between them is one read of many small batches, or of one header."""


def walk(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch in [position, end), which begins and ends between batches."""
    chunk = b""
    chunk_at = position
    while position < end:
        at = position - chunk_at
        if at + HEADER_BYTES > len(chunk):
            chunk = file.read(position, min(CHUNK_BYTES, end - position))
            chunk_at, at = position, 0
            if len(chunk) < HEADER_BYTES:
                raise CorruptLog(f"{file.path} ends inside a batch, at byte {position}.")
        header = read_header(chunk, at)
        size = header.batch_length + SIZE_AHEAD_OF_LENGTH
        if size < SIZE_MIN or position + size > end:
            raise CorruptLog(f"{file.path} has a batch of {size} bytes at byte {position}, and {end - position} left.")
        yield position, header
        position += size
