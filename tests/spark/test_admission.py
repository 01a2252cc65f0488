"""How much one micro-batch takes."""

import time

from hypothesis import given
from hypothesis import strategies as st

from headrace.model import TopicPartition
from headrace.spark.admission import Admission, share_out

A, B, C = (TopicPartition("t", index) for index in range(3))


def admission(
    *, most: int | None = None, least: int | None = None, delay_ms: int = 1_000, size: int | None = None
) -> Admission:
    return Admission(most, least, delay_ms, size)


def test_each_partition_gives_by_its_share() -> None:
    begins, latest = {A: 0, B: 100, C: 5}, {A: 600, B: 400, C: 5}
    assert admission(most=90).ends(begins, latest, {}, 0) == {A: 60, B: 130, C: 5}
    assert admission(most=900).ends(begins, latest, {}, 0) == latest
    assert admission().ends(begins, latest, {}, 0) == latest


def test_a_small_partition_does_not_wait_for_ever_beside_a_large_one() -> None:
    assert share_out({A: 0, B: 0}, {A: 1_000_000, B: 1}, 10) == {A: 9, B: 1}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1_000)), min_size=1, max_size=6), st.integers(1, 500))
def test_a_share_goes_forward_and_not_too_far(spans: list[tuple[int, int]], limit: int) -> None:
    begins = {TopicPartition("t", at): begin for at, (begin, _) in enumerate(spans)}
    latest = {TopicPartition("t", at): begin + size for at, (begin, size) in enumerate(spans)}
    total = sum(size for _, size in spans)
    if total == 0:
        return
    ends = share_out(begins, latest, limit)
    taken = sum(ends[one] - begins[one] for one in ends)
    assert all(begins[one] <= ends[one] <= latest[one] for one in latest)
    assert min(limit, total) <= taken <= limit + len(spans)


def test_many_partitions_are_shared_out_in_no_time() -> None:
    """In twice the time if there are twice as many; by their squares it would be a minute."""
    begins = {TopicPartition("t", index): 0 for index in range(30_000)}
    latest = dict.fromkeys(begins, 7)
    began = time.process_time()
    ends = share_out(begins, latest, 100_000)
    assert time.process_time() - began < 5
    assert sum(ends.values()) == 100_000


def test_too_few_records_wait_for_more_but_not_for_ever() -> None:
    waiting = admission(least=10, delay_ms=1_000)
    assert waiting.ends({A: 0}, {A: 3}, {}, 100) == {A: 3}  # the first batch, as in Spark's own connector
    assert waiting.ends({A: 3}, {A: 5}, {}, 200) == {A: 3}
    assert waiting.ends({A: 3}, {A: 9}, {}, 1_099) == {A: 3}
    assert waiting.ends({A: 3}, {A: 9}, {}, 1_100) == {A: 9}
    assert waiting.ends({A: 9}, {A: 12}, {}, 1_200) == {A: 9}
    assert waiting.ends({A: 9}, {A: 19}, {}, 1_300) == {A: 19}
    assert waiting.ends({A: 19}, {A: 20}, {}, 1_400, may_wait=False) == {A: 20}


def test_bytes_are_counted_by_what_a_record_has_on_average() -> None:
    assert admission(size=1_000).ends({A: 0}, {A: 500}, {A: 100.0}, 0) == {A: 10}
    assert admission(size=10).ends({A: 0}, {A: 500}, {A: 100.0}, 0) == {A: 1}
    assert admission(size=1_000, most=3).ends({A: 0}, {A: 500}, {A: 100.0}, 0) == {A: 3}
    assert admission(size=1_000_000).ends({A: 0}, {A: 500}, {}, 0) == {A: 100}  # where nobody tells the size
