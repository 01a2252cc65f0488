"""Each checker of groups passes what is right and finds what is wrong."""

import pytest

from headrace.errors import ErrorCode
from headrace.model import TopicPartition
from headrace.sim.checkers import check
from headrace.sim.group_checkers import SETTLED_S_MAX
from headrace.sim.history import Event, GroupAssigned, GroupCommit, GroupCommitted, GroupSettled, GroupTold

P = TopicPartition("m", 0)
Q = TopicPartition("m", 1)
G = "g"


def assigned(at_s: float, client: str, generation: int, *partitions: TopicPartition, who: str = "") -> GroupAssigned:
    return GroupAssigned(at_s, client, who or client, G, generation, partitions)


def commit(at_s: float, offset: int, generation: int = 1) -> GroupCommit:
    return GroupCommit(at_s, "a", G, generation, P, offset)


def answered(at_s: float, offset: int, code: int = 0) -> GroupCommitted:
    return GroupCommitted(at_s, G, P, offset, code)


def told(asked_s: float, at_s: float, offset: int) -> GroupTold:
    return GroupTold(asked_s, at_s, "b", G, P, offset)


RIGHT: list[list[Event]] = [
    [assigned(1, "a", 1, P), assigned(1, "b", 1, Q), assigned(2, "b", 2, P, Q)],
    [assigned(1, "a.1", 1, P, who="a"), assigned(2, "a.2", 1, P, who="a")],
    [assigned(1, "a", 1, P), commit(2, 7), assigned(3, "b", 2, P), answered(4, 7)],
    [assigned(1, "a", 2, P), commit(2, 7), answered(3, 7, ErrorCode.ILLEGAL_GENERATION), told(4, 5, -1)],
    [commit(1, 7), told(1, 2, -1), answered(3, 7), told(4, 5, 7)],
    [commit(1, 7), answered(2, 7), commit(3, 8), told(4, 5, 7), told(6, 7, 8), answered(8, 8)],
    [commit(1, 7), commit(1, 8), answered(2, 8), answered(2, 7), told(3, 4, 7)],
    [commit(1, 7), commit(2, 8), answered(3, 8), told(4, 5, 8), told(6, 7, 7)],
    [commit(1, 7), answered(2, 7, ErrorCode.COORDINATOR_NOT_AVAILABLE), told(3, 4, 7)],
    [GroupSettled(12, 12 + SETTLED_S_MAX, G)],
]

WRONG: list[tuple[str, list[Event]]] = [
    ("two members", [assigned(1, "a", 1, P), assigned(1, "b", 1, Q, P)]),
    ("late commit", [assigned(1, "a", 1, P), assigned(2, "b", 2, P), commit(3, 7), answered(4, 7)]),
    ("late commit", [commit(1, 7), answered(2, 7, ErrorCode.ILLEGAL_GENERATION), told(3, 4, 7)]),
    ("late commit", [told(3, 4, 7)]),
    ("lost commit", [commit(1, 7), answered(2, 7), told(3, 4, -1)]),
    ("lost commit", [commit(1, 7), answered(2, 7), commit(3, 8), answered(4, 8), told(5, 6, 7)]),
    ("lost commit", [commit(1, 7), answered(2, 7), commit(3, 8), told(4, 5, 8), told(6, 7, 7)]),
    ("unstable group", [GroupSettled(12, 13 + SETTLED_S_MAX, G)]),
]


@pytest.mark.parametrize("events", RIGHT, ids=range(len(RIGHT)))
def test_what_may_happen_is_no_violation(events: list[Event]) -> None:
    assert check(events) == []


@pytest.mark.parametrize(("kind", "events"), WRONG, ids=[f"{kind} {at}" for at, (kind, _) in enumerate(WRONG)])
def test_what_must_not_happen_is_found(kind: str, events: list[Event]) -> None:
    assert {violation.kind for violation in check(events)} == {kind}
