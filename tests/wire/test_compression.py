import gzip
import os
import struct
import tracemalloc
from contextlib import suppress

import cramjam
import lz4.frame  # type: ignore[import-untyped]  # there are no stubs
import pytest
import snappy  # type: ignore[import-untyped]  # there are no stubs
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.compression import Codec, codec_named, compress, decompress
from headrace.wire.errors import ProtocolError

REAL = [codec for codec in Codec if codec is not Codec.NONE]
REAL_CODECS = pytest.mark.parametrize("codec", REAL)
ALL_CODECS = pytest.mark.parametrize("codec", list(Codec))
MB = 1 << 20
SAMPLES = [b"", b"a", b"abc" * 30_000, os.urandom(100_000), bytes(3 * MB)]


def xerial(*blocks: bytes) -> bytes:
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


def unpacked_elsewhere(codec: Codec, data: bytes) -> bytes:
    """With libraries that we do not use."""
    if codec is Codec.GZIP:
        return gzip.decompress(data)
    if codec is Codec.LZ4:
        return bytes(lz4.frame.decompress(data))
    if codec is Codec.ZSTD:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    assert data.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    out, pos = b"", 16
    while pos < len(data):
        (length,) = struct.unpack_from(">i", data, pos)
        out += bytes(snappy.decompress(data[pos + 4 : pos + 4 + length]))
        pos += 4 + length
    return out


@ALL_CODECS
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{len(sample)} bytes")
def test_what_was_compressed_comes_back(codec: Codec, sample: bytes) -> None:
    packed = compress(codec, sample)
    assert decompress(codec, packed, bytes_max=len(sample)) == sample
    assert decompress(codec, memoryview(packed), bytes_max=1 << 30) == sample


@REAL_CODECS
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{len(sample)} bytes")
def test_other_libraries_read_what_we_compress(codec: Codec, sample: bytes) -> None:
    assert unpacked_elsewhere(codec, compress(codec, bytearray(sample))) == sample


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{len(sample)} bytes")
def test_we_read_what_other_libraries_compress(sample: bytes) -> None:
    assert decompress(Codec.GZIP, gzip.compress(sample), len(sample)) == sample
    assert decompress(Codec.LZ4, lz4.frame.compress(sample, block_linked=True), len(sample)) == sample
    assert decompress(Codec.LZ4, lz4.frame.compress(sample, store_size=False), len(sample)) == sample
    assert decompress(Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(sample), MB * 3) == sample
    assert decompress(Codec.SNAPPY, snappy.compress(sample), len(sample)) == sample


def test_lz4_blocks_stand_alone_because_java_refuses_others() -> None:
    block_independent = 0x20
    assert compress(Codec.LZ4, bytes(MB))[4] & block_independent


def test_snappy_without_framing_as_librdkafka_writes_it_is_read() -> None:
    bare = bytes(cramjam.snappy.compress_raw(b"abc" * 1000))
    assert decompress(Codec.SNAPPY, bare, 3000) == b"abc" * 1000


@REAL_CODECS
def test_a_bomb_is_refused_without_its_memory(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * MB))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="longer than 1048576 bytes"):
            decompress(codec, bomb, bytes_max=MB)
        assert tracemalloc.get_traced_memory()[1] < 4 * MB
    finally:
        tracemalloc.stop()


@REAL_CODECS
def test_the_limit_is_exact(codec: Codec) -> None:
    packed = compress(codec, b"x" * 100_000)
    assert len(decompress(codec, packed, 100_000)) == 100_000
    with pytest.raises(ProtocolError, match="longer"):
        decompress(codec, packed, 99_999)


def test_uncompressed_data_obeys_the_limit_too() -> None:
    with pytest.raises(ProtocolError, match="longer"):
        decompress(Codec.NONE, b"abc", 2)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\xff\xff\xff\xff\x0f" + b"abcd", "longer than"),
        (b"\x80\x80\x80\x04" + b"abcd", "claim"),
        (xerial(b"\x80\x80\x80\x04" + b"abcd"), "claim"),
        (xerial()[:12], "header"),
        (xerial() + b"\0\0", "block length"),
        (xerial() + struct.pack(">i", 5) + b"abcd", "claims 5 bytes"),
        (xerial() + struct.pack(">i", -1), "claims -1 bytes"),
        (b"", "snappy"),
    ],
)
def test_snappy_that_lies_about_lengths_is_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decompress(Codec.SNAPPY, data, 100 * MB)


@REAL_CODECS
@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_only_protocol_errors_escape_from_mutated_data(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, b"some text " * 50))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(packed) - 1))
        packed[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with suppress(ProtocolError):
        assert len(decompress(codec, packed, bytes_max=10_000)) <= 10_000


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_data_cut_short_is_refused(codec: Codec) -> None:
    packed = compress(codec, b"some text " * 50)
    for length in range(len(packed)):
        with pytest.raises(ProtocolError, match=codec.name.lower()):
            decompress(codec, packed[:length], MB)


def test_codecs_have_the_names_of_kafkas_settings() -> None:
    assert [codec_named(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == list(Codec)
    with pytest.raises(ValueError, match="brotli"):
        codec_named("brotli")
