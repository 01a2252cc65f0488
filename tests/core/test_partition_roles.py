"""A partition that leads, follows and changes between them: what clients and followers are told."""

import pytest

from headrace.core.cluster import PartitionRecord
from headrace.core.partition import Partition
from headrace.errors import ErrorCode
from tests.core.replicas import fetched, nodes_with, record
from tests.core.test_partition import FakeLog, partition_with

NOW = 1_000_000
NODES = nodes_with(0, 1, 2)


def led(first: PartitionRecord | None = None, **settings: str) -> Partition[FakeLog]:
    """A follower whose log ends at 10 with high watermark 6, and which then leads."""
    partition = partition_with(**settings)
    partition.stop_serving()
    partition.log_found(0, 10, 6)
    assert partition.lead(first or record(0, 1, leader_epoch=8), 10, NOW, NODES)
    return partition


def test_what_is_not_led_answers_six_after_the_epochs_were_compared() -> None:
    partition = led()
    partition.follow(record(0, 1, leader=1, leader_epoch=9, partition_epoch=2))
    assert partition.gate(8) is ErrorCode.FENCED_LEADER_EPOCH
    assert partition.gate(10) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert partition.gate(9) is partition.gate(-1, by_follower=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not partition.is_leading and partition.leadership is None


def test_nobody_leads_from_a_record_of_another_registration() -> None:
    partition = led()
    assert not partition.lead(record(0, 1, leader_epoch=8, partition_epoch=2), 99, NOW, NODES)
    assert partition.gate(8) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_guard_is_open_until_the_high_watermark_reaches_where_the_leadership_began() -> None:
    partition = led()
    assert partition.is_list_guarded and partition.high_watermark == 6
    assert partition.leadership is not None
    fetched(partition.leadership, 1, 10, NOW)
    assert partition.commit(NOW)
    assert partition.high_watermark == 10 and not partition.is_list_guarded


def test_a_topic_that_allows_unclean_elections_has_no_guard() -> None:
    assert not led(unclean_leader_election_enable="true").is_list_guarded


def test_a_new_epoch_without_a_gap_does_not_guard_again_but_one_after_a_gap_does() -> None:
    partition = led()
    assert partition.leadership is not None
    fetched(partition.leadership, 1, 10, NOW)
    partition.commit(NOW)
    partition.assigned_end_offset = 12
    partition.written_up_to(12, NOW)
    partition.lead(record(0, 1, leader_epoch=9, partition_epoch=2), 10, NOW, NODES)
    assert not partition.is_list_guarded and partition.leadership.epoch_start_offset == 12
    partition.stop_serving()
    partition.log_found(0, 12, 10)
    partition.lead(record(0, 1, leader_epoch=10, partition_epoch=3), 10, NOW, NODES)
    assert partition.is_list_guarded


@pytest.mark.parametrize(
    ("scope", "timestamp", "found", "refused"),
    [
        *(("all", timestamp, 0, True) for timestamp in (-1, -2, -3, -4, -5, -6, 5)),
        ("latest", -1, 6, True),
        ("latest", -2, 0, False),
        ("latest", -4, 0, False),
        *(("latest", timestamp, 5, False) for timestamp in (-3, -5, -6, 5)),
        *(("latest", timestamp, 6, True) for timestamp in (-3, -5, -6, 5)),
        *(("latest", timestamp, None, True) for timestamp in (-3, -5, -6, 5)),
    ],
)
def test_the_scope_says_which_lookups_are_refused(scope: str, timestamp: int, found: int | None, refused: bool) -> None:
    assert led().list_guard_refuses(scope, timestamp, found, 6) is refused


def test_a_leader_that_stepped_down_serves_followers_only_until_a_newer_record() -> None:
    partition = led()
    assert partition.step_down(7, NOW) is ErrorCode.INVALID_UPDATE_VERSION
    assert partition.step_down(1, NOW) is ErrorCode.NONE
    assert partition.gate(8) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.gate(8, by_follower=True) is ErrorCode.NONE and partition.is_leading
    partition.lead(record(0, 1, leader_epoch=8, partition_epoch=2), 10, NOW, NODES)
    assert partition.gate(8) is ErrorCode.NONE


def test_too_few_in_sync_replicas_refuse_before_the_append_and_after_it() -> None:
    partition = led(record(0, leader_epoch=8), min_insync_replicas="2")
    assert partition.refuses_acks_all() and partition.lacks_acks_all()
    assert partition.high_watermark == 6
    partition.lead(record(0, 1, leader_epoch=8, partition_epoch=2), 10, NOW, NODES)
    assert not partition.refuses_acks_all() and not partition.lacks_acks_all()


def test_a_follower_shows_what_the_leader_committed_within_its_own_log() -> None:
    partition = led()
    partition.follow(record(0, 1, leader=1, leader_epoch=9, partition_epoch=2))
    partition.log_found(0, 10, 6)
    assert partition.follower_appended(12, 20, 3)
    assert (partition.high_watermark, partition.log_start_offset) == (12, 3)
    assert not partition.follower_appended(12, 4, 0)
    assert partition.high_watermark == 12
    partition.truncated_to(2)
    assert (partition.log_start_offset, partition.high_watermark, partition.log_end_offset) == (2, 2, 2)
    partition.restarted_at(30)
    assert (partition.log_start_offset, partition.high_watermark, partition.assigned_end_offset) == (30, 30, 30)


def test_a_disk_that_fails_under_a_follower_is_told_when_it_leads() -> None:
    partition = led()
    partition.follow(record(0, 1, leader=1, leader_epoch=9, partition_epoch=2))
    partition.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert partition.gate(9) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.lead(record(0, 1, leader_epoch=10, partition_epoch=3), 10, NOW, NODES)
    assert partition.gate(10) is partition.gate(10, by_follower=True) is ErrorCode.KAFKA_STORAGE_ERROR


def test_bytes_that_wait_for_their_sync_are_behind_the_new_epoch_and_do_not_count() -> None:
    partition = partition_with()
    partition.stop_serving()
    partition.log_found(0, 10, 6)
    partition.log.log_end_offset = 14  # fetched, and not synced yet
    assert partition.lead(record(0, 1, leader_epoch=8), 10, NOW, NODES)
    assert (partition.log_end_offset, partition.assigned_end_offset) == (10, 14)
    assert partition.log.epochs.entries[-1] == (8, 14)
    assert partition.leadership is not None
    assert partition.leadership.epoch_start_offset == partition.leadership.list_guard == 14
    fetched(partition.leadership, 1, 14, NOW)
    partition.commit(NOW)
    assert partition.high_watermark == 10
    partition.stop_serving()
    assert (partition.log_end_offset, partition.assigned_end_offset) == (10, 14)
