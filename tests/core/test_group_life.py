"""Members that live, fall silent, leave and come back."""

import pytest

from headrace.core.group import Group
from headrace.core.group_effects import Emptied, GroupState
from headrace.core.group_storing import restored, resume, snapshot
from headrace.errors import ErrorCode
from headrace.wire.group_records import group_value, read_group_value
from tests.core.group_stage import REBALANCE_MS, SESSION_MS, Stage, topics

NONE = ErrorCode.NONE


def test_a_silent_member_is_out_when_its_session_is_over_and_the_others_hear_of_it() -> None:
    stage = Stage()
    leader, silent = stage.stable(2)
    stage.pass_ms(SESSION_MS - 1)
    assert stage.beat(leader) == NONE
    stage.pass_ms(1)
    assert silent not in stage.group.members
    assert stage.beat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.beat(silent) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("sign", ["heartbeat", "commit", "sync", "join"])
def test_every_request_is_a_sign_of_life(sign: str) -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    for _ in range(5):
        stage.pass_ms(SESSION_MS - 1)
        stage.beat(leader)
        if sign == "heartbeat":
            stage.beat(follower)
        elif sign == "commit":
            assert stage.group.may_commit(follower, None, stage.group.generation, stage.now_ms) == NONE
        elif sign == "sync":
            assert stage.sync(follower).error == NONE
        else:
            assert stage.join(follower).error == NONE
    assert follower in stage.group.members


def test_a_member_whose_join_waits_does_not_expire() -> None:
    stage = Stage()
    leader, slow = stage.stable(2, rebalance_ms=REBALANCE_MS * 5)
    waiting = stage.join(leader, rebalance_ms=REBALANCE_MS * 5)
    for _ in range(20):
        stage.pass_ms(SESSION_MS - 1)
        assert stage.beat(slow) == ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting.waits and leader in stage.group.members


def test_a_member_whose_sync_waits_does_not_expire() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    stage.join(leader)
    stage.join(follower)
    waiting = stage.sync(follower)
    for _ in range(3):
        stage.pass_ms(SESSION_MS - 1)
        stage.beat(leader)
    assert waiting.waits and follower in stage.group.members


def test_a_leader_that_never_assigns_is_out_after_the_rebalance_timeout() -> None:
    """KAFKA-12890: it may send heartbeats for ever."""
    stage = Stage()
    leader, follower = stage.stable(2)
    stage.join(leader)
    stage.join(follower)
    waiting = stage.sync(follower)
    for _ in range(100):
        stage.pass_ms(1_000)
        if stage.beat(leader) == ErrorCode.UNKNOWN_MEMBER_ID:
            break
    assert waiting.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in stage.group.members
    assert stage.join(follower).error == NONE
    assert stage.group.leader == follower


def test_a_follower_that_never_asks_for_its_assignment_is_out_after_the_rebalance_timeout() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    stage.join(leader)
    stage.join(follower)
    assert stage.sync(leader, {}).error == NONE
    assert stage.is_in(GroupState.STABLE)
    for _ in range(100):
        stage.pass_ms(1_000)
        stage.beat(leader)
        if stage.beat(follower) == ErrorCode.UNKNOWN_MEMBER_ID:
            break
    assert follower not in stage.group.members and stage.is_in(GroupState.PREPARING)


def test_timers_of_members_that_are_gone_do_nothing() -> None:
    """KAFKA-8896, KAFKA-7196."""
    stage = Stage()
    leader, follower = stage.stable(2)
    stage.leave(follower)
    stage.join(leader)
    stage.sync_all([leader])
    generation = stage.group.generation
    for _ in range(10):
        stage.pass_ms(SESSION_MS // 2)
        assert stage.beat(leader) == NONE
    assert stage.group.generation == generation


def test_old_generations_unknown_members_and_other_instances_are_told_so() -> None:
    """Tgrp-4, and the same of heartbeats and syncs."""
    stage = Stage()
    (leader,) = stage.stable()
    old = stage.group.generation - 1
    now_ms = stage.now_ms
    assert stage.beat(leader, old) == ErrorCode.ILLEGAL_GENERATION
    assert stage.sync(leader, generation=old).error == ErrorCode.ILLEGAL_GENERATION
    assert stage.group.may_commit(leader, None, old, now_ms) == ErrorCode.ILLEGAL_GENERATION
    assert stage.beat("somebody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.sync("somebody").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.group.may_commit("somebody", None, stage.group.generation, now_ms) == ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.group.may_commit("", None, -1, now_ms) == ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.group.may_commit("", None, -1, now_ms, in_transaction=True) == NONE
    assert stage.beat(leader, instance_id="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.leave("somebody") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_for_another_protocol_is_refused() -> None:
    stage = Stage()
    (leader,) = stage.stable()
    assert stage.sync(leader, protocol=("consumer", "range")).error == NONE
    for protocol in (("connect", None), (None, "sticky")):
        assert stage.sync(leader, protocol=protocol).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_offsets_are_committed_in_every_state_but_between_join_and_sync() -> None:
    stage = Stage()
    assert stage.group.may_commit("", None, -1, stage.now_ms) == NONE
    leader, follower = stage.stable(2)
    assert stage.group.may_commit(leader, None, stage.group.generation, stage.now_ms) == NONE
    stage.join(leader)
    assert stage.group.may_commit(follower, None, stage.group.generation, stage.now_ms) == NONE
    stage.join(follower)
    refused = stage.group.may_commit(leader, None, stage.group.generation, stage.now_ms)
    assert refused == ErrorCode.REBALANCE_IN_PROGRESS


def test_who_leaves_is_out_at_once_and_the_last_one_leaves_an_empty_group_in_the_log() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    generation = stage.group.generation
    assert stage.leave(follower) == NONE
    assert stage.beat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.leave(leader) == NONE
    assert stage.is_in(GroupState.EMPTY) and stage.group.generation == generation + 1
    assert stage.stores[-1].purpose == Emptied()
    assert stage.beat(leader) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_only_given_out_can_leave_and_then_nobody_waits_for_it() -> None:
    stage = Stage()
    (leader,) = stage.stable()
    told = stage.join(known_id=True)
    waiting = stage.join(leader)
    assert waiting.waits
    assert stage.leave(told.member_id) == NONE
    assert waiting.error == NONE


def test_a_member_that_lost_its_connection_while_its_join_waited_can_come_again() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    waiting = stage.join(leader)
    stage.gone(leader, waiting)
    again = stage.join(leader)
    stage.join(follower)
    assert again.error == NONE


def test_a_member_that_lost_its_connection_while_its_join_waited_expires() -> None:
    stage = Stage()
    leader, follower = stage.stable(2, rebalance_ms=REBALANCE_MS * 10)
    waiting = stage.join(leader)
    stage.gone(leader, waiting)
    other = stage.join(follower)
    stage.pass_ms(SESSION_MS)
    assert other.error == NONE and leader not in stage.group.members


def test_a_member_that_lost_its_connection_while_its_sync_waited_hears_its_assignment_later() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    stage.join(leader)
    stage.join(follower)
    waiting = stage.sync(follower)
    stage.gone(follower, waiting)
    stage.sync(leader, {follower: b"its part"})
    again = stage.sync(follower)
    assert again.synced is not None and again.synced.assignment == b"its part"


def test_a_group_that_dies_answers_whoever_waits() -> None:
    stage = Stage()
    leader, _ = stage.stable(2)
    waiting = stage.join(leader)
    stage.group.die(ErrorCode.NOT_COORDINATOR)
    stage.settle()
    assert waiting.error == ErrorCode.NOT_COORDINATOR
    assert stage.join().error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stage.beat(leader) == ErrorCode.COORDINATOR_NOT_AVAILABLE


# What the log remembers.


def again(group: Group) -> Group:
    value = group_value(snapshot(group, {m: b"of " + m.encode() for m in group.members}, 5))
    return restored(group.group_id, 7, read_group_value(value), group.offsets)


def test_a_group_is_read_back_as_it_was_and_its_members_go_on() -> None:
    stage = Stage()
    leader, follower = stage.stable(2, protocols=[("range", topics("a", "b"))])
    static = stage.join(instance_id="one")
    for member_id in (leader, follower):
        stage.join(member_id, protocols=[("range", topics("a", "b"))])
    stage.sync_all([leader, follower, static.member_id])
    stage.group = again(stage.group)
    resume(stage.group, stage.now_ms)
    group = stage.group
    assert group.state is GroupState.STABLE and group.leader == leader
    assert group.static == {"one": static.member_id}
    assert group.subscribed == frozenset({"a", "b", "orders"})
    assert stage.beat(follower) == NONE
    synced = stage.sync(follower).synced
    assert synced is not None and synced.assignment == b"of " + follower.encode()
    same = stage.join(follower, protocols=[("range", topics("a", "b"))])
    assert same.joined is not None and same.joined.generation == group.generation


def test_after_a_change_of_coordinators_everybody_has_a_whole_session_to_come() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    stage.pass_ms(SESSION_MS - 1)
    stage.group = again(stage.group)
    resume(stage.group, stage.now_ms)
    stage.pass_ms(SESSION_MS - 1)
    assert stage.beat(leader) == NONE
    stage.pass_ms(1)
    assert follower not in stage.group.members


def test_an_empty_group_is_read_back_empty() -> None:
    stage = Stage()
    (leader,) = stage.stable()
    stage.leave(leader)
    group = again(stage.group)
    assert group.state is GroupState.EMPTY and group.generation == stage.group.generation
    assert group.protocol_type == "consumer" and group.leader == "" and not group.is_blank
