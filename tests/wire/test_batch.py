"""Record batches against bytes that Apache Kafka 4.3.1 wrote, and against the code of two other clients."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from headrace.wire.batch import (
    HEADER_BYTES,
    BatchHeader,
    NewRecord,
    Record,
    build,
    crc_of,
    headers,
    place,
    read_header,
    read_records,
    stamp_append_time,
)
from headrace.wire.compression import Codec
from headrace.wire.errors import ProtocolError
from headrace.wire.markers import Marker, build_marker, read_marker
from headrace.wire.records import size_bound

RECORDS = [
    NewRecord(1700000000000, b"k0", b"v0"),
    NewRecord(1699999999000, None, b"x" * 300, (("h", b"1"), ("n", None))),
    NewRecord(1700000005000, b"", None),
]
# The same three records by Apache Kafka: offset 42, producer 9, its epoch 3, sequence 7, leader epoch 5.
FROM_KAFKA = {
    Codec.NONE: "000000000000002a00000181000000050299b5d5060000000000020000018bcfe568000000018bcfe57b880000000000000009"
    "0003000000070000000314000000046b3004763000f60400cf0f0201d804" + "78" * 300 + "0402680231026e010e00904e04000100",
    Codec.GZIP: "000000000000002a0000006e0000000502073894b70001000000020000018bcfe568000000018bcfe57b880000000000000009"
    "000300000007000000031f8b08000000000000ff1361606060c93660293360f8c6c2709e9f89f1064bc528201ab03065301932e531f2314c"
    "f06361606400005ed5fdbd50010000",
    Codec.SNAPPY: "000000000000002a0000007d000000050202f4371e0002000000020000018bcfe568000000018bcfe57b8800000000000000"
    "090003000000070000000382534e4150505900000000010000000100000038d0025014000000046b3004763000f60400cf0f0201d80478fe"
    "0100fe0100fe0100fe0100aa01003c0402680231026e010e00904e04000100",
    Codec.LZ4: "000000000000002a0000006d00000005029c5f61d80003000000020000018bcfe568000000018bcfe57b8800000000000000090"
    "003000000070000000304224d186040822d000000ff0614000000046b3004763000f60400cf0f0201d804780100ff19f0010402680231026e"
    "010e00904e0400010000000000",
    Codec.ZSTD: "000000000000002a0000006a000000050271e697940004000000020000018bcfe568000000018bcfe57b880000000000000009"
    "0003000000070000000328b52ffd00586c0100540214000000046b3004763000f60400cf0f0201d804780402680231026e010e00904e0400"
    "010001005154c004010000",
}
ABORT_FROM_KAFKA = bytes.fromhex(
    "000000000000000a00000042000000050283c4e5360030000000000000018bcfe568000000018bcfe5680000000000000000090003ffffffff"
    "000000012000000008000000000c00000000001100"
)

CODECS = pytest.mark.parametrize("codec", list(Codec))
payloads = st.none() | st.binary(max_size=300)
new_records = st.builds(
    NewRecord,
    st.integers(-(1 << 61), 1 << 61),
    payloads,
    payloads,
    st.lists(st.tuples(st.text(max_size=20), payloads), max_size=3).map(tuple),
)
batches = st.lists(new_records, min_size=1, max_size=20)


def as_read(records: list[NewRecord], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + number, r.timestamp, r.key, r.value, tuple(r.headers)) for number, r in enumerate(records)
    ]


def with_crc(batch: bytes | bytearray) -> bytearray:
    fixed = bytearray(batch)
    fixed[17:21] = crc_of(fixed, 0, len(fixed)).to_bytes(4)
    return fixed


@CODECS
def test_records_that_apache_kafka_wrote_are_read(codec: Codec) -> None:
    batch = bytes.fromhex(FROM_KAFKA[codec])
    header = read_header(batch)
    assert header.codec is codec
    assert header.crc == crc_of(batch, 0, len(batch))
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (42, 44, 5)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 3, 7, 9)
    assert header.max_timestamp == 1700000005000
    assert read_records(batch) == as_read(RECORDS, 42)


def test_an_uncompressed_batch_equals_apache_kafkas_to_the_byte() -> None:
    ours = build(RECORDS, base_offset=42, producer_id=9, producer_epoch=3, base_sequence=7, leader_epoch=5)
    assert ours.hex() == FROM_KAFKA[Codec.NONE]


def test_an_abort_marker_that_apache_kafka_wrote_is_read() -> None:
    header = read_header(ABORT_FROM_KAFKA)
    assert header.is_control and header.is_transactional
    assert header.last_sequence == -1
    assert read_marker(ABORT_FROM_KAFKA) == Marker(committed=False, coordinator_epoch=17)
    assert read_marker(bytes.fromhex(FROM_KAFKA[Codec.NONE])) is None


def test_a_marker_equals_apache_kafkas_to_the_byte() -> None:
    header = read_header(ABORT_FROM_KAFKA)
    ours = build_marker(header.producer_id, header.producer_epoch, False, 17, header.max_timestamp)
    place(ours, 0, header.base_offset, header.leader_epoch)
    assert ours == ABORT_FROM_KAFKA
    assert read_marker(build_marker(1, 0, True, 5, 0)) == Marker(committed=True, coordinator_epoch=5)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b"\0\0\0\1", b"\0\0\0\0\0\7", Marker(True, 7)),
        (b"\0\0\0\2", b"", None),
        (b"\0\0", b"\0\0\0\0\0\7", "no type"),
        (b"\0\0\0\1", b"\0\0", "no coordinator epoch"),
    ],
)
def test_a_control_record_is_a_marker_only_if_it_ends_a_transaction(
    key: bytes, value: bytes, expected: Marker | str | None
) -> None:
    batch = build([NewRecord(1, key, value)], control=True, transactional=True, producer_id=1, producer_epoch=0)
    if isinstance(expected, str):
        with pytest.raises(ProtocolError, match=expected):
            read_marker(batch)
    else:
        assert read_marker(batch) == expected


@CODECS
@given(records=batches)
@settings(max_examples=40, deadline=None)
def test_what_is_built_is_read_back(codec: Codec, records: list[NewRecord]) -> None:
    batch = build(records, codec=codec, base_offset=1 << 40)
    assert read_records(batch) == as_read(records, 1 << 40)
    assert read_header(batch).max_timestamp == max(r.timestamp for r in records)
    if codec is Codec.NONE:
        assert len(batch) <= HEADER_BYTES + sum(map(size_bound, records))


@CODECS
@pytest.mark.parametrize("reader", [KafkaPythonBatch, AiokafkaBatch])
@given(records=batches)
@settings(max_examples=20, deadline=None)
def test_other_clients_read_what_we_build(
    codec: Codec, reader: Callable[[bytes], KafkaPythonBatch], records: list[NewRecord]
) -> None:
    theirs = reader(bytes(build(records, codec=codec, base_offset=7, producer_id=3, producer_epoch=1, base_sequence=0)))
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (3, 1, 0)
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == as_read(records, 7)


@CODECS
@pytest.mark.parametrize("builder", [KafkaPythonBuilder, AiokafkaBuilder])
@given(records=batches)
@settings(max_examples=20, deadline=None)
def test_we_read_what_other_clients_build(
    codec: Codec, builder: Callable[..., KafkaPythonBuilder], records: list[NewRecord]
) -> None:
    theirs = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=3,
        producer_epoch=1,
        base_sequence=0,
        batch_size=1 << 20,
    )
    for number, record in enumerate(records):
        theirs.append(number, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(theirs.build())
    header = read_header(batch)
    # Both leave the codec out where compression would not pay.
    assert header.codec in (codec, Codec.NONE)
    assert header.crc == crc_of(batch, 0, len(batch))
    assert read_records(batch) == as_read(records)


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 1 << 20, (1 << 20) + 1])
def test_lengths_around_the_borders_of_varints_survive(size: int) -> None:
    record = NewRecord(0, b"k" * size, b"v" * size, (("n" * min(size, 9000), b"c" * size),))
    assert read_records(build([record])) == as_read([record])


def test_more_than_64_records_are_numbered_beyond_one_byte() -> None:
    records = [NewRecord(number * 100_000, None, b"") for number in range(10_000)]
    assert read_records(build(records)) == as_read(records)


def test_placing_a_batch_changes_offset_and_epoch_but_not_its_checksum() -> None:
    batch = bytearray(b"before") + build(RECORDS) + b"after"
    before = read_header(batch, 6)
    place(memoryview(batch), 6, 1 << 50, 77)
    after = read_header(batch, 6)
    assert after == before._replace(base_offset=1 << 50, leader_epoch=77)
    assert after.crc == crc_of(batch, 6, after.size)
    assert batch.startswith(b"before") and batch.endswith(b"after")
    assert [r.offset for r in read_records(batch, 6)] == [(1 << 50) + n for n in range(3)]


@CODECS
def test_append_time_becomes_the_time_of_every_record(codec: Codec) -> None:
    batch = bytearray(b"before") + build(RECORDS, codec=codec)
    size = len(batch) - 6
    stamp_append_time(batch, 6, size, 1800000000000)
    header = read_header(batch, 6)
    assert header.is_log_append_time and header.max_timestamp == 1800000000000
    assert header.codec is codec and header.base_timestamp == RECORDS[0].timestamp
    assert {r.timestamp for r in read_records(batch, 6)} == {1800000000000}
    theirs = KafkaPythonBatch(bytes(batch[6:]))
    assert theirs.validate_crc() and theirs.timestamp_type == 1
    assert bytes(batch[6:]) == bytes(build(RECORDS, codec=codec, append_time_ms=1800000000000))


def test_headers_of_whole_batches_are_walked_and_an_incomplete_last_one_ends_the_walk() -> None:
    three = [build(RECORDS[:n], base_offset=n) for n in (1, 2, 3)]
    data = b"".join(three)
    starts = [0, len(three[0]), len(three[0]) + len(three[1])]
    assert [pos for pos, _ in headers(data)] == starts
    assert [header.base_offset for _, header in headers(data)] == [1, 2, 3]
    for missing in (1, len(three[2]) - HEADER_BYTES, len(three[2]) - 1):
        assert [pos for pos, _ in headers(data[:-missing])] == starts[:2]
    assert [pos for pos, _ in headers(data, starts[1], starts[2])] == starts[1:2]
    assert list(headers(b"")) == []


@pytest.mark.parametrize("length", [-(1 << 31), -12, -1, 0, HEADER_BYTES - 12 - 1])
def test_a_length_that_no_batch_has_ends_the_walk_with_an_error(length: int) -> None:
    batch = build(RECORDS)
    batch[8:12] = length.to_bytes(4, signed=True)
    with pytest.raises(ProtocolError, match="length"):
        list(headers(batch))
    with pytest.raises(ProtocolError):
        read_records(batch)


def test_a_header_needs_61_bytes() -> None:
    batch = build(RECORDS)
    assert isinstance(read_header(batch[:61]), BatchHeader)
    with pytest.raises(ProtocolError, match="60 are left"):
        read_header(batch[:60])


def test_sequences_wrap_to_zero_within_a_batch() -> None:
    header = read_header(build(RECORDS, producer_id=1, producer_epoch=0, base_sequence=(1 << 31) - 2))
    assert header.last_sequence == 0


def test_an_unknown_codec_is_a_protocol_error() -> None:
    batch = build(RECORDS)
    batch[22] = 5
    with pytest.raises(ProtocolError, match="no compression 5"):
        read_records(with_crc(batch))


@pytest.mark.parametrize(
    ("body", "count", "complaint"),
    [
        ("", 1, "cannot hold"),
        ("0c000000010100", -1, "cannot hold"),
        ("0c000000010100", 2, "cannot hold"),
        ("0c000000010100" * 2, 1, "left after"),
        ("0c000000030100", 1, "length -2"),
        ("0c000000010300", 1, "length -2"),
        ("0e00000001010000", 1, "another length"),
        ("0a000000010100", 1, "another length"),
        ("0b000000010100", 1, "another length"),
        ("0c000002010100", 1, "offset delta 1"),
        ("0c000001010100", 1, "offset delta -1"),
        ("0c000000010102", 1, "headers"),
        ("10000000010102010100", 1, "no name"),
        ("8080808080808080808001" + "00" * 9, 1, "10 bytes"),
        ("0c0000000101ff", 1, "end within"),
        ("0c00000001fe7f00", 1, "end within"),
    ],
)
def test_malformed_records_are_protocol_errors(body: str, count: int, complaint: str) -> None:
    batch = build([NewRecord(0, None, None)])[:HEADER_BYTES] + bytes.fromhex(body)
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    batch[57:61] = count.to_bytes(4, signed=True)
    with pytest.raises(ProtocolError, match=complaint):
        read_records(with_crc(batch))


def test_offsets_that_do_not_rise_are_refused() -> None:
    batch = build([NewRecord(0, None, None)] * 2)
    batch[HEADER_BYTES + 7 + 3] = 0
    with pytest.raises(ProtocolError, match="offset delta 0"):
        read_records(with_crc(batch))


def test_a_batch_emptied_by_compaction_has_no_records() -> None:
    batch = build([NewRecord(0, None, None)] * 3, codec=Codec.NONE)[:HEADER_BYTES]
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    batch[57:61] = bytes(4)
    assert read_records(with_crc(batch)) == []


def test_records_left_out_by_compaction_leave_gaps_in_the_offsets() -> None:
    batch = build([NewRecord(0, None, None)] * 2, base_offset=10)
    batch[23:27] = (50).to_bytes(4)
    batch[HEADER_BYTES + 7 + 3] = 2 * 40
    assert [r.offset for r in read_records(with_crc(batch))] == [10, 50]


def test_a_time_beyond_64_bits_is_refused() -> None:
    batch = build([NewRecord((1 << 63) - 1, None, None)])
    batch[HEADER_BYTES + 2] = 2
    with pytest.raises(ProtocolError, match="64 bits"):
        read_records(with_crc(batch))


def test_a_header_name_that_is_no_utf_8_does_not_stop_a_consumer() -> None:
    batch = build([NewRecord(0, None, None, (("ab", b"1"),))])
    at = batch.index(b"ab")
    batch[at : at + 2] = b"\xff\xfe"
    assert read_records(with_crc(batch))[0].headers == (("\ufffd\ufffd", b"1"),)


def test_a_wrong_checksum_is_found_unless_the_caller_knows_better() -> None:
    batch = build([NewRecord(0, None, b"abc")])
    batch[-2] ^= 1
    with pytest.raises(ProtocolError, match="checksum"):
        read_records(batch)
    assert read_records(batch, check_crc=False)[0].value == b"abb"


def test_another_magic_is_refused() -> None:
    batch = build(RECORDS)
    batch[16] = 1
    with pytest.raises(ProtocolError, match="magic 1"):
        read_records(batch)


@CODECS
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_only_protocol_errors_escape_from_mutated_batches(codec: Codec, data: st.DataObject) -> None:
    batch = build(RECORDS, codec=codec)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(batch) - 1))
        batch[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    batch[16:17] = b"\x02"
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    with suppress(ProtocolError):
        assert len(read_records(batch, check_crc=False, bytes_max=1 << 16)) <= (1 << 16) // 7


@given(junk=st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_only_protocol_errors_escape_from_junk(junk: bytes) -> None:
    for check in (True, False):
        with suppress(ProtocolError):
            read_records(junk, check_crc=check, bytes_max=1 << 16)
    with suppress(ProtocolError):
        list(headers(junk))
