"""Each checker passes what is right and finds what is wrong."""

import pytest

from headrace.model import TopicPartition
from headrace.sim.checkers import check
from headrace.sim.history import (
    Acked,
    Event,
    Final,
    GivenUp,
    LeaderAcked,
    NotRecovered,
    Read,
    Replica,
    Seen,
    Sent,
    ToldEnd,
    TopicChanged,
    TopicsFound,
    Underacked,
    Unhandled,
    Watermark,
)

P = TopicPartition("t", 0)
Q = TopicPartition("t", 1)

GOOD: list[Event] = [
    Sent(0.0, "p1", P, b"a"),
    Sent(0.0, "p1", P, b"b"),
    Sent(0.1, "p2", P, b"x"),
    Acked(1.0, "p1", P, 0, b"a"),
    ToldEnd(1.1, 1.2, "r", P, 1),
    Acked(1.3, "p1", P, 2, b"b"),
    GivenUp(1.5, "p2", P, b"x"),
    Read(2.0, "c1", P, 0, b"a"),
    Read(2.0, "c1", P, 1, b"x"),
    Read(2.0, "c2", P, 0, b"a"),
    ToldEnd(2.0, 2.5, "r", P, 3),
    LeaderAcked(1.0, 1, P, 0),
    LeaderAcked(1.3, 2, P, 1),
    LeaderAcked(1.3, 2, Q, 0),
    Watermark(1.0, "node1.1", P, 0, 1),
    Watermark(1.3, "node2.1", P, 1, 0),
    Watermark(1.4, "node2.1", P, 1, 3),
    Final(P, 0, b"a"),
    Final(P, 1, b"x"),
    Final(P, 2, b"b"),
    Final(Q, 0, b"a"),
    Replica(P, 1, 0, 3, "d"),
    Replica(P, 2, 0, 3, "d"),
    Replica(Q, 2, 0, 1, "e"),
]


def kinds(events: list[Event]) -> set[str]:
    return {violation.kind for violation in check(events)}


def test_a_good_history_has_no_violation() -> None:
    assert check(GOOD) == []


@pytest.mark.parametrize(
    ("kind", "events"),
    [
        ("lost write", [Acked(1.0, "p1", P, 0, b"a"), Final(P, 1, b"c")]),
        ("lost write", [Acked(1.0, "p1", P, 0, b"a"), Final(Q, 0, b"a")]),
        ("duplicate", [Final(P, 0, b"a"), Final(P, 1, b"a")]),
        ("inconsistent offsets", [Acked(1.0, "p1", P, 1, b"a"), Final(P, 0, b"a"), Final(P, 1, b"b")]),
        ("inconsistent offsets", [Read(1.0, "c", P, 0, b"a"), Read(1.0, "d", P, 0, b"b")]),
        ("reordering", [Sent(0, "p", P, b"a"), Sent(0, "p", P, b"b"), Final(P, 0, b"b"), Final(P, 1, b"a")]),
        ("reordering", [Read(1.0, "c", P, 1, b"b"), Read(1.1, "c", P, 0, b"a")]),
        ("offsets going back", [ToldEnd(0.0, 1.0, "r", P, 5), ToldEnd(1.1, 1.2, "s", P, 4)]),
        ("offsets going back", [Read(1.0, "c", P, 5, b"a"), ToldEnd(1.1, 1.2, "s", P, 5)]),
        ("offsets going back", [Acked(1.0, "p", P, 5, b"a"), ToldEnd(1.1, 1.2, "s", P, 5), Final(P, 5, b"a")]),
        ("two leaders", [LeaderAcked(1.0, 1, P, 3), LeaderAcked(1.1, 2, P, 3)]),
        ("high watermark going back", [Watermark(1, "n", P, 0, 5), Watermark(2, "n", P, 0, 4)]),
        ("differing replicas", [Replica(P, 1, 0, 3, "d"), Replica(P, 2, 0, 3, "e")]),
        ("differing replicas", [Replica(P, 1, 0, 3, "d"), Replica(P, 2, 1, 3, "d")]),
        ("no recovery", [NotRecovered(90, "t-0 has no leader")]),
        ("unhandled exception", [Unhandled("in node1: ValueError()")]),
    ],
)
def test_a_bad_history_is_named(kind: str, events: list[Event]) -> None:
    assert kinds(events) == {kind}


def test_answers_that_crossed_may_differ() -> None:
    assert check([ToldEnd(0.0, 2.0, "r", P, 5), ToldEnd(1.9, 2.1, "s", P, 4)]) == []


def test_the_first_violation_comes_first() -> None:
    late, early = LeaderAcked(9.0, 2, P, 3), ToldEnd(1.1, 1.2, "s", P, 4)
    found = check([LeaderAcked(8.0, 1, P, 3), late, ToldEnd(0.0, 1.0, "r", P, 5), early])
    assert [violation.kind for violation in found] == ["offsets going back", "two leaders"]
    assert str(found[1]) == "two leaders: nodes 1 and 2 both acknowledged in epoch 3 of t-0"


def test_an_answer_of_another_epoch_than_the_one_that_was_named() -> None:
    asked = ToldEnd(1.0, 1.1, "c", P, 5, 3, 3)
    assert kinds([asked, asked._replace(asked_epoch=-1, leader_epoch=4)]) == set()
    assert kinds([asked._replace(leader_epoch=4)]) == {"answer of another epoch"}


def test_an_acknowledgement_by_too_few() -> None:
    assert kinds([Underacked(1.0, 1, P, 0, 1)]) == {"acknowledged by too few"}


def test_topics_that_are_there_though_deleted_or_not_there_though_created() -> None:
    created, deleted = TopicChanged(1.0, "x", b"1", True, True), TopicChanged(2.0, "x", b"1", False, True)
    there, another, gone = (TopicsFound(3.0, frozenset(ids)) for ids in ((b"1",), (b"2",), ()))
    assert kinds([created, there]) == set()
    assert kinds([created, gone]) == kinds([created, another]) == {"wrong topics"}
    assert kinds([created, deleted, there]) == {"wrong topics"}
    assert kinds([created, deleted, gone]) == kinds([created, deleted, another]) == set()
    assert kinds([created, deleted._replace(is_certain=False), there]) == set()


def test_what_is_seen_here_and_there_counts_too() -> None:
    seen = Seen(1.0, "c", P, 0, b"b")
    assert kinds([Acked(1.0, "p", P, 0, b"a"), seen, Final(P, 0, b"a")]) == {"inconsistent offsets"}
