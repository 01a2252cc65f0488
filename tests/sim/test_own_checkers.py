"""Each checker of ownership passes what is right and finds what is wrong."""

import pytest

from headrace.model import TopicPartition
from headrace.sim.checkers import check
from headrace.sim.history import Event, Final, OwnGranted, OwnRead, OwnReleased, OwnSent, OwnStored

P = TopicPartition("o", 0)
E = TopicPartition("e", 0)


def grant(
    asked_s: float, at_s: float, holder: str, generation: int, fence: int, partition: TopicPartition = P
) -> OwnGranted:
    return OwnGranted(asked_s, at_s, holder, "g", str(partition), generation, fence)


GOOD: list[Event] = [
    grant(0.0, 0.1, "anna", 1, 0),
    OwnSent(0.2, "anna", P, 1, b"a1"),
    OwnStored(0.3, b"a1", True),
    OwnSent(0.9, "anna", P, 1, b"a2"),
    grant(0.8, 1.0, "ben", 2, 2),
    OwnStored(1.2, b"a2", True),  # asked for before, and told late
    OwnSent(1.1, "anna", P, 1, b"a3"),  # refused
    OwnSent(1.3, "ben", P, 2, b"b1"),
    grant(1.4, 1.5, "ben", 2, 3),  # a resumption
    OwnRead(0.9, 1.6, "anna", P, 1, 0, b"a1"),
    OwnRead(1.5, 1.7, "ben", P, 2, 2, b"b1"),
    Final(P, 0, b"a1"),
    Final(P, 1, b"a2"),
    Final(P, 2, b"b1"),
]


def kinds(events: list[Event]) -> set[str]:
    return {violation.kind for violation in check(events)}


def test_a_good_history_passes() -> None:
    assert check(GOOD) == []


def test_a_generation_of_two_holders_is_found() -> None:
    """Town-17."""
    assert kinds([*GOOD, grant(0.8, 1.6, "cleo", 2, 3)]) == {"two owners"}


def test_a_generation_that_goes_back_is_found() -> None:
    assert kinds([*GOOD, grant(1.1, 1.6, "anna", 1, 3)]) == {"two owners"}


def test_grants_that_overlap_may_be_answered_in_any_order() -> None:
    assert check([*GOOD, grant(0.8, 1.6, "anna", 1, 3)]) == []


def test_a_fence_that_goes_back_is_found() -> None:
    assert kinds([*GOOD, grant(1.6, 1.7, "cleo", 3, 1)]) == {"fence going back", "behind a fence"}


def test_a_record_of_an_old_owner_behind_a_fence_is_found() -> None:
    """Town-9: also one that nobody acknowledged."""
    assert kinds([*GOOD, Final(P, 3, b"a3")]) == {"behind a fence"}


def test_a_stranger_s_record_is_found() -> None:
    assert kinds([*GOOD, OwnSent(0.5, "thief", P, 0, b"x"), Final(P, 3, b"x")]) == {"behind a fence"}


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_write_that_is_done_for_an_old_owner_is_found(is_committed: bool) -> None:
    """Town-34: even if it is gone in the end."""
    assert kinds([*GOOD, OwnStored(1.4, b"a3", is_committed)]) == {"served too late"}


def test_a_read_that_is_asked_for_too_late_is_found() -> None:
    assert kinds([*GOOD, OwnRead(1.1, 1.2, "anna", P, 1, 0, b"a1")]) == {"served too late"}


def test_a_read_of_what_a_later_owner_wrote_is_found() -> None:
    """Town-11: whenever it was asked for."""
    assert kinds([*GOOD, OwnRead(0.5, 1.8, "anna", P, 1, 2, b"b1")]) == {"served too late"}


def exclusive(asked_s: float, at_s: float, holder: str, generation: int, fence: int, epoch: int) -> OwnGranted:
    return grant(asked_s, at_s, holder, generation, fence, E)._replace(leader_epoch=epoch)


OPENED: list[Event] = [
    OwnReleased(0.0, 0.0, "g", "e-0", 0, -1),  # nobody has claimed it yet
    exclusive(0.0, 0.1, "anna", 1, 0, 1),
    exclusive(0.2, 0.3, "ben", 2, 0, 1),
    OwnReleased(1.0, 1.0, "g", "e-0", 2, 2),
    OwnSent(1.1, "anna", E, 1, b"a1"),
    OwnStored(1.2, b"a1", True, 3),
    OwnSent(2.5, "anna", E, 1, b"a2"),
    exclusive(2.0, 2.1, "cleo", 3, 1, 4),
    Final(E, 0, b"a1"),
]


def test_what_was_released_is_open_until_it_is_claimed_again() -> None:
    """Town-42."""
    assert check(OPENED) == []
    assert kinds([*OPENED, OwnStored(2.6, b"a2", True, 3)]) == {"served too late"}
    assert kinds([*OPENED, OwnStored(2.6, b"a2", True, 3), Final(E, 1, b"a2")]) == {"served too late", "behind a fence"}


@pytest.mark.parametrize("epoch", [0, 3])
def test_a_leader_that_began_while_it_was_open_may_tell_what_was_committed_before(epoch: int) -> None:
    read = OwnRead(2.5, 2.6, "anna", E, 1, 0, b"a1", epoch)
    assert check([*OPENED, read, OwnStored(2.6, b"a2", False, epoch)]) == []


@pytest.mark.parametrize("epoch", [-1, 1, 2, 4, 5])
def test_a_leader_that_granted_or_found_it_claimed_may_not(epoch: int) -> None:
    """Town-34. Nor may one that is not known."""
    assert kinds([*OPENED, OwnRead(2.5, 2.6, "anna", E, 1, 0, b"a1", epoch)]) == {"served too late"}
    assert kinds([*OPENED, OwnStored(2.6, b"a2", False, epoch)]) == {"served too late"}


def test_a_leader_that_granted_while_it_was_open_may_not_either() -> None:
    """Whoever claimed it there has not been displaced."""
    granted = exclusive(2.0, 2.1, "cleo", 3, 1, 3)
    events = [granted if event == exclusive(2.0, 2.1, "cleo", 3, 1, 4) else event for event in OPENED]
    assert kinds([*events, OwnRead(2.5, 2.6, "anna", E, 1, 0, b"a1", 3)]) == {"served too late"}


def test_generations_only_rise_until_it_is_opened_again() -> None:
    opened = [event for event in OPENED if not isinstance(event, OwnReleased)]
    never_again = [OPENED[0], *opened, OwnSent(0.5, "ben", E, 2, b"b1"), OwnSent(0.2, "anna", E, 1, b"a9")]
    mixed: list[Event] = [Final(E, 1, b"b1"), Final(E, 2, b"a9")]
    assert "behind a fence" in kinds([*never_again, *mixed])


def test_a_claim_that_failed_may_have_opened_it() -> None:
    failed = OwnReleased(0.4, 1.0, "g", "e-0", 0, 1)
    assert check([failed if event == OPENED[3] else event for event in OPENED]) == []
