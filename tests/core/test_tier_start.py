from headrace.core.tier_rows import COPY_STARTED, DELETE_STARTED
from headrace.core.tier_start import (
    NotYet,
    OffsetAndEpoch,
    StartAt,
    StartBehind,
    begins_behind_tier,
    earliest_pending_upload,
    epoch_before,
    is_inside,
    segments_with,
    start_by_earliest_local,
    start_by_pending_upload,
)
from tests.tier.rows import row

NOT_KNOWN = OffsetAndEpoch(-1, -1)


# Whether.


def test_an_empty_follower_begins_behind_the_tier_only_if_it_is_told_to() -> None:
    """T9-2"""
    assert begins_behind_tier(True, True, False, own_end=0, leader_end=200)
    assert not begins_behind_tier(False, True, False, own_end=0, leader_end=200)


def test_untiered_and_compacted_topics_and_empty_leaders_are_unaffected() -> None:
    assert not begins_behind_tier(True, False, False, own_end=0, leader_end=200)
    assert not begins_behind_tier(True, True, True, own_end=0, leader_end=200)
    assert not begins_behind_tier(True, True, False, own_end=0, leader_end=0)


def test_a_follower_with_records_is_unaffected() -> None:
    """T9-6"""
    assert not begins_behind_tier(True, True, False, own_end=1, leader_end=200)


# What the leader answers.


def test_the_first_offset_that_is_not_remote() -> None:
    assert earliest_pending_upload(True, 179, 0, 150) == 180


def test_what_was_deleted_needs_no_upload() -> None:
    assert earliest_pending_upload(True, 179, 185, 185) == 185
    assert earliest_pending_upload(True, -1, 7, 7) == 7


def test_a_leader_of_an_untiered_topic_knows_of_no_upload() -> None:
    assert earliest_pending_upload(False, None, 0, 0) == -1


def test_a_fresh_leader_without_a_seam_has_nothing_tiered_and_with_one_does_not_know() -> None:
    """T9-3 and T9-4"""
    assert earliest_pending_upload(True, None, 5, 5) == 5
    assert earliest_pending_upload(True, None, 5, 150) == -1


# What the follower makes of it.


def test_it_begins_behind_the_last_tiered_offset() -> None:
    """T9-1: log start 0, local 150, first offset not uploaded 180."""
    assert start_by_pending_upload(OffsetAndEpoch(180, 3), 0, 150) == StartBehind(180, 3)


def test_where_nothing_is_tiered_it_begins_at_the_log_start() -> None:
    """T9-3"""
    assert start_by_pending_upload(OffsetAndEpoch(20, 3), 20, 20) == StartAt(20)
    assert start_by_pending_upload(NOT_KNOWN, 20, 20) == StartAt(20)


def test_it_tries_again_while_the_leader_does_not_know_what_is_tiered() -> None:
    """T9-4"""
    assert isinstance(start_by_pending_upload(NOT_KNOWN, 0, 150), NotYet)
    assert start_by_pending_upload(OffsetAndEpoch(180, 3), 0, 150) == StartBehind(180, 3)


def test_by_default_it_begins_where_the_leaders_disk_does() -> None:
    """T9-2"""
    assert start_by_earliest_local(OffsetAndEpoch(150, 2), 0, 10) == StartBehind(150, 2)
    assert start_by_earliest_local(OffsetAndEpoch(150, 2), 150, 10) == StartAt(150)


def test_a_log_that_reaches_the_leaders_disk_after_all_goes_on() -> None:
    assert start_by_earliest_local(OffsetAndEpoch(150, 2), 0, 150) == StartAt(150)


# Which segment.


def test_the_record_before_the_start_may_be_of_an_earlier_epoch() -> None:
    start = StartBehind(150, 3)
    assert epoch_before(start, 2, 150) == 2
    assert epoch_before(start, 1, 150) == 1
    assert epoch_before(start, 2, 149) == 3
    assert epoch_before(start, -1, -1) == 3


def test_a_segment_is_found_by_offset_and_epoch() -> None:
    rows = [row(1, 0, 99, (0, 0)), row(2, 100, 199, (0, 100), (2, 150)), row(3, 100, 299, (1, 100))]
    assert segments_with(rows, 0, 149) == [rows[1]]
    assert segments_with(rows, 2, 150) == [rows[1]]
    assert segments_with(rows, 2, 149) == []
    assert segments_with(rows, 1, 149) == [rows[2]]


def test_of_segments_that_overlap_the_one_that_goes_on_for_longest_comes_first() -> None:
    rows = [row(1, 0, 99), row(2, 50, 149), row(3, 0, 80)]
    assert segments_with(rows, 0, 70) == [rows[1], rows[0], rows[2]]


def test_segments_that_are_not_finished_or_on_their_way_out_do_not_count() -> None:
    rows = [row(1, 0, 99, state=COPY_STARTED), row(2, 0, 99, state=DELETE_STARTED)]
    assert segments_with(rows, 0, 50) == []


def test_a_segment_whose_end_the_leader_does_not_have_is_of_another_history() -> None:
    """An unclean election: the leader's epoch 5 ended at 150, where 7 began, and the segment goes on in epoch 6."""
    divergent = row(1, 100, 200, (5, 100), (6, 150))
    assert not is_inside(divergent, 139, {5: (5, 150), 6: (5, 150)})
    assert is_inside(divergent, 139, {5: (5, 150), 6: (6, 201)})
    assert not is_inside(divergent, 139, {5: (5, 150), 6: (6, 200)})


def test_a_segment_that_goes_beyond_the_leaders_end_of_its_epoch_is_not_taken() -> None:
    assert not is_inside(row(1, 100, 200, (5, 100)), 139, {5: (5, 180)})


def test_epochs_that_end_before_the_record_need_not_be_known_any_more() -> None:
    """The leader's log begins at 150: of what is older it only knows that it is older."""
    assert is_inside(row(1, 100, 200, (5, 100), (6, 140)), 160, {5: (5, 150), 6: (6, 300)})
    assert is_inside(row(1, 100, 200, (5, 100), (6, 140)), 160, {6: (6, 300)})


def test_what_the_leader_does_not_answer_is_not_taken_for_granted() -> None:
    assert not is_inside(row(1, 100, 200), 160, {})
