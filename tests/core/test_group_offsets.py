"""What a group has committed, what waits for transactions, and what expires. Tgrp-6 and Tgrp-7 in the small."""

import pytest

from headrace.broker.coordinators.group_expiry import expired_offsets
from headrace.core.group import Group
from headrace.core.group_effects import GroupState
from headrace.core.group_offsets import GroupOffsets
from headrace.wire.group_records import CommittedOffset, offset_value

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def value(offset: int, commit_ms: int = 0, expire_ms: int = -1) -> bytes:
    return offset_value(CommittedOffset(offset, 3, "said", commit_ms, expire_ms))


def committed(offsets: GroupOffsets, offset: int, partition: int = 0) -> int:
    position = offsets.appended([("t", partition)])
    offsets.commit("t", partition, value(offset), position)
    return position


def at(offsets: GroupOffsets, partition: int = 0) -> int | None:
    found = offsets.get("t", partition)
    return None if found is None else found.offset


def test_a_commit_counts_when_it_is_committed_and_not_before() -> None:
    offsets = GroupOffsets("g")
    position = offsets.appended([("t", 0)])
    assert at(offsets) is None and offsets and len(offsets) == 0
    offsets.commit("t", 0, value(5), position)
    assert offsets.get("t", 0) == CommittedOffset(5, 3, "said", 0)
    assert not offsets.in_flight


def test_what_a_transaction_commits_counts_when_it_ends_well() -> None:
    """Tgrp-7."""
    offsets = GroupOffsets("g")
    committed(offsets, 1)
    offsets.pend(9, [("t", 0, value(7))])
    assert offsets.is_unstable("t", 0) and not offsets.is_unstable("t", 1)
    assert at(offsets) == 1
    assert offsets.end(9, True) == 1
    assert at(offsets) == 7 and not offsets.is_unstable("t", 0)


def test_what_an_aborted_transaction_would_have_committed_is_gone() -> None:
    offsets = GroupOffsets("g")
    committed(offsets, 1)
    offsets.pend(9, [("t", 0, value(7)), ("t", 1, value(7))])
    assert offsets.end(9, False) == 0
    assert (at(offsets), at(offsets, 1)) == (1, None) and not offsets.pending


def test_the_last_one_in_the_log_counts_whichever_ends_first() -> None:
    offsets = GroupOffsets("g")
    offsets.pend(1, [("t", 0, value(10))])
    committed(offsets, 20)
    assert not offsets.is_unstable("t", 0)
    offsets.end(1, True)
    assert at(offsets) == 20


def test_of_two_transactions_the_one_that_committed_later_in_the_log_counts() -> None:
    for first, second in ((1, 2), (2, 1)):
        offsets = GroupOffsets("g")
        offsets.pend(1, [("t", 0, value(10))])
        offsets.pend(2, [("t", 0, value(20))])
        offsets.end(first, True)
        offsets.end(second, True)
        assert at(offsets) == 20


def test_a_plain_commit_that_is_told_late_does_not_undo_a_transaction_behind_it() -> None:
    offsets = GroupOffsets("g")
    position = offsets.appended([("t", 0)])
    offsets.pend(1, [("t", 0, value(20))])
    offsets.end(1, True)
    offsets.commit("t", 0, value(10), position)
    assert at(offsets) == 20
    committed(offsets, 30)
    assert at(offsets) == 30


def test_a_deleted_offset_is_gone_with_its_topic_and_a_later_commit_stays() -> None:
    offsets = GroupOffsets("g")
    committed(offsets, 1)
    deletion = offsets.appended([("t", 0)])
    later = offsets.appended([("t", 0)])
    offsets.commit("t", 0, None, deletion)
    assert not offsets.by_topic and offsets.in_flight
    offsets.commit("t", 0, value(2), later)
    assert at(offsets) == 2


def test_everything_of_which_the_log_holds_something_is_named_for_deletion() -> None:
    offsets = GroupOffsets("g")
    committed(offsets, 1)
    offsets.appended([("t", 1)])
    offsets.pend(9, [("u", 2, value(7))])
    assert offsets.all_keys() == {("t", 0), ("t", 1), ("u", 2)}


# Expiry, Tgrp-6.


def group_in(state: GroupState, *, protocol_type: str | None = "consumer", subscribed: tuple[str, ...] = ()) -> Group:
    group = Group("g")
    group.state, group.protocol_type = state, protocol_type
    group.subscribed = frozenset(subscribed)
    group.state_since_ms = 2 * DAY_MS
    position = group.offsets.appended([("t", 0), ("u", 0)])
    for topic in ("t", "u"):
        group.offsets.commit(topic, 0, value(1, commit_ms=0), position)
    return group


@pytest.mark.parametrize(
    ("state", "protocol_type", "day", "gone"),
    [
        (GroupState.EMPTY, "consumer", 8, ""),
        (GroupState.EMPTY, "consumer", 9, "tu"),
        (GroupState.EMPTY, None, 6, ""),
        (GroupState.EMPTY, None, 7, "tu"),
        (GroupState.EMPTY, "connect", 9, "tu"),
        (GroupState.STABLE, "consumer", 6, ""),
        (GroupState.STABLE, "consumer", 7, "u"),
        (GroupState.STABLE, "connect", 99, ""),
        (GroupState.PREPARING, "consumer", 99, ""),
        (GroupState.COMPLETING, "consumer", 99, ""),
        (GroupState.DEAD, "consumer", 99, ""),
    ],
)
def test_offsets_expire_when_nobody_can_still_want_them(
    state: GroupState, protocol_type: str | None, day: int, gone: str
) -> None:
    """KAFKA-13636: of an unstable group nothing does."""
    group = group_in(state, protocol_type=protocol_type, subscribed=("t",))
    assert {topic for topic, _ in expired_offsets(group, day * DAY_MS, WEEK_MS)} == set(gone)


def test_an_expiry_that_a_client_asked_for_counts() -> None:
    """KAFKA-8069, KAFKA-7403."""
    group = group_in(GroupState.EMPTY)
    position = group.offsets.appended([("old", 0), ("new", 0)])
    group.offsets.commit("old", 0, value(1, 0, expire_ms=3 * DAY_MS), position)
    group.offsets.commit("new", 0, value(1, 0, expire_ms=90 * DAY_MS), position)
    assert {topic for topic, _ in expired_offsets(group, 3 * DAY_MS, WEEK_MS)} == {"old"}
    assert {topic for topic, _ in expired_offsets(group, 50 * DAY_MS, WEEK_MS)} == {"old", "t", "u"}


def test_what_is_about_to_change_does_not_expire() -> None:
    group = group_in(GroupState.EMPTY)
    group.offsets.pend(1, [("t", 0, value(2))])
    group.offsets.appended([("u", 0)])
    assert not list(expired_offsets(group, 99 * DAY_MS, WEEK_MS))
