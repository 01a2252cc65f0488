"""Keys and values of a batch, and nothing else of its records: for a node that reads back what it wrote.

A million of them are read while clients wait, so that this does as little as it can for each.
"""

from headrace.model import Buffer
from headrace.wire.batch import (
    CODEC_BITS,
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    SIZE_AHEAD_OF_LENGTH,
    BatchHeader,
    crc_of,
)
from headrace.wire.compression import decompress
from headrace.wire.errors import ProtocolError

Pair = tuple[bytes | None, bytes | None]


def read_pairs(batch: Buffer, pos: int, header: BatchHeader) -> list[Pair]:
    """Of the batch at `pos`, whose header was read. ProtocolError for anything that is not a valid batch."""
    size = header.batch_length + SIZE_AHEAD_OF_LENGTH
    if crc_of(batch, pos, size) != header.crc:
        raise ProtocolError(f"The record batch at offset {header.base_offset} fails its checksum.")
    data = bytes(batch[pos + HEADER_BYTES : pos + size])
    if header.attributes & CODEC_BITS and header.record_count:
        data = decompress(header.codec, data, DECOMPRESSED_BYTES_MAX)
    try:
        return _pairs(data, header.record_count)
    except IndexError:
        raise ProtocolError("The records end within a record.") from None


def _pairs(data: bytes, count: int) -> list[Pair]:
    pairs: list[Pair] = []
    pos = 0
    for _ in range(count):
        # Nearly all varints have one byte: hence the repeated tests instead of calls.
        length = data[pos]
        pos += 1
        if length > 127:
            length, pos = _more(data, pos, length)
        end = pos + (length >> 1)
        pos += 1  # attributes
        while data[pos] > 127:  # the time
            pos += 1
        pos += 1
        while data[pos] > 127:  # the offset
            pos += 1
        pos += 1
        length = data[pos]
        pos += 1
        if length > 127:
            length, pos = _more(data, pos, length)
        key: bytes | None = None
        if not length & 1:
            key = data[pos : pos + (length >> 1)]
            pos += length >> 1
        length = data[pos]
        pos += 1
        if length > 127:
            length, pos = _more(data, pos, length)
        if length & 1:
            pairs.append((key, None))
        else:
            pairs.append((key, data[pos : pos + (length >> 1)]))
            pos += length >> 1
        if pos >= end:
            raise ProtocolError("A record is shorter than what it holds.")
        pos = end  # behind its headers
    if pos != len(data):
        raise ProtocolError(f"{len(data) - pos} bytes are left after {count} records.")
    return pairs


def _more(data: bytes, pos: int, first: int) -> tuple[int, int]:
    value, shift = first & 127, 7
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, pos
        shift += 7
        if shift > 63:
            raise ProtocolError("A varint has more than 10 bytes.")
