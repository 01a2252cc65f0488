"""From the first join to a generation in which everybody knows its part."""

import pytest

from headrace.core.group_effects import GroupState
from headrace.core.group_members import elected_protocol, subscribed_topics
from headrace.errors import ErrorCode
from tests.core.group_stage import DELAY_MS, RANGE, REBALANCE_MS, SESSION_MS, Asked, Stage, topics

NONE = ErrorCode.NONE


def test_a_new_group_waits_for_others_who_come_a_little_later() -> None:
    stage = Stage(delay_ms=DELAY_MS)
    first = stage.join()
    stage.pass_ms(DELAY_MS - 1)
    second = stage.join()
    stage.pass_ms(DELAY_MS - 1)
    assert first.waits and second.waits
    stage.pass_ms(1)
    assert first.waits, "somebody came, so the wait is prolonged once more"
    stage.pass_ms(1)
    assert first.error == second.error == NONE
    assert first.joined is not None and second.joined is not None
    assert first.joined.leader == second.joined.leader == first.member_id
    assert [member.member_id for member in first.joined.members] == [first.member_id, second.member_id]
    assert second.joined.members == ()
    assert first.joined.generation == second.joined.generation == 1


def test_the_wait_of_a_new_group_ends_with_the_rebalance_timeout_whoever_still_comes() -> None:
    stage = Stage(delay_ms=DELAY_MS)
    first = stage.join(rebalance_ms=5_000)
    for _ in range(10):
        stage.pass_ms(900)
        if not first.waits:
            break
        stage.join(rebalance_ms=5_000)
    assert first.error == NONE
    assert stage.now_ms <= 1_000_000 + 5_000 + 900


def test_assignments_are_told_when_the_log_has_them_and_to_each_its_own() -> None:
    stage = Stage()
    stage.holds_stores = True
    first = stage.join()
    follower = stage.join()
    again = stage.join(first.member_id)
    assert follower.error == again.error == NONE
    waiting = stage.sync(follower.member_id)
    leading = stage.sync(first.member_id, {first.member_id: b"one", follower.member_id: b"two"})
    assert waiting.waits and leading.waits and stage.is_in(GroupState.COMPLETING)
    stage.store()
    assert waiting.synced is not None and leading.synced is not None
    assert (waiting.synced.assignment, leading.synced.assignment) == (b"two", b"one")
    assert stage.is_in(GroupState.STABLE)
    assert stage.beat(first.member_id) == stage.beat(follower.member_id) == NONE


def test_a_member_that_the_leader_forgot_gets_nothing() -> None:
    stage = Stage()
    (leader,) = stage.stable()
    new = stage.join()
    assert not stage.join(leader).waits
    late = stage.sync(new.member_id)
    stage.sync(leader, {leader: b"all", "nobody": b"?"})
    assert late.synced is not None and late.synced == (NONE, "consumer", "range", b"")


def test_an_assignment_that_the_log_refuses_is_told_to_nobody_and_everybody_joins_anew() -> None:
    stage = Stage()
    stage.holds_stores = True
    first = stage.join()
    asked = stage.sync(first.member_id, {first.member_id: b"one"})
    stage.store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert asked.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stage.is_in(GroupState.PREPARING)
    assert stage.beat(first.member_id) == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_comes_to_the_log_after_the_next_rebalance_began_is_told_to_nobody() -> None:
    stage = Stage()
    stage.holds_stores = True
    first = stage.join()
    asked = stage.sync(first.member_id, {first.member_id: b"old"})
    new = stage.join()
    assert asked.error == ErrorCode.REBALANCE_IN_PROGRESS
    again = stage.join(first.member_id)
    assert again.error == new.error == NONE
    stage.store()
    assert stage.is_in(GroupState.COMPLETING)
    assert stage.group.members[first.member_id].assignment == b""


def test_a_client_from_version_4_on_is_given_an_id_first_and_comes_with_it() -> None:
    stage = Stage()
    told = stage.join(known_id=True)
    assert told.error == ErrorCode.MEMBER_ID_REQUIRED and told.member_id
    assert stage.is_in(GroupState.EMPTY) and not stage.group.members
    assert stage.join(told.member_id, known_id=True).error == NONE


def test_a_rebalance_waits_for_an_id_that_was_given_out_until_its_session_is_over() -> None:
    """KAFKA-7909."""
    stage = Stage()
    (leader,) = stage.stable()
    stage.join(known_id=True)
    again = stage.join(leader)
    assert again.waits
    stage.pass_ms(SESSION_MS)
    assert again.error == NONE


def test_an_id_that_was_never_used_is_forgotten_and_leaves_no_group_behind() -> None:
    stage = Stage()
    told = stage.join(known_id=True)
    assert not stage.group.is_blank
    stage.pass_ms(SESSION_MS)
    assert stage.group.is_blank
    assert stage.join(told.member_id).error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_whose_client_gave_up_does_not_hold_up_the_others() -> None:
    """KAFKA-9752, KAFKA-7610: it never knew its id, so that nobody would ever hear of it again."""
    stage = Stage()
    old, other = stage.stable(2)
    new = stage.join()
    stage.gone(stage_new_id(stage, {old, other}), new)
    first, second = stage.join(old), stage.join(other)
    assert first.waits and second.waits, "it may still come with the id"
    stage.pass_ms(SESSION_MS)
    assert first.error == second.error == NONE
    assert set(stage.group.members) == {old, other}


def stage_new_id(stage: Stage, known: set[str]) -> str:
    (new,) = set(stage.group.members) - known
    return new


def test_a_new_member_that_waits_very_long_is_answered_and_removed_while_others_go_on() -> None:
    stage = Stage()
    old, other = stage.stable(2, rebalance_ms=600_000, session_ms=400_000)
    new = stage.join(rebalance_ms=600_000)
    stage.join(old, rebalance_ms=600_000, session_ms=400_000)
    stage.pass_ms(299_999)
    assert new.waits
    stage.pass_ms(1)
    assert new.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert set(stage.group.members) == {old, other}


def test_who_does_not_rejoin_in_time_is_out_and_the_others_go_on() -> None:
    stage = Stage()
    leader, silent = stage.stable(2, session_ms=200_000)
    new = stage.join()
    again = stage.join(leader, session_ms=200_000)
    stage.pass_ms(REBALANCE_MS - 1)
    assert again.waits and new.waits
    stage.pass_ms(1)
    assert again.error == new.error == NONE
    assert silent not in stage.group.members
    assert stage.beat(silent) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_leader_stays_the_leader_and_another_follows_when_it_does_not_come() -> None:
    stage = Stage()
    leader, follower, third = stage.stable(3)
    stage.join()
    waiting = [stage.join(third), stage.join(follower)]
    stage.leave(leader)
    assert all(one.error == NONE for one in waiting)
    assert stage.group.leader in (follower, third)
    assert stage.join(stage.group.leader).joined is not None


def test_a_join_that_is_sent_again_hears_the_same_generation() -> None:
    """The answer may have been lost."""
    stage = Stage()
    leader, follower = stage.stable(2)
    again = stage.join(follower)
    assert again.joined is not None and again.joined.generation == stage.group.generation
    assert stage.is_in(GroupState.STABLE)
    leading = stage.join(leader)
    assert leading.waits and stage.is_in(GroupState.PREPARING)
    stage.join(follower)
    assert leading.error == NONE
    repeated = stage.join(leader)
    assert repeated.joined is not None and len(repeated.joined.members) == 2


def test_a_join_on_a_second_connection_answers_the_one_that_waits() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    first = stage.join(leader)
    second = stage.join(leader)
    assert first.error == ErrorCode.REBALANCE_IN_PROGRESS
    stage.join(follower)
    assert second.error == NONE


def test_a_follower_with_another_subscription_starts_a_rebalance() -> None:
    stage = Stage()
    _, follower = stage.stable(2)
    assert stage.join(follower, protocols=[("range", topics("others"))]).waits
    assert stage.is_in(GroupState.PREPARING)


def test_what_all_speak_and_most_want_is_spoken() -> None:
    stage = Stage(delay_ms=DELAY_MS)
    both = [("sticky", topics("a")), ("range", topics("a"))]
    other = [("range", topics("b")), ("sticky", topics("b"))]
    asked = [stage.join(protocols=both), stage.join(protocols=other), stage.join(protocols=other)]
    stage.pass_ms(DELAY_MS * 3)
    assert {one.joined.protocol_name for one in asked if one.joined} == {"range"}
    assert elected_protocol(list(stage.group.members.values())) == "range"
    assert stage.group.subscribed == frozenset({"a", "b"})


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", list(RANGE)), ("consumer", [("sticky", b"")]), ("consumer", [])],
    ids=["another type", "no common assignor", "none"],
)
def test_who_shares_no_language_with_the_group_is_refused(
    protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    stage = Stage()
    stage.stable()
    refused = stage.join(protocol_type=protocol_type, protocols=protocols)
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.is_in(GroupState.STABLE)


def test_a_group_needs_a_protocol() -> None:
    assert Stage().join(protocols=[]).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Stage().join(protocol_type="").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_takes_nobody_more_also_not_those_who_were_given_an_id() -> None:
    """KAFKA-9844: many may have been told to come while there was room."""
    stage = Stage(size_max=2, delay_ms=DELAY_MS)
    told = [stage.join(known_id=True).member_id for _ in range(4)]
    asked = [stage.join(member_id) for member_id in told]
    stage.pass_ms(SESSION_MS * 10)
    codes = [one.error for one in asked]
    assert codes.count(ErrorCode.GROUP_MAX_SIZE_REACHED) == 2
    assert len(stage.group.members) <= 2


def test_a_group_that_is_full_and_stable_refuses_new_members_and_keeps_the_old() -> None:
    stage = Stage(size_max=2)
    old, other = stage.stable(2)
    assert stage.join().error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert stage.is_in(GroupState.STABLE)
    assert stage.join(old).waits and stage.join(other).error == NONE


def test_members_of_any_protocol_type_are_assigned_what_their_leader_says() -> None:
    stage = Stage()
    (worker,) = stage.stable(protocol_type="connect", protocols=[("sessioned", b"anything")])
    assert stage.group.members[worker].assignment == worker.encode()
    assert stage.group.subscribed is None


def test_the_last_generation_there_is_can_be_in_use_and_not_be_followed() -> None:
    stage = Stage()
    (leader,) = stage.stable()
    stage.group.generation = 2**31 - 1
    assert stage.beat(leader) == NONE
    assert stage.join(leader).error == ErrorCode.INVALID_REQUEST


def test_topics_of_a_subscription_are_read_and_nonsense_is_not() -> None:
    assert subscribed_topics(topics("a", "b")) == frozenset({"a", "b"})
    assert subscribed_topics(topics()) == frozenset()
    for nonsense in (b"", b"\0\1\xff\xff\xff\xff", topics("a")[:-6], b"\xff\xff\0\0\0\0", b"\0\1\0\0\0\1\0\2\xff\xff"):
        found = subscribed_topics(nonsense)
        assert found is None or not found


def test_nobody_is_answered_twice_and_everybody_once() -> None:
    stage = Stage()
    asked: list[Asked] = [stage.join() for _ in range(5)]
    stage.pass_ms(REBALANCE_MS * 10)
    assert all(not one.waits for one in asked)
