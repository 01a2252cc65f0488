"""What a leader copies to the tier, and what has had its time there."""

import msgspec
import pytest

from headrace.core.epochs import EpochEntry
from headrace.core.tier_lineage import RemoteLog
from headrace.core.tier_rows import COPY_STARTED, DELETE_STARTED, SegmentRow
from headrace.core.tiering import (
    Kept,
    LocalSegment,
    below,
    epochs_up_to,
    epochs_within,
    is_old,
    log_start_by_retention,
    log_start_without_hole,
    to_copy,
)
from tests.tier.rows import row

LOCAL = [LocalSegment(10 * n, 10 * n + 10, 100) for n in range(5)]
FOR_EVER = Kept(-1, -1)


def sized(number: int, base: int, end: int, max_timestamp_ms: int = 5, log_bytes: int = 100) -> SegmentRow:
    made = row(number, base, end)
    sections = msgspec.structs.replace(made.sections, log=(0, log_bytes))
    return msgspec.structs.replace(made, max_timestamp_ms=max_timestamp_ms, sections=sections)


def remote(*rows: SegmentRow, end: int = 1_000) -> RemoteLog:
    return RemoteLog(rows, [(0, 0)], end)


@pytest.mark.parametrize(
    ("tiered_up_to", "limit", "expected"),
    [
        (0, 50, [0, 10, 20, 30]),  # not the active one, and the one that was just rolled
        (20, 50, [20, 30]),
        (25, 50, [20, 30]),  # another leader had rolled elsewhere
        (0, 30, [0, 10, 20]),
        (0, 29, [0, 10]),  # a transaction is open in it, or not all of it is committed
        (40, 50, []),
        (60, 50, []),
    ],
)
def test_complete_committed_and_decided_segments_are_copied(tiered_up_to: int, limit: int, expected: list[int]) -> None:
    assert [segment.base_offset for segment in to_copy(LOCAL, tiered_up_to, limit)] == expected


def test_of_one_segment_or_none_nothing_is_copied() -> None:
    assert to_copy(LOCAL[:1], 0, 50) == to_copy([], 0, 0) == []


def test_a_row_has_the_epochs_that_lie_in_it() -> None:
    entries = [EpochEntry(0, 0), EpochEntry(2, 15), EpochEntry(3, 20), EpochEntry(7, 30)]
    assert epochs_within(entries, 10, 20) == ((0, 10), (2, 15))
    assert epochs_within(entries, 20, 30) == ((3, 20),)
    assert epochs_within(entries, 12, 40) == ((0, 12), (2, 15), (3, 20), (7, 30))
    assert epochs_up_to(entries, 30) == tuple(entries[:3])


def test_nothing_expires_without_a_limit() -> None:
    rows = remote(sized(1, 0, 9), sized(2, 10, 19))
    assert log_start_by_retention(rows, LOCAL, FOR_EVER, 0, 1 << 60) == 0
    assert log_start_by_retention(remote(), LOCAL, Kept(0, 0), 7, 1 << 60) == 7


def test_the_oldest_go_by_age_up_to_the_first_that_is_kept() -> None:
    rows = remote(sized(1, 0, 9, 100), sized(2, 10, 19, 300), sized(3, 20, 29, 100))
    assert log_start_by_retention(rows, LOCAL, Kept(100, -1), 0, 200) == 0
    assert log_start_by_retention(rows, LOCAL, Kept(100, -1), 0, 201) == 10
    assert log_start_by_retention(rows, LOCAL, Kept(100, -1), 0, 401) == 30


def test_bytes_count_once_whether_they_are_on_the_disk_too_or_not() -> None:
    rows = remote(sized(1, 0, 9), sized(2, 10, 19), sized(3, 20, 29))
    # 300 in the tier, and 200 of the two local segments that are not there.
    assert log_start_by_retention(rows, LOCAL, Kept(-1, 500), 0, 0) == 0
    assert log_start_by_retention(rows, LOCAL, Kept(-1, 401), 0, 0) == 0
    assert log_start_by_retention(rows, LOCAL, Kept(-1, 400), 0, 0) == 10
    assert log_start_by_retention(rows, LOCAL, Kept(-1, 0), 0, 0) == 30
    assert log_start_by_retention(rows, LOCAL, Kept(-1, 400), 10, 0) == 10, "what is gone does not count"


def test_records_from_the_future_or_without_a_time_count_from_their_copy() -> None:
    assert is_old(sized(1, 0, 9, -1), 500, 1_501)
    assert not is_old(sized(1, 0, 9, -1), 500, 1_500)
    assert is_old(sized(1, 0, 9, 1 << 50), 500, 1_501)


def test_what_lies_below_the_log_start_is_deleted_whatever_its_history() -> None:
    rows = [row(1, 0, 9), row(2, 0, 9, (7, 0)), row(3, 10, 19), row(4, 0, 9, state=COPY_STARTED)]
    assert [doomed.id for doomed in below(rows, 10)] == [rows[0].id, rows[1].id]
    assert below(rows, 9) == []
    assert below([row(5, 0, 9, state=DELETE_STARTED)], 10) == []


@pytest.mark.parametrize(
    ("rows", "log_start", "local", "expected"),
    [
        ([(0, 9), (10, 19)], 0, 20, 0),
        ([(0, 9), (10, 19)], 5, 15, 5),
        ([(0, 9), (12, 19)], 0, 20, 12),  # 10 and 11 are nowhere
        ([(0, 9), (12, 19)], 14, 20, 14),
        ([(0, 9)], 0, 20, 20),
        ([], 0, 20, 20),
        ([], 20, 20, 20),
        ([(5, 9), (10, 19)], 0, 20, 5),
        ([(0, 12), (10, 19)], 0, 20, 0),
    ],
)
def test_the_log_begins_behind_the_last_hole(
    rows: list[tuple[int, int]], log_start: int, local: int, expected: int
) -> None:
    known = remote(*(row(n, base, end) for n, (base, end) in enumerate(rows)))
    assert log_start_without_hole(known, log_start, local) == expected
