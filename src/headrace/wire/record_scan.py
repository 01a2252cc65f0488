"""A quick look over the records of a batch: where they end, their keys and offsets, and nothing else.

Compaction looks at every record of a log, and needs no values, timestamps or headers. A record that stays is copied as
the bytes it is.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from headrace.model import Buffer
from headrace.wire.batch import DECOMPRESSED_BYTES_MAX, HEADER_BYTES, BatchHeader
from headrace.wire.compression import Codec, decompress
from headrace.wire.errors import ProtocolError
from headrace.wire.records import long_varint, varint

KEY_BYTES_MAX = 16
"""A longer key goes by its hash, of 128 bits."""

_NULL = 1
"""The varint of -1."""


class Scanned(NamedTuple):
    """The records of a batch, column by column."""

    keys: list[bytes | None]
    """Short keys as they are, long ones as `key_id` has them; None where there is none."""
    deltas: list[int]
    """Offsets, counted from the batch's."""
    ends: list[int]
    """Where each record ends; the next one begins there, the first at 0."""
    tombstones: list[int]
    """Which records have no value, by their place in the other columns."""


def key_id(key: bytes) -> bytes:
    """Equal for equal keys, and never longer than 17 bytes. A hash has one byte more than any key that is not one."""
    return key if len(key) <= KEY_BYTES_MAX else b"#" + blake2b(key, digest_size=KEY_BYTES_MAX).digest()


def payload(batch: Buffer, header: BatchHeader, pos: int = 0) -> bytes:
    """The records of the batch at `pos`, decompressed."""
    packed = memoryview(batch)[pos + HEADER_BYTES : pos + header.size]
    codec = header.codec
    return bytes(packed) if codec is Codec.NONE else decompress(codec, packed, DECOMPRESSED_BYTES_MAX)


def scan(data: bytes, count: int) -> Scanned:  # noqa: C901  # a call costs as much as a record
    """The `count` records that fill `data` exactly, offsets rising. ProtocolError for anything else."""
    keys: list[bytes | None] = []
    deltas: list[int] = []
    ends: list[int] = []
    tombstones: list[int] = []
    add_key, add_delta, add_end = keys.append, deltas.append, ends.append
    pos = 0
    size = len(data)
    last_delta = -1
    try:
        for at in range(count):
            # Varints of one and two bytes are read in place.
            end = data[pos]
            if end < 128:
                end = pos + 1 + (end >> 1)
                pos += 2
            elif (second := data[pos + 1]) < 128:
                end = pos + 2 + (second << 6 | (end & 127) >> 1)
                pos += 3
            else:
                length, pos = long_varint(data, pos + 1)
                end = pos + length
                pos += 1
            while data[pos] > 127:  # the timestamp
                pos += 1
            delta = data[pos + 1]
            if delta < 128:
                delta >>= 1
                pos += 2
            elif (second := data[pos + 2]) < 128:
                delta = second << 6 | (delta & 127) >> 1
                pos += 3
            else:
                delta, pos = long_varint(data, pos + 2)
            length = data[pos]
            pos += 1
            if length == _NULL:
                add_key(None)
            elif length <= 2 * KEY_BYTES_MAX:
                length >>= 1
                add_key(data[pos : pos + length])
                pos += length
            else:
                length, pos = (length >> 1, pos) if length < 128 else long_varint(data, pos)
                add_key(key_id(data[pos : pos + length]))
                pos += length
            if data[pos] == _NULL:
                tombstones.append(at)
            if delta <= last_delta or pos >= end or end > size:
                raise ProtocolError(f"The record after offset delta {last_delta} is not well formed.")
            last_delta = delta
            add_delta(delta)
            add_end(end)
            pos = end
    except IndexError:
        raise ProtocolError("The records end within a record.") from None
    if pos != size:
        raise ProtocolError(f"{size - pos} bytes are left after {count} records.")
    return Scanned(keys, deltas, ends, tombstones)


def kept(data: bytes, scanned: Scanned, lost: Sequence[int]) -> bytes:
    """The records without the lost ones, which are given by their places, ascending."""
    ends = scanned.ends
    parts = []
    begin = 0
    for at in lost:
        parts.append(data[begin : ends[at - 1] if at else 0])
        begin = ends[at]
    parts.append(data[begin:])
    return b"".join(parts)


def newest_delta(data: bytes) -> int:
    """The highest timestamp, counted from the batch's, of records that a scan found to be well formed."""
    newest = -(1 << 63)
    pos = 0
    size = len(data)
    while pos < size:
        end = data[pos]
        if end < 128:
            end = pos + 1 + (end >> 1)
            pos += 2
        elif (second := data[pos + 1]) < 128:
            end = pos + 2 + (second << 6 | (end & 127) >> 1)
            pos += 3
        else:
            length, pos = long_varint(data, pos + 1)
            end = pos + length
            pos += 1
        delta = data[pos]
        delta = (delta >> 1) ^ -(delta & 1) if delta < 128 else long_varint(data, pos + 1)[0]
        if delta > newest:
            newest = delta
        pos = end
    return newest


def moved_in_time(data: bytes, shift_ms: int) -> bytes:
    """The same records behind a base timestamp that lies `shift_ms` earlier."""
    parts = []
    for begin, after, delta, end in _split(data):
        body = b"".join((data[begin : begin + 1], varint(delta + shift_ms), data[after:end]))
        parts.append(varint(len(body)))
        parts.append(body)
    return b"".join(parts)


def _split(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Of each record: where its attributes lie, where its timestamp ends, that timestamp, and where it ends itself."""
    pos = 0
    while pos < len(data):
        length, pos = _varint_at(data, pos)
        end = pos + length
        delta, after = _varint_at(data, pos + 1)
        yield pos, after, delta, end
        pos = end


def _varint_at(data: bytes, pos: int) -> tuple[int, int]:
    first = data[pos]
    return ((first >> 1) ^ -(first & 1), pos + 1) if first < 128 else long_varint(data, pos + 1)
