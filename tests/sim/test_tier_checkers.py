"""Each checker of the tier passes what is right and finds what is wrong."""

import itertools

import pytest

from headrace.core.cluster import NO_LEADER, IsrMember, PartitionRecord
from headrace.core.election import elect, elect_preferred
from headrace.errors import ErrorCode
from headrace.model import TopicPartition
from headrace.sim.checkers import check
from headrace.sim.history import Acked, Event, Final, Read
from headrace.sim.tier_checkers import first_missing, may_lead
from headrace.sim.tier_history import (
    Answered,
    Began,
    Covered,
    Damaged,
    Dangling,
    DeleteAsked,
    DeleteDone,
    Elected,
    Orphan,
    Passed,
    PointerMoved,
    Span,
    TurnedAway,
)
from tests.core.test_election import broker
from tests.core.test_election import nodes as live_nodes
from tests.sim.test_own_checkers import kinds

P = TopicPartition("t", 0)
NOBODY: frozenset[int] = frozenset()
ALL = frozenset({1, 2, 3})
ELECTED = Elected(1.0, P, (1, 2, 3), 2, 3, frozenset({1, 3}), NOBODY, frozenset({1}), NOBODY, False)

GOOD: list[Event] = [
    Acked(0.1, "p", P, 0, b"a"),
    Acked(0.2, "p", P, 1, b"b"),
    Acked(0.3, "p", P, 2, b"c"),
    Covered(0.5, 1, P, 0, 2, 3, ((0, 0), (1, 1))),
    Covered(0.5, 2, P, 0, 0, 3, ()),
    Answered(0.6, "s", P, 1, (Span(0, 1, 0, 0), Span(2, 2, 1, 1))),
    TurnedAway(0.7, "s", P, 9, 0, 3),
    DeleteAsked(0.75, P, 1),
    Covered(0.77, 1, P, 1, 2, 3, ((0, 1),)),
    DeleteDone(0.78, P, 1),
    TurnedAway(0.8, "s", P, 0, 1, 3),
    Read(0.8, "r1", P, 1, b"b"),
    Read(0.8, "r1", P, 2, b"c"),
    Passed(0.4, 0.9, "r1", P, 1, 3),
    ELECTED,
    PointerMoved(1.0, P, 3, 3),
    Began(P, 1),
    Final(P, 1, b"b"),
    Final(P, 2, b"c"),
]


def test_a_good_history_breaks_no_promise() -> None:
    assert check(GOOD) == []


@pytest.mark.parametrize(
    ("kind", "events"),
    [
        ("hole", [Covered(0.5, 1, P, 0, 2, 3, ((0, 0),))]),
        ("hole", [Covered(0.5, 1, P, 0, 2, 3, ((1, 1),))]),
        ("hole", [TurnedAway(0.7, "s", P, 0, 0, 3)]),
        ("dangling reference", [Dangling(0.5, P, "c/manifest")]),
        ("orphan", [Orphan(9.0, "c/a.segment")]),
        ("damaged segment", [Damaged("c/a.segment", "The batch at byte 0 of the log fails its checksum.")]),
        ("divergent segment served", [Answered(0.6, "s", P, 1, (Span(0, 1, 0, 2),))]),
        ("gap in an answer", [Answered(0.6, "s", P, 1, (Span(2, 2, 0, 0),))]),
        ("gap in an answer", [Answered(0.6, "s", P, 1, (Span(0, 0, 0, 0),))]),
        ("gap in an answer", [Answered(0.6, "s", P, 0, (Span(0, 1, 0, 0), Span(3, 3, 0, 0)))]),
        ("gap in an answer", [Answered(0.6, "s", P, 0, (Span(0, 1, 0, 0), Span(1, 1, 0, 0)))]),
        ("missed by a reader", [Read(0.8, "r2", P, 2, b"c"), Passed(0.4, 0.9, "r2", P, 1, 3)]),
        ("records gone too early", [Covered(0.5, 1, P, 2, 2, 3, ())]),
        ("deleted records back", [DeleteAsked(0.9, P, 3), DeleteDone(1.0, P, 2), Began(P, 1)]),
        ("deposed leader", [PointerMoved(1.0, P, 3, 4)]),
        ("without a leader", [ELECTED._replace(after=NO_LEADER)]),
        ("wrong leader", [ELECTED._replace(after=1)]),
        ("wrong leader", [ELECTED._replace(before=1, after=3, able=ALL, thin=NOBODY)]),
    ],
)
def test_a_bad_history_is_named(kind: str, events: list[Event]) -> None:
    assert kinds([*GOOD, *events]) == {kind}


def test_what_begins_later_is_not_lost() -> None:
    acked = Acked(0.1, "p", P, 4, b"x")
    assert kinds([acked]) == kinds([acked, Began(P, 4)]) == {"lost write"}
    assert kinds([acked, Began(P, 5)]) == set()


def test_remote_segments_may_overlap_and_come_in_any_order() -> None:
    assert first_missing(Covered(0, 1, P, 2, 9, 12, ((4, 8), (0, 5), (3, 4)))) == 12
    assert first_missing(Covered(0, 1, P, 2, 9, 12, ((4, 7), (0, 5)))) == 8
    assert first_missing(Covered(0, 1, P, 9, 9, 9, ())) == 9


def test_what_is_not_known_for_sure_is_no_violation() -> None:
    assert kinds([ELECTED._replace(after=1, perhaps_thin=frozenset({1}), thin=NOBODY)]) == set()
    assert kinds([ELECTED._replace(after=NO_LEADER, able=NOBODY, perhaps_able=ALL)]) == set()
    assert kinds([ELECTED._replace(after=1, is_unclean=True)]) == set()


def test_the_rules_of_the_checker_are_those_of_the_elections() -> None:
    """T1303-5 and T1303-8: for all sets of live and of thin replicas, and for each leader."""
    subsets = [frozenset(some) for count in range(4) for some in itertools.combinations((1, 2, 3), count)]
    for live, thin, before in itertools.product(subsets, subsets, (NO_LEADER, 1, 2, 3)):
        nodes = live_nodes(*(broker(node, 5) for node in sorted(live)))
        isr = tuple(IsrMember(node, 5) for node in (1, 2, 3))
        record = PartitionRecord((2, 1, 3), isr, before, 1, 1)
        elected = elect(record, b"", 0, nodes, False, thin)
        if elected is not None and elected.record.leader != NO_LEADER:
            assert before not in live
            assert may_lead(record.replicas, before, elected.record.leader, live, thin)
        elif before not in live:
            assert not live
        preferred = elect_preferred(record, b"", 0, nodes, thin)
        for after in (1, 2, 3):
            if before in live and after != before:
                chosen = not isinstance(preferred, ErrorCode) and preferred.leader == after
                assert may_lead(record.replicas, before, after, live, thin) == chosen, (live, thin, before, after)
