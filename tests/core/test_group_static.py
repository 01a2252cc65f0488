"""Static members: an instance id outlives the process that holds it. Tgrp-3 and its traps."""

from headrace.core.group_effects import GroupState, Swapped
from headrace.errors import ErrorCode
from tests.core.group_stage import SESSION_MS, Asked, Stage, topics

NONE = ErrorCode.NONE


def two(stage: Stage) -> tuple[str, str]:
    """The leader has the instance id `one`, the follower `two`."""
    stage.delay_ms, before = 1, stage.delay_ms
    asked = [stage.join(instance_id=name) for name in ("one", "two")]
    stage.pass_ms(2)
    stage.delay_ms = before
    ids = [one.member_id for one in asked]
    stage.sync_all(ids)
    return ids[0], ids[1]


def answered(asked: Asked) -> tuple[ErrorCode, str, bool, int]:
    assert asked.joined is not None, "it waits"
    joined = asked.joined
    return joined.error, joined.leader, joined.skip_assignment, len(joined.members)


def test_a_static_member_that_restarts_within_its_session_causes_no_rebalance() -> None:
    """Tgrp-3."""
    stage = Stage()
    leader, follower = two(stage)
    generation = stage.group.generation
    back = stage.join(instance_id="two")
    assert answered(back) == (NONE, leader, False, 0)
    assert back.member_id != follower
    assert stage.is_in(GroupState.STABLE) and stage.group.generation == generation
    synced = stage.sync(back.member_id, instance_id="two").synced
    assert synced is not None and synced.assignment == follower.encode()
    assert stage.beat(leader, instance_id="one") == NONE


def test_the_old_process_is_fenced_wherever_it_asks() -> None:
    stage = Stage()
    _, follower = two(stage)
    stage.join(instance_id="two")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert stage.beat(follower, instance_id="two") == fenced
    assert stage.join(follower, instance_id="two").error == fenced
    assert stage.sync(follower, instance_id="two").error == fenced
    assert stage.leave(follower, "two") == fenced
    assert stage.group.may_commit(follower, "two", stage.group.generation, stage.now_ms) == fenced
    assert stage.beat(follower) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_old_process_is_fenced_also_while_it_waits() -> None:
    """KAFKA-9801, KAFKA-10284."""
    stage = Stage()
    leader, follower = two(stage)
    waiting = stage.join(leader, instance_id="one")
    back = stage.join(instance_id="one")
    assert waiting.error == ErrorCode.FENCED_INSTANCE_ID
    assert back.waits
    stage.join(follower, instance_id="two")
    assert answered(back) == (NONE, back.member_id, False, 2)


def test_a_restart_is_in_the_log_before_it_is_told() -> None:
    """KAFKA-10284: a new coordinator must know who holds the instance id."""
    stage = Stage()
    two(stage)
    stage.holds_stores = True
    back = stage.join(instance_id="two")
    assert back.waits and isinstance(stage.held[0].purpose, Swapped)
    stage.store()
    assert back.error == NONE


def test_a_restart_that_is_not_in_the_log_has_not_happened() -> None:
    stage = Stage()
    _, follower = two(stage)
    stage.holds_stores = True
    back = stage.join(instance_id="two", session_ms=99_000)
    stage.store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert back.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stage.group.static["two"] == follower
    assert stage.beat(follower, instance_id="two") == NONE
    assert stage.group.members[follower].session_timeout_ms == SESSION_MS


def test_a_restart_that_may_still_come_to_the_log_stays() -> None:
    stage = Stage()
    _, follower = two(stage)
    stage.holds_stores = True
    back = stage.join(instance_id="two")
    stage.store(ErrorCode.COORDINATOR_NOT_AVAILABLE, was_appended=True)
    assert back.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stage.group.static["two"] != follower


def test_a_leader_that_restarts_hears_of_the_members_and_need_not_assign() -> None:
    """KIP-814, KAFKA-13435."""
    stage = Stage()
    two(stage)
    back = stage.join(instance_id="one")
    assert answered(back) == (NONE, back.member_id, True, 2)
    assert stage.group.leader == back.member_id


def test_a_leader_of_an_older_client_that_restarts_does_not_take_itself_for_the_leader() -> None:
    """KAFKA-8715: a stable group would not take its assignment."""
    stage = Stage()
    leader, _ = two(stage)
    back = stage.join(instance_id="one", may_skip=False)
    assert answered(back) == (NONE, leader, False, 0)
    assert stage.group.leader == back.member_id
    assert stage.join(back.member_id, instance_id="one").waits, "as the leader it starts a rebalance when it wants one"


def test_a_restart_with_another_subscription_causes_a_rebalance() -> None:
    stage = Stage()
    two(stage)
    assert stage.join(instance_id="two", protocols=[("range", topics("others"))]).waits
    assert stage.is_in(GroupState.PREPARING)


def test_a_restart_between_join_and_sync_causes_a_rebalance() -> None:
    """The leader assigns to an id that is gone."""
    stage = Stage()
    leader, follower = two(stage)
    stage.join(leader, instance_id="one")
    stage.join(follower, instance_id="two")
    assert stage.is_in(GroupState.COMPLETING)
    assert stage.join(instance_id="two").waits
    assert stage.is_in(GroupState.PREPARING)


def test_static_members_that_are_late_are_kept_in_the_next_generation() -> None:
    stage = Stage()
    leader, follower = two(stage)
    for member in stage.group.members.values():
        member.session_timeout_ms, member.rebalance_timeout_ms = 50_000, 5_000
    stage.beat(follower, instance_id="two")
    waiting = stage.join(leader, instance_id="one", session_ms=50_000, rebalance_ms=5_000)
    stage.pass_ms(5_000)
    assert answered(waiting) == (NONE, leader, False, 2)
    assert stage.sync(leader, {follower: b"kept"}, instance_id="one").error == NONE
    stage.pass_ms(44_000)
    assert follower in stage.group.members
    stage.beat(leader, instance_id="one")
    stage.pass_ms(1_000)
    assert follower not in stage.group.members


def test_a_rebalance_to_which_no_static_member_comes_waits_for_one() -> None:
    """KAFKA-8220."""
    stage = Stage()
    leader, _ = two(stage)
    for member in stage.group.members.values():
        member.session_timeout_ms, member.rebalance_timeout_ms = 100_000, 5_000
    for name, member_id in stage.group.static.items():
        stage.beat(member_id, instance_id=name)
    new = stage.join(session_ms=100_000, rebalance_ms=5_000)
    stage.gone(next(m for m in stage.group.members if m.startswith("m-")), new)
    stage.pass_ms(20_000)
    assert stage.is_in(GroupState.PREPARING) and len(stage.group.members) == 2
    late = stage.join(leader, instance_id="one")
    stage.pass_ms(100_000)
    assert late.error == NONE


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    stage = Stage()
    _, follower = two(stage)
    assert stage.leave("", "nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.leave("", "two") == NONE
    assert follower not in stage.group.members and stage.is_in(GroupState.PREPARING)


def test_an_instance_id_that_came_back_after_its_session_is_a_new_member() -> None:
    """KAFKA-14009, KAFKA-14201: nothing of the old one is left behind."""
    stage = Stage()
    leader, follower = two(stage)
    stage.pass_ms(SESSION_MS - 1)
    stage.beat(leader, instance_id="one")
    stage.pass_ms(1)
    assert "two" not in stage.group.static and follower not in stage.group.members
    new = stage.join(instance_id="two")
    stage.join(leader, instance_id="one")
    assert new.error == NONE and stage.group.static["two"] == new.member_id


def test_a_member_that_waits_in_vain_for_its_restart_to_be_stored_and_left_meanwhile_hears_so() -> None:
    stage = Stage()
    two(stage)
    stage.holds_stores = True
    back = stage.join(instance_id="two")
    stage.leave("", "two")
    stage.store()
    assert back.error == ErrorCode.UNKNOWN_MEMBER_ID
