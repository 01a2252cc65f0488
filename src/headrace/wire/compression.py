"""The four compressions of record batches, as every client reads and writes them."""

import struct
from enum import IntEnum

import cramjam

from headrace.model import Buffer
from headrace.wire.errors import ProtocolError


class Codec(IntEnum):
    """Numbers are the low three attribute bits of a batch, names are those of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# Java knows snappy only in blocks behind this header (a magic, then version and oldest compatible version);
# librdkafka writes one bare block and reads both.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")

_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
_LZ4_LEVEL = 0
"""The fast way: the library's own choice can take ten times as long, for half a percent less."""

# The length of the output is not known before. A first guess eight times the input suits most data;
# if it was too small, the work done in vain is at most a seventh of the whole.
_GROWTH = 8
_FIRST_GUESS_BYTES = 4096


def codec_named(name: str) -> Codec:
    """The codec behind a `compression.type`."""
    try:
        return Codec[name.upper()]
    except KeyError:
        known = ", ".join(codec.name.lower() for codec in Codec)
        raise ValueError(f"There is no compression {name!r}; known are {known}.") from None


def compress(codec: Codec, data: Buffer) -> bytes:
    """`data` in the form that the Java client and librdkafka both read."""
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL))
    if codec is Codec.SNAPPY:
        return _xerial(memoryview(data))
    if codec is Codec.LZ4:
        # The Java client refuses frames whose blocks depend on each other.
        frame = cramjam.lz4.Compressor(level=_LZ4_LEVEL, block_linked=False, content_checksum=False)
        frame.compress(bytes(data))
        return bytes(frame.finish())
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
    return bytes(data)


def decompress(codec: Codec, data: Buffer, bytes_max: int) -> bytes:
    """What was compressed. ProtocolError if it is no such thing or longer than `bytes_max`.

    Memory grows with what really comes out, never with what the data claims, and never beyond `bytes_max`.
    """
    if codec is Codec.NONE:
        if len(data) > bytes_max:
            raise _too_long(bytes_max)
        return bytes(data)
    try:
        if codec is Codec.SNAPPY:
            return _snappy(memoryview(data), bytes_max)
        return _grow(codec, data, bytes_max)
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"The records are no valid {codec.name.lower()} data: {error}.") from None


def decompress_into(codec: Codec, data: Buffer, out: memoryview) -> int | None:
    """The same into memory of the caller's: how long it is, or None if it has not less than all of that room."""
    try:
        if codec is Codec.SNAPPY:
            plain = _snappy(memoryview(data), len(out))
            length = len(plain)
            out[:length] = plain
        else:
            length = _INTO[codec](data, out)
    except _TooLong:
        return None
    except cramjam.DecompressionError as error:
        if _FULL in str(error):
            return None
        raise ProtocolError(f"The records are no valid {codec.name.lower()} data: {error}.") from None
    return length if length < len(out) else None


def _grow(codec: Codec, data: Buffer, bytes_max: int) -> bytes:
    into = _INTO[codec]
    size = min(bytes_max, _GROWTH * len(data) + _FIRST_GUESS_BYTES)
    while True:
        # One byte more than allowed tells "exactly full" from "too long".
        out = bytearray(size + 1)
        try:
            length = into(data, out)
        except cramjam.DecompressionError as error:
            if _FULL not in str(error):
                raise
            length = size + 1
        if length <= size:
            return bytes(memoryview(out)[:length])
        if size >= bytes_max:
            raise _too_long(bytes_max)
        size = min(bytes_max, _GROWTH * size)


_FULL = "failed to write whole buffer"
_INTO = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def _xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy(data: memoryview, bytes_max: int) -> bytes:
    # A bare block cannot begin like this: the magic would be a length whose first element copies
    # from before the beginning.
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(data, 0, bytes_max)
    blocks = []
    total = 0
    pos = len(_XERIAL_HEADER)
    if len(data) < pos:
        raise ProtocolError("The snappy data ends within its header.")
    while pos < len(data):
        if len(data) < pos + _BLOCK_LENGTH.size:
            raise ProtocolError("The snappy data ends within a block length.")
        (length,) = _BLOCK_LENGTH.unpack_from(data, pos)
        pos += _BLOCK_LENGTH.size
        if not 0 <= length <= len(data) - pos:
            raise ProtocolError(f"A snappy block claims {length} bytes, {len(data) - pos} are left.")
        block = _snappy_block(data[pos : pos + length], total, bytes_max)
        total += len(block)
        blocks.append(block)
        pos += length
    return b"".join(blocks)


def _snappy_block(block: memoryview, bytes_before: int, bytes_max: int) -> bytes:
    length = cramjam.snappy.decompress_raw_len(block)
    if bytes_before + length > bytes_max:
        raise _too_long(bytes_max)
    # One element of three bytes yields at most 64 bytes, so a longer claim is a lie.
    if length > 64 * len(block):
        raise ProtocolError(f"{len(block)} bytes of snappy data claim to hold {length} bytes.")
    out = bytearray(length)
    if cramjam.snappy.decompress_raw_into(block, out) != length:
        raise ProtocolError("The snappy data holds less than it claims.")
    return bytes(out)


class _TooLong(ProtocolError):
    """It may be valid, but there is no room for it."""


def _too_long(bytes_max: int) -> _TooLong:
    return _TooLong(f"The records are longer than {bytes_max} bytes when decompressed.")
