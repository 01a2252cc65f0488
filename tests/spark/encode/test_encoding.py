"""The compiled encoder beside the plain one of `headrace.wire`: the same bytes, for the same partitions."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core import murmur2 as plain
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.spark.decode.compiled import address_of
from headrace.spark.encode.encoding import BATCH_BYTES, Encoder
from headrace.spark.encode.placing import murmur2
from headrace.wire.batch import NewRecord, Record, build, read_records, seal
from headrace.wire.compression import Codec

HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
KINDS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
COUNTS = {"a": 3, "b": 1, "c": 7}
NOW_MS = 1_700_000_000_000

contents = st.none() | st.binary(max_size=20)
row = st.fixed_dictionaries(
    {
        "key": contents,
        "value": st.none() | st.binary(max_size=300),
        "headers": st.none()
        | st.lists(st.fixed_dictionaries({"key": st.text(max_size=5), "value": contents}), max_size=3),
        "topic": st.sampled_from(sorted(COUNTS)),
        "partition": st.none() | st.just(0),
        "timestamp": st.none() | st.integers(0, 1 << 52),
    }
)


def arrow(rows: Sequence[dict[str, Any]], *, without: Sequence[str] = (), **kinds: pa.DataType) -> pa.RecordBatch:
    names = [name for name in KINDS if name not in without]
    return pa.RecordBatch.from_arrays(
        [pa.array([one.get(name) for one in rows], kinds.get(name, KINDS[name])) for name in names], names
    )


def encoder(topic: str | None = None, **options: Any) -> Encoder:
    return Encoder(topic, lambda topics: {name: COUNTS[name] for name in topics}, **options)


def record_of(one: dict[str, Any]) -> NewRecord:
    time_us = one.get("timestamp")
    headers = [(header["key"], header["value"]) for header in one.get("headers") or []]
    return NewRecord(NOW_MS if time_us is None else time_us // 1_000, one.get("key"), one.get("value"), headers)


def place_of(one: dict[str, Any], turn: int) -> TopicPartition:
    count = COUNTS[one["topic"]]
    if one.get("partition") is not None:
        return TopicPartition(one["topic"], one["partition"])
    key = one.get("key")
    return TopicPartition(one["topic"], turn % count if key is None else plain.partition_for(key, count))


def found(encoder: Encoder, batch: pa.RecordBatch) -> dict[TopicPartition, list[Record]]:
    by_partition: dict[TopicPartition, list[Record]] = defaultdict(list)
    for partition, records in encoder.encode(batch, NOW_MS):
        by_partition[partition] += read_records(seal(records))
    return by_partition


@settings(deadline=None)
@given(st.lists(row, max_size=12), st.integers(0, 6), st.sampled_from(Codec), st.integers(0, 3))
def test_it_writes_the_bytes_of_the_plain_encoder(
    rows: list[dict[str, Any]], turn: int, codec: Codec, skipped: int
) -> None:
    expected: dict[TopicPartition, list[NewRecord]] = defaultdict(list)
    for one in rows[skipped:]:
        expected[place_of(one, turn)].append(record_of(one))
    batch = arrow(rows).slice(skipped)  # as of a larger one
    written = {
        partition: bytes(seal(records, producer_id=7, producer_epoch=1, base_sequence=5))
        for partition, records in encoder(codec=codec, first_turn=turn).encode(batch, NOW_MS)
    }
    assert written == {
        partition: bytes(build(records, codec=codec, producer_id=7, producer_epoch=1, base_sequence=5))
        for partition, records in expected.items()
    }


@settings(deadline=None)
@given(st.lists(row, max_size=30), st.integers(0, 400))
def test_cut_into_batches_no_record_is_lost_and_each_batch_is_small_enough(
    rows: list[dict[str, Any]], batch_bytes: int
) -> None:
    expected: dict[TopicPartition, list[NewRecord]] = defaultdict(list)
    for one in rows:
        expected[place_of(one, 0)].append(record_of(one))
    at: dict[TopicPartition, int] = defaultdict(int)
    for partition, records in encoder(batch_bytes=batch_bytes).encode(arrow(rows), NOW_MS):
        some = expected[partition][at[partition] : at[partition] + records.record_count]
        assert seal(records) == build(some)
        assert records.record_count == 1 or len(records.data) - 61 <= batch_bytes
        at[partition] += records.record_count
    assert at == {partition: len(records) for partition, records in expected.items()}


@given(st.binary(max_size=40), st.integers(0, 3))
def test_a_key_has_the_hash_that_the_plain_murmur2_gives_it(key: bytes, ahead: int) -> None:
    data = np.frombuffer(b"x" * ahead + key + b"y", np.uint8)
    assert int(murmur2(address_of(data), ahead, len(key))) == plain.murmur2(key)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary(), pa.large_string()])
def test_strings_and_large_columns_are_as_good_as_bytes(kind: pa.DataType) -> None:
    rows = [{"value": text, "topic": "b"} for text in ("ä", "", None)]
    batch = arrow(rows, without=("key", "headers", "partition", "timestamp"), value=kind)
    (records,) = found(encoder(), batch).values()
    assert [record.value for record in records] == ["ä".encode(), b"", None]


def test_rows_without_a_key_of_one_arrow_batch_stay_together_and_the_next_ones_go_elsewhere() -> None:
    one = encoder("a", first_turn=5)
    batch = arrow([{"value": b"x"}] * 4, without=("topic", "key"))
    assert [list(found(one, batch)) for _ in range(4)] == [[TopicPartition("a", at)] for at in (2, 0, 1, 2)]


def test_the_option_beats_the_column() -> None:
    assert list(found(encoder("b"), arrow([{"value": b"x", "topic": "a"}, {"value": b"y"}]))) == [
        TopicPartition("b", 0)
    ]


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        ({"value": b"x"}, "a row names no topic: fill column topic, or give option topic"),
        ({"topic": "a", "partition": 3}, "names a partition that topic 'a' has not: it has 3, from 0 on"),
        ({"topic": "c", "partition": -1}, "names a partition that topic 'c' has not: it has 7"),
        ({"topic": "a", "headers": [{"key": None, "value": b""}]}, "a header has no key"),
        ({"topic": "a", "timestamp": -1}, "before 1970"),
    ],
)
def test_a_row_that_cannot_become_a_record_is_told_in_one_sentence(one: dict[str, Any], sentence: str) -> None:
    with pytest.raises(KafkaError, match=sentence):
        found(encoder(), arrow([{"topic": "b"}, one]))


def test_headers_of_a_part_of_a_batch_are_those_of_its_rows() -> None:
    """A header without a key ahead of it is somebody else's."""
    rows: list[dict[str, Any]] = [
        {"topic": "b", "headers": [{"key": None, "value": b"0"}]},
        {"topic": "b", "headers": [{"key": "k", "value": b"1"}, {"key": "k", "value": None}]},
        {"topic": "b"},
    ]
    (records,) = found(encoder(), arrow(rows).slice(1)).values()
    assert [record.headers for record in records] == [(("k", b"1"), ("k", None)), ()]


def test_a_row_larger_than_a_batch_is_a_batch_of_its_own() -> None:
    values = [b"1", b"x" * (3 * BATCH_BYTES), b"2"]
    rows = [{"value": value, "topic": "b"} for value in values]
    batches = [records.record_count for _, records in encoder().encode(arrow(rows), NOW_MS)]
    assert batches == [1, 1, 1]
    (records,) = found(encoder(), arrow(rows)).values()
    assert [record.value for record in records] == values


def test_times_are_those_of_spark_in_milliseconds() -> None:
    when = datetime(2024, 5, 6, 7, 8, 9, 999_999, UTC)
    batch = pa.RecordBatch.from_arrays([pa.array([b"x"]), pa.array([when])], ["value", "timestamp"])
    ((record,),) = found(encoder("b"), batch).values()
    assert record.timestamp == int(when.timestamp()) * 1_000 + 999
