"""The compiled decoder beside the plain one of `headrace.wire`: the same records, and the same refusals."""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.client.fetched import Aborted as ClientAborted
from headrace.client.fetched import ConsumerRecord, Fetched
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.spark.decode.aborted import Aborted, AbortedRanges
from headrace.spark.decode.decoding import BYTES_AIM, ROWS_AIM, Decoder, decode
from headrace.wire.batch import CONTROL, CRC_AT, HEADER_BYTES, NewRecord, build, crc_of, headers, read_records
from headrace.wire.compression import Codec
from headrace.wire.errors import ProtocolError
from headrace.wire.markers import build_marker

HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
FIELDS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
    "leaderEpoch": pa.int32(),
    "producerId": pa.int64(),
}
OF_BATCHES = ("leaderEpoch", "producerId")
ALL = pa.schema(FIELDS.items())
EVERYTHING = 1 << 62
TIME_MS_MAX = 1 << 40
LAST_DELTA_AT = 23

keys = st.none() | st.binary(max_size=20)
names = st.text(max_size=5)
records = st.builds(
    NewRecord,
    st.integers(-1, TIME_MS_MAX),
    keys,
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(names, keys), max_size=3),
)


@st.composite
def batches(draw: st.DrawFn, base_offset: int) -> bytes:
    return bytes(
        build(
            draw(st.lists(records, min_size=1, max_size=8)),
            codec=draw(st.sampled_from(Codec)),
            base_offset=base_offset,
            append_time_ms=draw(st.none() | st.integers(0, TIME_MS_MAX)),
            leader_epoch=draw(st.integers(-1, 5)),
            producer_id=draw(st.integers(-1, 1 << 40)),
        )
    )


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    log = b""
    offset = 0
    for _ in range(draw(st.integers(1, 5))):
        offset += draw(st.integers(0, 2))  # what compaction leaves out
        batch = draw(batches(offset))
        offset = read_records(batch)[-1].offset + 1
        log += batch
    return log


def rows_of(data: bytes, start: int = 0, end: int = EVERYTHING, aborted: AbortedRanges | None = None) -> list[Any]:
    found = pa.Table.from_batches(decode(data, ALL, start, end, aborted, "t", 3), ALL)
    found.validate(full=True)
    return list(found.cast(ALL.set(5, pa.field("timestamp", pa.int64()))).to_pylist())


def expected(data: bytes, start: int = 0, end: int = EVERYTHING, aborted: Sequence[ClientAborted] | None = None) -> Any:
    found: list[ConsumerRecord] = []
    Fetched(TopicPartition("t", 3), data, start, aborted).take(1 << 30, found)
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "t",
            "partition": 3,
            "offset": record.offset,
            "timestamp": record.timestamp * 1000,
            "headers": [{"key": name, "value": content} for name, content in record.headers] or None,
        }
        for record in found
        if start <= record.offset < end
    ]


def without_kind(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in ("timestampType", *OF_BATCHES)} for row in rows]


@given(logs(), st.integers(0, 20), st.integers(0, 30))
def test_the_records_of_a_range_are_those_of_the_plain_decoder(data: bytes, start: int, end: int) -> None:
    assert without_kind(rows_of(data)) == expected(data)
    assert without_kind(rows_of(data, start, end)) == expected(data, start, end)


@given(logs(), st.integers(0, 20), st.integers(0, 30))
def test_each_row_has_the_leader_epoch_and_the_producer_of_its_batch(data: bytes, start: int, end: int) -> None:
    of_offset = {
        record.offset: (header.leader_epoch, header.producer_id)
        for pos, header in headers(data)
        for record in read_records(data, pos)
    }
    for begin, stop in ((0, EVERYTHING), (start, end)):
        told = {row["offset"]: (row["leaderEpoch"], row["producerId"]) for row in rows_of(data, begin, stop)}
        assert told == {offset: of_batch for offset, of_batch in of_offset.items() if begin <= offset < stop}


@given(logs(), st.lists(st.sampled_from(list(FIELDS)), min_size=1, unique=True))
def test_only_the_columns_of_the_schema_come_in_its_order(data: bytes, chosen: list[str]) -> None:
    schema = pa.schema([(name, FIELDS[name]) for name in chosen])
    found = pa.Table.from_batches(decode(data, schema, 0, EVERYTHING, None, "t", 3), schema)
    everything = pa.Table.from_batches(decode(data, ALL, 0, EVERYTHING, None, "t", 3), ALL)
    assert found.schema == schema
    assert found == everything.select(chosen)


@given(logs(), st.data())
def test_whatever_lies_behind_a_right_checksum_is_judged_as_by_the_plain_decoder(
    log: bytes, data: st.DataObject
) -> None:
    """Lengths, counts and deltas that lie, in a batch that is sealed again."""
    size = 12 + int.from_bytes(log[8:12], "big")
    batch = bytearray(log[:size])
    where = st.one_of(st.integers(57, 60), st.integers(23, 26), st.integers(HEADER_BYTES, size - 1))
    for at, byte in data.draw(st.lists(st.tuples(where, st.integers(0, 255)), min_size=1, max_size=3)):
        batch[at] = byte
    struct.pack_into(">I", batch, CRC_AT, crc_of(batch, 0, size))
    try:
        plain = expected(bytes(batch))
    except ProtocolError:
        with pytest.raises(KafkaError, match=r"the record batch of t-3 at offset \d cannot be read: ") as raised:
            rows_of(bytes(batch))
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    else:
        assert without_kind(rows_of(bytes(batch))) == plain


PAIR = [NewRecord(0, b"k", b"v"), NewRecord(0, b"k", b"v", [("h", b"x")])]
"""Records of 9 and of 13 bytes: length, attributes, time, offset, key, value, headers."""
FIRST, SECOND = HEADER_BYTES, HEADER_BYTES + 9


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({60: 1}, "bytes are left after its last record"),
        ({60: 3}, "its records end within a record"),
        ({60: 200}, "bytes cannot hold 200 records"),
        ({57: 0x80}, "bytes cannot hold -2147483646 records"),
        ({26: 0}, "the offsets of its records are not in order"),
        ({SECOND + 3: 0}, "the offsets of its records are not in order"),
        ({SECOND + 3: 1}, "the offsets of its records are not in order"),
        ({FIRST: 0x0E}, "another length than it says"),
        ({FIRST: 0x01}, "another length than it says"),
        ({FIRST: 0x7E}, "its records end within a record"),
        ({FIRST + 4: 0x7E}, "another length than it says"),
        ({FIRST + 4: 0x03}, "another length than it says"),
        ({FIRST + 6: 0x06}, "another length than it says"),
        (dict.fromkeys(range(SECOND + 2, SECOND + 13), 0xFF), "another length than it says"),
        ({SECOND + 8: 0x0A}, "the headers of a record are not well formed"),
        ({SECOND + 8: 0x01}, "the headers of a record are not well formed"),
        ({SECOND + 9: 0x01}, "the headers of a record are not well formed"),
        ({22: 0x07}, "There is no compression 7"),
        ({22: 0x03}, "no valid lz4 data"),
        ({16: 1}, "it has magic 1; only 2 is supported"),
    ],
)
def test_each_kind_of_damage_has_its_sentence(changes: dict[int, int], reason: str) -> None:
    batch = build(PAIR)
    assert len(batch) == SECOND + 13
    assert len(rows_of(bytes(batch))) == 2
    for at, byte in changes.items():
        batch[at] = byte
    struct.pack_into(">I", batch, CRC_AT, crc_of(batch, 0, len(batch)))
    with pytest.raises(ProtocolError):
        expected(bytes(batch))
    with pytest.raises(KafkaError, match=f"the record batch of t-3 at offset 0 cannot be read: .*{reason}"):
        rows_of(bytes(batch))


@pytest.mark.parametrize(("at", "bit"), [(LAST_DELTA_AT - 1, CONTROL), (LAST_DELTA_AT, 0x80)])
def test_damage_by_which_a_batch_seems_to_have_no_records_of_the_range_is_seen(at: int, bit: int) -> None:
    broken = build([NewRecord(0, None, b"x")])
    broken[at] ^= bit
    with pytest.raises(KafkaError, match="at offset 0 cannot be read: it fails its checksum"):
        rows_of(bytes(broken))


@given(logs(), st.data())
def test_a_flipped_byte_that_the_checksum_covers_is_seen(log: bytes, data: st.DataObject) -> None:
    size = 12 + int.from_bytes(log[8:12], "big")
    at = data.draw(st.integers(HEADER_BYTES - 40, size - 1))
    broken = bytearray(log)
    broken[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(KafkaError, match=r"at offset \d cannot be read: it fails its checksum"):
        rows_of(bytes(broken))


@st.composite
def transactional_logs(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int, int]]]:
    """A log of three producers whose transactions lie in each other; and (first, producer, last) of those undone."""
    log = b""
    offset = 0
    begun: dict[int, int] = {}
    undone = []
    for _ in range(draw(st.integers(1, 15))):
        producer, ends = draw(st.integers(0, 2)), draw(st.booleans())
        if producer and ends and producer in begun:
            committed = draw(st.booleans())
            marker = build_marker(producer, 0, committed, 1, 5)
            struct.pack_into(">q", marker, 0, offset)
            log += marker
            first = begun.pop(producer)
            if not committed:
                undone.append((first, producer, offset))
            offset += 1
        else:
            some = [NewRecord(7, None, b"%d" % (offset + i)) for i in range(draw(st.integers(1, 3)))]
            producer_id = producer or -1
            log += build(some, base_offset=offset, producer_id=producer_id, transactional=producer > 0)
            if producer:
                begun.setdefault(producer, offset)
            offset += len(some)
    return bytes(log), undone


@given(transactional_logs())
@example((bytes(build_marker(1, 0, True, 1, 5)), []))
def test_records_of_transactions_that_were_rolled_back_are_dropped(
    made: tuple[bytes, list[tuple[int, int, int]]],
) -> None:
    log, undone = made
    aborted = [ClientAborted(first, producer) for first, producer, _ in undone]
    plain = expected(log, 0, EVERYTHING, aborted)
    assert without_kind(rows_of(log, aborted=AbortedRanges(Aborted(*one) for one in aborted))) == plain
    ended = [Aborted(first, producer, last) for first, producer, last in undone]
    for start in range(0, 12, 3):  # also where reading begins within or behind a transaction that is known whole
        from_there = [row for row in plain if row["offset"] >= start]
        assert without_kind(rows_of(log, start, aborted=AbortedRanges(ended))) == from_there


def test_the_kind_of_a_timestamp_is_told() -> None:
    log = build([NewRecord(5, None, None)]) + build([NewRecord(5, None, None)], base_offset=1, append_time_ms=9)
    assert [(row["timestampType"], row["timestamp"]) for row in rows_of(bytes(log))] == [(0, 5000), (1, 9000)]


def test_a_timestamp_beyond_what_spark_holds_stops_only_those_who_want_it() -> None:
    log = bytes(build([NewRecord((1 << 63) - 1, b"k", b"v")]))
    with pytest.raises(KafkaError, match="timestamp that Spark cannot hold; leave the column timestamp out"):
        rows_of(log)
    (batch,) = decode(log, pa.schema([("value", pa.binary())]), 0, EVERYTHING, None, "t", 0)
    assert batch.to_pylist() == [{"value": b"v"}]


def test_what_comes_before_a_corrupt_batch_is_handed_out() -> None:
    log = bytearray(build([NewRecord(1, None, b"a")]) + build([NewRecord(1, None, b"b")], base_offset=1))
    log[-1] ^= 1
    reading = decode(bytes(log), ALL, 0, EVERYTHING, None, "t", 0)
    assert [row["value"] for row in next(reading).to_pylist()] == [b"a"]
    with pytest.raises(KafkaError, match="t-0 at offset 1 cannot be read"):
        next(reading)


def test_an_incomplete_last_batch_is_left_for_the_next_fetch() -> None:
    whole = bytes(build([NewRecord(1, None, b"a")]))
    assert len(rows_of(whole + whole[:-1])) == 1


def many(count: int, value: bytes, codec: Codec, per_batch: int) -> Iterator[bytes]:
    for at in range(0, count, per_batch):
        yield bytes(build([NewRecord(1, None, value)] * min(per_batch, count - at), codec=codec, base_offset=at))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("count", "size", "per_batch"), [(30_000, 10, 100), (30_000, 10, 30_000), (6_000, 2_000, 3_000)]
)
def test_batches_have_about_the_size_that_suits_spark(codec: Codec, count: int, size: int, per_batch: int) -> None:
    log = b"".join(many(count, bytes(size), codec, per_batch))
    found = list(Decoder(ALL, "t", 0).decode(log, 0, EVERYTHING))
    assert sum(batch.num_rows for batch in found) == count
    assert all(batch.num_rows <= 1.6 * ROWS_AIM for batch in found)
    assert all(batch.num_rows * size <= 1.6 * BYTES_AIM for batch in found)
    assert len(found) <= 1 + count / ROWS_AIM + 2 * count * size / BYTES_AIM


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_batch_that_grows_beyond_all_bounds_is_refused(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.spark.decode.decoding.DECOMPRESSED_BYTES_MAX", 8 << 20)
    small = b"".join(many(1, bytes(6 << 20), codec, 1))
    assert len(rows_of(small)) == 1
    with pytest.raises(KafkaError, match=f"holds more than {8 << 20} bytes"):
        rows_of(b"".join(many(1, bytes(9 << 20), codec, 1)))
