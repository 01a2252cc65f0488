"""Arrow batches on their way to the encoder."""

from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.gathering import GATHERED_BYTES_MAX, PARTITION_BYTES_AIM, bytes_aim, gathered


def arrow(values: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])


@given(st.lists(st.lists(st.binary(max_size=20), max_size=5), max_size=8), st.integers(0, 200))
def test_all_rows_come_in_their_order_and_none_waits_for_more_than_is_aimed_for(
    values: list[list[bytes]], aim: int
) -> None:
    taken = 0

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for some in values:
            taken += len(some)
            yield arrow(some)

    found: list[bytes] = []
    for batch in gathered(rows(), lambda _: aim):
        assert batch.num_rows
        found += batch.column(0).to_pylist()
        assert len(found) == taken, "nothing is held back behind what is handed out"
    assert found == [value for some in values for value in some]


def test_batches_that_are_large_enough_are_handed_on_as_they_are() -> None:
    batches = [arrow([b"x" * 100]), arrow([b"y" * 100])]
    same = zip(gathered(iter(batches), lambda _: 50), batches, strict=True)
    assert all(one is other for one, other in same)
    assert [batch.num_rows for batch in gathered(iter(batches), lambda _: 10_000)] == [2]


def test_more_is_gathered_for_more_partitions_and_nothing_for_rows_that_stay_together() -> None:
    assert bytes_aim(["value"], 100) == 0
    assert bytes_aim(["value", "key"], 3) == 3 * PARTITION_BYTES_AIM
    assert bytes_aim(["partition", "value"], 10_000) == GATHERED_BYTES_MAX
