"""From ranges to pieces: none twice, none left out."""

from collections.abc import Iterable, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.tier_lineage import RemoteLog
from headrace.core.tier_rows import COPY_FINISHED, Sections, SegmentRow
from headrace.model import TopicPartition
from headrace.spark.options import Connection
from headrace.spark.planning import Piece, Range, plan
from headrace.spark.tier_planning import INDEXES_MAX, PIECE_BYTES_MAX, Aborts, TierPiece, cold_of
from headrace.spark.tier_view import Remote
from headrace.tier.segment_reading import AbortIndex

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


class Looked(RemoteLog):
    times = 0

    def rows_from(self, offset: int) -> list[SegmentRow]:
        type(self).times += 1
        return super().rows_from(offset)


def test_segments_of_the_tier_are_looked_through_once_for_what_was_aborted_in_them() -> None:
    """And not for each piece anew, of which there may be as many as segments. Each has no aborts, or its own."""
    rows = [segment(at, has_aborts=at % 3 != 0) for at in range(100)]
    keys = {row.id: f"object {row.id}" for row in rows}
    remote = Remote(ID, 0, "s3://b", 995, Looked(rows, [(0, 0)], 1_200), keys, ())
    view = OneView(remote)
    pieces = plan([of(0, 15, 1_100)], None, None, cold_of(view, Connection("h:1", is_read_committed=True)))
    assert Looked.times == 1
    for piece in pieces[:-1]:
        assert isinstance(piece, TierPiece)
        (part,) = piece.parts
        own = [row for row in rows if row.end_offset >= part.start and row.sections.txnindex]
        expected = [AbortIndex(keys[row.id], row.sections.txnindex) for row in own if row.sections.txnindex]
        assert piece.aborts == Aborts(tuple(expected[:INDEXES_MAX]), (), len(expected) <= INDEXES_MAX)
    assert [piece.range.start for piece in pieces] == [15, *range(20, 1_000, 10), 995]


def segment(at: int, *, has_aborts: bool) -> SegmentRow:
    """Of ten records, so large that it is a piece of its own."""
    place = (0, 10)
    sections = Sections(place, place, place, place if has_aborts else None, None, place)
    return SegmentRow(f"{at}", 10 * at, 10 * at + 9, PIECE_BYTES_MAX, 0, ((0, 10 * at),), COPY_FINISHED, -1, sections)


class OneView:
    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def local_starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._remote.local_start)

    def remote(self, local_starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, Remote]:
        return dict.fromkeys(local_starts, self._remote)
