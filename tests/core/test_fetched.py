"""Which batches of an answer may follow a log."""

import pytest

from headrace.core.fetched import OffsetMismatch, Taken, take
from headrace.wire.batch import place
from tests.storage.batches import batch


def joined(*batches: bytearray) -> bytearray:
    return bytearray(b"".join(batches))


def taken(
    records: bytes | bytearray, log_end: int = 0, latest: int = 0, epoch: int = 3, *, empty: bool = False
) -> Taken:
    return take(records, log_end, latest, epoch, is_empty=empty)


def offsets(found: Taken) -> list[int]:
    return [header.base_offset for _, header in found.batches]


def test_whole_batches_are_taken_as_slices_of_the_answer() -> None:
    records = joined(batch(0, 2, epoch=0)[0], batch(2, 3, epoch=1)[0], batch(5, epoch=3)[0])
    found = taken(records)
    assert (offsets(found), found.fault) == ([0, 2, 5], None)
    assert b"".join(slice_ for slice_, _ in found.batches) == records
    assert all(isinstance(slice_, memoryview) and slice_.obj is records for slice_, _ in found.batches)


def test_what_is_cut_off_at_the_end_is_left_and_alone_it_is_a_fault() -> None:
    first, second = batch(0)[0], batch(1)[0]
    for size in range(1, len(second)):
        found = taken(joined(first, second[:size]))
        assert (offsets(found), found.fault) == ([0], None)
        assert taken(second[:size], log_end=1).fault is not None


@pytest.mark.parametrize("at", [8, 16, 17, 21, 23, 40, 70])
def test_a_changed_byte_ends_what_is_taken(at: int) -> None:
    first, second = batch(0)[0], batch(1)[0]
    second[at] ^= 0x81
    found = taken(joined(first, second, batch(2)[0]))
    assert offsets(found) == [0]
    assert found.fault is not None or at == 8  # a length beyond the answer is like one that was cut off


def test_offsets_may_be_left_out_but_not_come_again() -> None:
    assert offsets(taken(joined(batch(4)[0], batch(9)[0]), log_end=2)) == [4, 9]
    found = taken(joined(batch(4)[0], batch(3)[0]), log_end=2)
    assert (offsets(found), found.fault) == ([4], "offset 3 came where 5 is due")
    with pytest.raises(OffsetMismatch, match="offset 1 came where 2 is due"):
        taken(batch(1, 5)[0], log_end=2)


def test_an_empty_log_takes_the_batch_that_holds_its_start() -> None:
    assert offsets(taken(batch(5, 5)[0], log_end=7, empty=True)) == [5]
    with pytest.raises(OffsetMismatch):
        taken(batch(5, 2)[0], log_end=7, empty=True)


@pytest.mark.parametrize(("epochs", "expected"), [((1, 2, 3), 3), ((1, 4), 1), ((2, 1), 1), ((0,), 0), ((3, 3), 2)])
def test_epochs_rise_and_are_never_later_than_the_one_fetched_with(epochs: tuple[int, ...], expected: int) -> None:
    records = bytearray()
    for offset, epoch in enumerate(epochs):
        built = batch(offset)[0]
        place(built, 0, offset, epoch)
        records += built
    found = taken(records, latest=1, epoch=3)
    assert len(found.batches) == expected
    assert (found.fault is None) == (expected == len(epochs))


def test_nothing_is_taken_of_nothing() -> None:
    assert taken(b"") == ([], None)
