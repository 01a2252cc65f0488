"""Remote segments of another history are never served, and lookups agree with a twin that looks at every offset."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.tier_lineage import RemoteLog, Verdict, log_start_after, verdict
from headrace.core.tier_rows import COPY_FINISHED, COPY_STARTED, DELETE_STARTED, SegmentRow
from tests.tier.rows import row

EPOCHS = ((1, 0), (3, 10), (5, 20))


def test_a_segment_within_the_epochs_of_its_leader_is_inside() -> None:
    for found in (
        row(1, 0, 9, (1, 0)),
        row(1, 5, 14, (1, 5), (3, 10)),
        row(1, 0, 29, *EPOCHS),
        row(1, 20, 29, (5, 20)),
    ):
        assert verdict(found, EPOCHS, 30) is Verdict.INSIDE


def test_a_segment_of_another_history_is_divergent() -> None:
    for found in (
        row(1, 5, 10, (1, 5)),  # goes on in an epoch that had ended
        row(1, 10, 15, (2, 10)),  # an epoch that the leader never saw
        row(1, 5, 14, (1, 5), (2, 8), (3, 10)),
        row(1, 8, 14, (1, 8), (3, 9)),
        row(1, 25, 29, (6, 25)),
        row(1, 5, 25, (1, 5), (5, 10)),
    ):
        assert verdict(found, EPOCHS, 30) is Verdict.DIVERGENT


def test_a_segment_beyond_the_end_of_the_log_is_told_apart() -> None:
    assert verdict(row(1, 25, 29, (5, 25)), EPOCHS, 29) is Verdict.BEYOND
    assert verdict(row(1, 25, 29, (5, 25)), EPOCHS, 30) is Verdict.INSIDE


def test_a_segment_before_the_first_known_epoch_is_told_apart() -> None:
    assert verdict(row(1, 0, 9, (1, 0)), EPOCHS[1:], 30) is Verdict.BEFORE
    assert verdict(row(1, 0, 9, (1, 0)), (), 0) is Verdict.BEFORE
    assert verdict(row(1, 8, 15, (1, 8)), EPOCHS[1:], 30) is Verdict.BEFORE


def test_what_lies_below_the_log_start_is_neither_judged_nor_served() -> None:
    over_the_start = row(1, 5, 19, (1, 5), (3, 10))
    epochs = ((3, 14), (5, 20))
    assert verdict(over_the_start, epochs, 30) is Verdict.INSIDE
    remote = RemoteLog([over_the_start], epochs, 30)
    assert remote.row_for(13) is None
    assert remote.row_at(3, 14) == over_the_start
    assert remote.first_offset() == 14


def test_only_finished_segments_are_served() -> None:
    rows = [row(1, 0, 9, (1, 0), state=COPY_STARTED), row(2, 10, 19, (3, 10), state=DELETE_STARTED)]
    remote = RemoteLog(rows, EPOCHS, 30)
    assert remote.rows == []
    assert remote.first_offset() == remote.highest_offset(0) == -1


def test_a_lookup_names_the_epoch_of_the_offset() -> None:
    remote = RemoteLog([row(1, 5, 14, (1, 5), (3, 10))], EPOCHS, 30)
    assert remote.row_at(1, 9) == remote.row_at(3, 10) == remote.rows[0]
    assert remote.row_at(3, 9) is remote.row_at(1, 10) is remote.row_at(1, 4) is remote.row_at(3, 15) is None


def test_the_highest_offset_ends_at_a_gap() -> None:
    """A local segment may be deleted up to it: behind a gap that would make a hole."""
    rows = [row(1, 0, 4, (1, 0)), row(2, 5, 12, (1, 5), (3, 10)), row(3, 15, 19, (3, 15))]
    remote = RemoteLog(rows, EPOCHS, 30)
    assert remote.highest_offset(0) == remote.highest_offset(7) == 12
    assert remote.highest_offset(13) == -1
    assert remote.highest_offset(15) == 19


def test_the_log_start_moves_behind_all_that_goes_and_never_back() -> None:
    doomed = [row(1, 0, 9), row(2, 5, 14), row(3, 2, 3)]
    assert log_start_after(doomed, 3) == 15
    assert log_start_after(doomed, 20) == 20
    assert log_start_after([], 3) == 3


# A model: histories are lists of the epoch of each offset.

OFFSETS = 24
histories = st.lists(st.integers(0, 5), min_size=1, max_size=OFFSETS).map(sorted)


def entries(history: list[int], first: int, last: int) -> tuple[tuple[int, int], ...]:
    changes = [at for at in range(first, last + 1) if at == first or history[at] != history[at - 1]]
    return tuple((history[at], at) for at in changes)


@st.composite
def remote_rows(draw: st.DrawFn) -> list[SegmentRow]:
    made = []
    for number in range(draw(st.integers(0, 6))):
        history = draw(histories)
        base = draw(st.integers(0, len(history) - 1))
        end = draw(st.integers(base, len(history) - 1))
        state = draw(st.sampled_from([COPY_FINISHED, COPY_FINISHED, COPY_STARTED, DELETE_STARTED]))
        made.append(row(number, base, end, *entries(history, base, end), state=state))
    return made


def epoch_in(found: SegmentRow, offset: int) -> int:
    return max(epoch for epoch, start in found.epochs if start <= offset)


@given(remote_rows(), histories, st.data())
def test_lookups_agree_with_a_twin_that_looks_at_every_offset(
    rows: list[SegmentRow], history: list[int], data: st.DataObject
) -> None:
    log_start = data.draw(st.integers(0, len(history) - 1))
    log_end = len(history)
    remote = RemoteLog(rows, entries(history, log_start, log_end - 1), log_end)

    def belongs(found: SegmentRow) -> bool:
        judged = range(max(found.base_offset, log_start), found.end_offset + 1)
        same = all(at < log_end and history[at] == epoch_in(found, at) for at in judged)
        return found.state is COPY_FINISHED and len(judged) > 0 and same

    served = [found for found in rows if belongs(found)]
    for offset in range(OFFSETS + 1):
        ends = [found.end_offset for found in served if max(found.base_offset, log_start) <= offset <= found.end_offset]
        answer = remote.row_for(offset)
        assert (answer.end_offset if answer else None) == max(ends, default=None)
        for epoch in range(6):
            is_of_epoch = answer is not None and history[offset] == epoch
            assert remote.row_at(epoch, offset) == (answer if is_of_epoch else None)
    highest = remote.highest_offset(log_start)
    covered = [any(one.base_offset <= at <= one.end_offset for one in served) for at in range(log_start, OFFSETS + 1)]
    assert highest == (log_start + covered.index(False) - 1 if covered[0] else -1)
