"""A look at keys and offsets only agrees with reading the records, and copies of records are what they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.batch import DELETE_HORIZON, HEADER_BYTES, NewRecord, build, read_header, read_records
from headrace.wire.compression import Codec
from headrace.wire.errors import ProtocolError
from headrace.wire.key_check import have_keys
from headrace.wire.record_scan import kept, key_id, payload, scan
from headrace.wire.rewriting import emptied, horizon_of, repacked

texts = st.binary(max_size=40) | st.binary(min_size=100, max_size=9_000)
records = st.lists(
    st.builds(
        NewRecord,
        st.integers(0, 2**45),
        st.none() | texts,
        st.none() | texts,
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=200,
)


@given(records, st.sampled_from(Codec))
def test_keys_offsets_and_tombstones_are_those_of_the_records(new: list[NewRecord], codec: Codec) -> None:
    batch = build(new, codec=codec, base_offset=1_000)
    header = read_header(batch)
    keys, deltas, ends, tombstones = scan(payload(batch, header), header.record_count)
    assert keys == [None if record.key is None else key_id(record.key) for record in new]
    assert deltas == list(range(len(new)))
    assert ends[-1] == len(payload(batch, header))
    assert tombstones == [at for at, record in enumerate(new) if record.value is None]
    assert have_keys(batch, header) == all(record.key is not None for record in new)


@given(records, st.sampled_from(Codec), st.data(), st.none() | st.integers(0, 2**45))
def test_what_is_left_of_a_batch_is_as_it_was(
    new: list[NewRecord], codec: Codec, data: st.DataObject, horizon_ms: int | None
) -> None:
    batch = build(new, codec=codec, base_offset=1_000, producer_id=7, producer_epoch=1, base_sequence=5, leader_epoch=3)
    header, before = read_header(batch), read_records(batch)
    lost = data.draw(st.sets(st.integers(0, len(new) - 1), max_size=len(new) - 1).map(sorted))
    found = payload(batch, header)
    left = repacked(header, kept(found, scan(found, len(new)), lost), len(new) - len(lost), horizon_ms)
    expected = [record for at, record in enumerate(before) if at not in lost]
    assert read_records(left) == expected
    again = read_header(left)
    assert again.max_timestamp == max(record.timestamp for record in expected)
    assert horizon_of(again) == horizon_ms
    assert bool(again.attributes & DELETE_HORIZON) == (horizon_ms is not None)
    same = (
        "base_offset",
        "last_offset_delta",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "codec",
    )
    assert [getattr(again, name) for name in same] == [getattr(header, name) for name in same]
    _, deltas, _, _ = scan(payload(left, again), again.record_count)
    assert [1_000 + delta for delta in deltas] == [record.offset for record in expected]


def test_an_emptied_batch_keeps_offsets_and_sequences() -> None:
    batch = build([NewRecord(5, b"k", b"v")] * 3, codec=Codec.ZSTD, producer_id=7, producer_epoch=1, base_sequence=5)
    header, empty = read_header(batch), emptied(read_header(batch))
    again = read_header(empty)
    assert (again.record_count, len(empty), read_records(empty)) == (0, HEADER_BYTES, [])
    assert (again.last_offset, again.last_sequence, again.max_timestamp) == (
        header.last_offset,
        header.last_sequence,
        5,
    )


def test_long_keys_go_by_a_hash_that_is_no_key() -> None:
    assert key_id(b"k" * 16) == b"k" * 16
    assert len(key_id(b"k" * 17)) == 17
    assert key_id(b"k" * 17) != key_id(b"k" * 18)


@given(records, st.integers(1, 50))
def test_bytes_that_are_no_records_are_refused(new: list[NewRecord], cut: int) -> None:
    batch = build(new)
    header = read_header(batch)
    whole = payload(batch, header)
    for damaged in (whole[:-cut], whole + bytes(cut), whole[cut:]):
        try:
            scan(damaged, header.record_count)
        except ProtocolError:
            continue
        assert damaged == whole[cut:]  # what is left may look like records by chance


def test_a_batch_that_claims_more_records_than_it_holds_is_refused() -> None:
    batch = build([NewRecord(0, b"k", b"v")])
    with pytest.raises(ProtocolError, match="end within"):
        scan(payload(batch, read_header(batch)), 2)
    assert not have_keys(batch, read_header(batch)._replace(record_count=2))
