"""Records out of fetched bytes: where reading begins, what is left out, and what is opened when."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.fetched import Aborted, ConsumerRecord, Fetched, last_of
from headrace.model import TopicPartition
from headrace.wire.batch import NewRecord, build
from headrace.wire.compression import Codec
from headrace.wire.errors import ProtocolError

T0 = TopicPartition("t", 0)


def batch(base: int, *values: bytes, producer_id: int = -1, codec: Codec = Codec.NONE) -> bytes:
    records = [NewRecord(0, None, value) for value in values]
    transactional = producer_id >= 0
    return bytes(build(records, base_offset=base, producer_id=producer_id, transactional=transactional, codec=codec))


def marker(base: int, producer_id: int, *, commit: bool) -> bytes:
    record = NewRecord(0, pack(">hh", 0, 1 if commit else 0), pack(">hi", 0, 0))
    return bytes(build([record], base_offset=base, producer_id=producer_id, transactional=True, control=True))


def read(data: bytes, position: int, aborted: list[Aborted] | None = None) -> tuple[list[bytes | None], int]:
    """All values, and the position after them."""
    fetched = Fetched(T0, data, position, aborted)
    records: list[ConsumerRecord] = []
    assert not fetched.take(1_000, records)
    return [record.value for record in records], fetched.position


def test_reading_begins_inside_a_batch() -> None:
    data = batch(0, b"a", b"b", b"c") + batch(3, b"d")
    assert read(data, 2) == ([b"c", b"d"], 4)
    assert read(data, 3) == ([b"d"], 4)


def test_an_incomplete_last_batch_is_left_for_the_next_fetch() -> None:
    data = batch(0, b"a") + batch(1, b"b")[:-1]
    last = last_of(data)
    assert last is not None and last.last_offset == 0 and read(data, 0) == ([b"a"], 1)
    assert last_of(batch(0, b"a")[:-1]) is None


def test_control_records_are_never_handed_out() -> None:
    data = batch(0, b"a", producer_id=7) + marker(1, 7, commit=True)
    assert read(data, 0) == ([b"a"], 2)
    assert read(data, 0, []) == ([b"a"], 2)


def test_rolled_back_records_are_left_out_only_if_committed_ones_are_asked_for() -> None:
    data = (
        batch(0, b"kept", producer_id=1)
        + batch(1, b"rolled back", producer_id=2)
        + batch(2, b"no transaction")
        + marker(3, 2, commit=False)
        + batch(4, b"later, same producer", producer_id=2)
        + marker(5, 1, commit=True)
        + marker(6, 2, commit=True)
    )
    everything = [b"kept", b"rolled back", b"no transaction", b"later, same producer"]
    committed = [b"kept", b"no transaction", b"later, same producer"]
    assert read(data, 0) == (everything, 7)
    assert read(data, 0, [Aborted(1, 2)]) == (committed, 7)


def test_a_transaction_that_begins_before_the_fetch_is_left_out_too() -> None:
    data = batch(10, b"rolled back", producer_id=2) + marker(11, 2, commit=False) + batch(12, b"x", producer_id=2)
    assert read(data, 10, [Aborted(3, 2)]) == ([b"x"], 13)


def test_a_damaged_batch_is_only_met_when_it_is_opened() -> None:
    data = batch(0, b"a") + batch(1, b"b")[:-1] + b"?"
    fetched = Fetched(T0, data, 0, None)
    records: list[ConsumerRecord] = []
    assert fetched.take(1, records)
    with pytest.raises(ProtocolError):
        fetched.take(2, records)
    assert [record.value for record in records] == [b"a"] and fetched.position == 1


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    codecs=st.lists(st.sampled_from(Codec), min_size=8, max_size=8),
    start=st.integers(0, 45),
    step=st.integers(1, 7),
)
def test_whatever_the_cut_each_record_is_handed_out_once(
    sizes: list[int], codecs: list[Codec], start: int, step: int
) -> None:
    data, end = b"", 0
    for size, codec in zip(sizes, codecs, strict=False):
        data += batch(end, *[b"%d" % (end + n) for n in range(size)], codec=codec)
        end += size
    fetched = Fetched(T0, data, start, None)
    records: list[ConsumerRecord] = []
    while fetched.take(len(records) + step, records):
        assert fetched.position == records[-1].offset + 1
    assert [record.offset for record in records] == list(range(start, end))
    assert fetched.position == max(start, end)
