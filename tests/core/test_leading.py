"""A leader's account of its followers: high watermark, ISR, proposals, stepping down. Without sessions or disks."""

import pytest

from headrace.core.cluster import BrokerGone, BrokerPut, ClusterImage, IsrMember, PartitionRecord, RegisteredBroker
from headrace.core.leading import FollowerState, Leadership, Proposal
from headrace.errors import ErrorCode
from tests.core.replicas import LAG_MS, T, fetched, nodes_with, record

NOW = 1_000_000


def leading(isr: tuple[int, ...] = (0, 1, 2), *, log_end: int = 10, nodes: ClusterImage | None = None) -> Leadership:
    return Leadership(record(*isr), T, 0, nodes or nodes_with(0, 1, 2), log_end, NOW, LAG_MS)


def wanted(leadership: Leadership, now_ms: int = NOW, log_end: int = 10, hw: int = 10) -> Proposal | None:
    return leadership.wanted_change(now_ms, log_end=log_end, high_watermark=hw, log_start=0)


def test_members_with_unknown_offsets_hold_the_high_watermark() -> None:
    led = leading()
    assert led.high_watermark(10, 4, 1, NOW) == 4
    fetched(led, 1, 8, NOW)
    assert led.high_watermark(10, 4, 1, NOW) == 4
    fetched(led, 2, 9, NOW)
    assert led.high_watermark(10, 4, 1, NOW) == 8
    assert led.high_watermark(10, 9, 1, NOW) == 9


def test_a_leader_is_followed_when_every_member_has_asked_in_its_time() -> None:
    leadership = leading()
    assert not leadership.is_followed_to(10)
    leadership.followers[1].offset = 10
    assert not leadership.is_followed_to(10)
    leadership.followers[2].offset = 9
    assert leadership.is_followed_to(9) and not leadership.is_followed_to(10)
    leadership.followers[2].offset = 11
    assert leadership.is_followed_to(10)
    assert leading(isr=(0,)).is_followed_to(10)


def test_the_high_watermark_is_frozen_below_the_least_isr() -> None:
    led = leading((0,))
    assert led.high_watermark(10, 4, 2, NOW) == 4
    assert led.high_watermark(10, 4, 1, NOW) == 10
    assert led.is_under_min_isr(2) and not led.is_under_min_isr(1)
    assert Leadership(PartitionRecord((0,), (IsrMember(0, 10),), 0), T, 0, nodes_with(0), 5, NOW).isr_min(3) == 1


def test_a_caught_up_follower_outside_the_isr_holds_it_back_only_while_it_may_join() -> None:
    nodes = nodes_with(0, 1, 2)
    led = leading((0,), nodes=nodes)
    fetched(led, 1, 10, NOW)
    assert led.high_watermark(12, 4, 1, NOW) == 10
    assert led.high_watermark(12, 4, 1, NOW + LAG_MS + 1) == 12
    led = leading((0,), nodes=nodes)
    fetched(led, 1, 10, NOW)
    nodes.apply([BrokerGone(1)])
    assert led.high_watermark(12, 4, 1, NOW) == 12


def test_a_fenced_member_holds_it_until_the_record_without_it_is_committed() -> None:
    nodes = nodes_with(0, 1)
    led = leading((0, 1), nodes=nodes)
    fetched(led, 1, 10, NOW)
    nodes.apply([BrokerGone(1)])
    assert led.high_watermark(15, 10, 1, NOW) == 10
    proposal = wanted(led, log_end=15)
    assert proposal is not None and [member.broker_id for member in proposal.isr] == [0]
    led.proposed(proposal, NOW)
    assert led.high_watermark(15, 10, 1, NOW) == 10
    led.adopt(record(0, partition_epoch=2), 15, NOW)
    assert led.high_watermark(15, 10, 1, NOW) == 15


def test_a_proposed_member_counts_for_the_high_watermark_but_not_for_the_least_isr() -> None:
    led = leading((0,))
    fetched(led, 1, 10, NOW)
    proposal = wanted(led)
    assert proposal == Proposal((IsrMember(0, 10), IsrMember(1, 11)), 1, 1)
    led.proposed(proposal, NOW)
    assert wanted(led) is None
    assert led.maximal_isr == {0, 1}
    assert led.is_under_min_isr(2) and not led.is_maximal_isr_under_min(2)
    assert led.high_watermark(20, 10, 1, NOW + 10 * LAG_MS) == 10


def test_a_follower_joins_when_it_has_what_is_committed_and_the_start_of_the_epoch() -> None:
    led = leading((0,), log_end=10)
    fetched(led, 1, 9, NOW)
    assert wanted(led, hw=5) is None  # the epoch began at 10
    fetched(led, 1, 10, NOW)
    assert wanted(led, log_end=20, hw=11) is None
    assert wanted(led, log_end=20, hw=10) is not None
    fetched(led, 1, 10, NOW, log_start=3)
    assert led.joining(10, 10, 4, NOW) == []
    assert led.joining(10, 10, 3, NOW) == [(1, 11)]


def test_what_an_earlier_registration_fetched_lets_nobody_join() -> None:
    nodes = nodes_with(0, 1)
    led = leading((0,), nodes=nodes)
    fetched(led, 1, 10, NOW)
    nodes.apply([BrokerPut(RegisteredBroker(1, 31, "h", 9092, None))])
    assert wanted(led) is None
    fetched(led, 1, 10, NOW, broker_epoch=31)
    assert wanted(led) is not None


def test_members_leave_when_they_lag_or_are_not_live() -> None:
    nodes = nodes_with(0, 1, 2)
    led = leading(nodes=nodes)
    fetched(led, 1, 10, NOW)
    fetched(led, 2, 5, NOW)
    assert led.out_of_sync(10, NOW + LAG_MS) == set()
    assert led.out_of_sync(10, NOW + LAG_MS + 1) == {2}
    nodes.apply([BrokerGone(1)])
    assert led.out_of_sync(10, NOW) == {1}
    assert led.out_of_sync(10, NOW, spared=frozenset({1})) == set()


def test_a_refused_member_stays_in_the_maximal_isr_until_the_resume_is_committed() -> None:
    led = leading((0,))
    fetched(led, 1, 10, NOW)
    first = wanted(led)
    assert first is not None
    led.proposed(first, NOW)
    assert led.answered(ErrorCode.INELIGIBLE_REPLICA, first, NOW) == "resume"
    resume = led.resume()
    assert resume == Proposal((IsrMember(0, 10),), 1, 1, resume=True)
    led.proposed(resume, NOW)
    assert led.answered(ErrorCode.INELIGIBLE_REPLICA, first, NOW) == "ignore"
    assert led.maximal_isr == {0, 1}
    led.adopt(record(0, partition_epoch=2), 10, NOW)
    assert led.maximal_isr == {0} and not led.is_pending
    assert led.answered(ErrorCode.INELIGIBLE_REPLICA, first, NOW) == "ignore"
    # No loop faster than a second, unless the node registers again.
    assert wanted(led, NOW + 999) is None
    assert wanted(led, NOW + 1000) is not None


def test_a_refused_member_is_proposed_again_at_once_when_its_registration_changed() -> None:
    nodes = nodes_with(0, 1)
    led = leading((0,), nodes=nodes)
    fetched(led, 1, 10, NOW)
    first = wanted(led)
    assert first is not None
    led.proposed(first, NOW)
    led.answered(ErrorCode.INELIGIBLE_REPLICA, first, NOW)
    led.adopt(record(0, partition_epoch=2), 10, NOW)
    nodes.apply([BrokerPut(RegisteredBroker(1, 31, "h", 9092, None))])
    fetched(led, 1, 10, NOW, broker_epoch=31)
    assert wanted(led) is not None


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (ErrorCode.OPERATION_NOT_ATTEMPTED, "resume"),
        (ErrorCode.INELIGIBLE_REPLICA, "resume"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "wait"),
        (ErrorCode.UNKNOWN_TOPIC_ID, "wait"),
        (ErrorCode.FENCED_LEADER_EPOCH, "wait"),
        (ErrorCode.INVALID_UPDATE_VERSION, "wait"),
        (ErrorCode.INVALID_REQUEST, "wait"),
        (ErrorCode.NEW_LEADER_ELECTED, "wait"),
        (ErrorCode.STALE_BROKER_EPOCH, "deposed"),
        (ErrorCode.REQUEST_TIMED_OUT, "retry"),
        (ErrorCode.NOT_CONTROLLER, "retry"),
    ],
)
def test_each_refusal_has_its_reaction_and_none_ends_what_is_pending(code: ErrorCode, reaction: str) -> None:
    led = leading((0,))
    fetched(led, 1, 10, NOW)
    proposal = wanted(led)
    assert proposal is not None
    led.proposed(proposal, NOW)
    assert led.answered(code, proposal, NOW) == reaction
    assert led.is_pending and led.maximal_isr == {0, 1}


def test_a_pending_change_without_a_record_is_looked_after_in_ten_seconds() -> None:
    led = leading((0,))
    fetched(led, 1, 10, NOW)
    proposal = wanted(led)
    assert proposal is not None
    led.proposed(proposal, NOW)
    assert not led.is_overdue(NOW + 10_000) and led.is_overdue(NOW + 10_001)
    assert led.read_from_store(NOW + 10_001) == proposal
    assert not led.is_overdue(NOW + 20_001)


def test_a_leader_elected_uncleanly_first_says_that_it_recovered() -> None:
    recovering = PartitionRecord((0, 1), (IsrMember(0, 10),), 0, 1, 1, recovering=True)
    led = Leadership(recovering, T, 0, nodes_with(0, 1), 10, NOW, LAG_MS)
    fetched(led, 1, 10, NOW)
    assert wanted(led) == Proposal((IsrMember(0, 10),), 1, 1)
    led.adopt(record(0, partition_epoch=2), 10, NOW)
    proposal = wanted(led)
    assert proposal is not None and [member.broker_id for member in proposal.isr] == [0, 1]


def test_a_leader_that_stepped_down_resumes_by_a_record_of_its_own_after_five_seconds() -> None:
    led = leading((0, 1))
    fetched(led, 1, 10, NOW)
    assert led.step_down(0, NOW) == ErrorCode.INVALID_UPDATE_VERSION
    assert led.step_down(1, NOW) == ErrorCode.NONE
    assert wanted(led, NOW + 4999) is None
    resume = wanted(led, NOW + 5000)
    assert resume is not None and resume.resume
    led.adopt(record(0, 1, partition_epoch=2), 10, NOW)
    assert led.stepped_down_ms is None


def test_a_new_epoch_of_the_same_leader_keeps_offsets_and_begins_the_lag_anew() -> None:
    led = leading((0, 1))
    fetched(led, 1, 10, NOW)
    fetched(led, 2, 10, NOW)
    led.adopt(record(0, 1, leader_epoch=2, partition_epoch=2), 14, NOW + 5)
    assert (led.epoch_start_offset, led.list_guard) == (14, 10)
    assert (led.followers[1].offset, led.followers[1].caught_up_ms) == (10, NOW + 5)
    assert led.followers[2].caught_up_ms == 0
    assert not led.adopt(record(0, partition_epoch=2), 14, NOW)


def test_replicas_come_and_go_with_the_record() -> None:
    led = leading((0, 1))
    grown = PartitionRecord((0, 1, 3), (IsrMember(0, 10), IsrMember(1, 11)), 0, 1, 2)
    led.adopt(grown, 10, NOW)
    assert list(led.followers) == [1, 3]


def test_a_follower_that_keeps_up_one_fetch_behind_stays_in_sync() -> None:
    led = leading((0, 1))
    follower = led.followers[1]
    for step in range(1, 20):
        fetched(led, 1, 10 * step, NOW + step * LAG_MS // 2, log_end=10 * step + 10)
    assert follower.caught_up_ms == NOW + 18 * LAG_MS // 2
    assert isinstance(follower, FollowerState)
