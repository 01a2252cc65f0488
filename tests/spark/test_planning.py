"""From ranges to pieces: none twice, none left out."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from headrace.model import TopicPartition
from headrace.spark.planning import Piece, Range, plan

ID = bytes(range(16))


def of(partition: int, start: int, end: int) -> Range:
    return Range(TopicPartition("t", partition), ID, start, end)


sizes = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=6)
limits = st.none() | st.integers(1, 40)


@given(sizes, limits, limits)
def test_pieces_cover_all_ranges_once(spans: list[tuple[int, int]], least: int | None, most: int | None) -> None:
    ranges = [of(at, start, start + size) for at, (start, size) in enumerate(spans)]
    pieces = plan(ranges, least, most)
    for one in ranges:
        mine = [piece.range for piece in pieces if piece.range.partition == one.partition]
        assert [(part.start, part.topic_id) for part in mine] == [
            (start, ID) for start in [one.start, *(part.end for part in mine[:-1])][: len(mine)]
        ]
        assert not one.size or mine[-1].end == one.end
    assert all(piece.range.size > 0 for piece in pieces)
    assert most is None or all(piece.range.size <= most for piece in pieces)
    total = sum(one.size for one in ranges)
    assert least is None or len(pieces) >= min(least, total)


def test_without_limits_a_partition_is_a_task() -> None:
    assert plan([of(1, 0, 10), of(0, 5, 6), of(2, 3, 3)], None, None) == [Piece(of(0, 5, 6)), Piece(of(1, 0, 10))]


def test_large_partitions_are_cut_into_more_tasks() -> None:
    pieces = plan([of(0, 0, 900), of(1, 0, 100)], 10, None)
    assert [piece.range.partition.partition for piece in pieces] == [0] * 9 + [1]


class Whole(Piece):
    """Read from an object, and therefore not cut anywhere."""

    def cut(self, starts: Sequence[int]) -> list[Piece]:
        assert starts
        return [self]


def test_what_is_cold_is_planned_as_objects_and_the_rest_is_fetched() -> None:
    """The seam for the tier: pieces that cover a range from its start as far as they come."""

    def cold(ranges: Sequence[Range]) -> dict[Range, Sequence[Piece]]:
        (wanted,) = ranges
        ends = [end for end in (40, 80) if wanted.start < end <= wanted.end]
        return {wanted: [Whole(of(0, start, end)) for start, end in zip([wanted.start, *ends], ends, strict=False)]}

    pieces = plan([of(0, 10, 100)], None, None, cold)
    assert pieces == [Whole(of(0, 10, 40)), Whole(of(0, 40, 80)), Piece(of(0, 80, 100))]
    assert [type(piece) for piece in plan([of(0, 10, 100)], 5, None, cold)][:2] == [Whole, Whole]
    assert plan([of(0, 10, 30)], None, None, cold) == [Piece(of(0, 10, 30))]
