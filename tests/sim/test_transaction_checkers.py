"""Each checker of transactions passes what is right and finds what is wrong."""

import pytest

from headrace.model import TopicPartition
from headrace.sim.checkers import check
from headrace.sim.history import (
    CommitAsked,
    CommittedFinal,
    CommittedRead,
    Event,
    NotRecovered,
    OffsetFinal,
    TxnEnded,
    TxnOffset,
    TxnSent,
)

P = TopicPartition("x", 0)
Q = TopicPartition("x", 1)

GOOD: list[Event] = [
    TxnSent(0.0, "x1", "x1#1", P, b"a"),
    TxnSent(0.1, "x1", "x1#1", Q, b"b"),
    TxnSent(0.1, "x2", "x2#1", P, b"rolled back"),
    CommitAsked(0.2, "x1", "x1#1"),
    TxnEnded(0.3, "x1", "x1#1", "committed"),
    TxnEnded(0.4, "x2", "x2#1", "aborted"),
    TxnSent(0.5, "x1", "x1#2", P, b"never ended"),
    TxnSent(0.5, "x3", "x3#1", P, b"perhaps"),
    TxnSent(0.5, "x3", "x3#1", Q, b"perhaps too"),
    CommitAsked(0.6, "x3", "x3#1"),
    TxnEnded(0.7, "x3", "x3#1", "unknown"),
    CommittedRead(0.4, "c", P, 0, b"a"),
    CommittedFinal(P, 0, b"a"),
    CommittedFinal(Q, 0, b"b"),
]


def kinds(events: list[Event]) -> set[str]:
    return {violation.kind for violation in check(events)}


def test_a_good_history_passes() -> None:
    assert check(GOOD) == []


def test_a_commit_without_an_answer_may_have_happened() -> None:
    assert check([*GOOD, CommittedFinal(P, 4, b"perhaps"), CommittedFinal(Q, 4, b"perhaps too")]) == []


@pytest.mark.parametrize(
    "event",
    [
        CommittedRead(0.5, "c", P, 2, b"rolled back"),
        CommittedFinal(P, 2, b"rolled back"),
        CommittedRead(0.6, "c", P, 5, b"never ended"),
    ],
)
def test_a_record_of_a_transaction_that_was_not_committed_is_an_aborted_read(event: Event) -> None:
    assert "aborted read" in kinds([*GOOD, event])


@pytest.mark.parametrize("event", [CommittedFinal(P, 4, b"perhaps"), CommittedFinal(Q, 4, b"perhaps too")])
def test_half_of_a_transaction_is_torn(event: Event) -> None:
    assert kinds([*GOOD, event]) == {"torn transaction"}


def test_a_committed_transaction_of_which_one_record_is_missing_is_torn() -> None:
    assert kinds([event for event in GOOD if event != CommittedFinal(Q, 0, b"b")]) == {"torn transaction"}


def test_a_committed_transaction_of_which_nothing_is_there_is_lost() -> None:
    assert kinds([event for event in GOOD if not isinstance(event, CommittedFinal)]) == {"lost transaction"}


def test_what_was_read_as_committed_and_is_gone_is_lost() -> None:
    gone = CommittedRead(0.8, "c", P, 4, b"perhaps")
    assert kinds([*GOOD, gone]) == {"lost transaction"}


def test_a_record_that_is_there_twice_is_a_duplicate() -> None:
    assert kinds([*GOOD, CommittedFinal(P, 9, b"a")]) == {"duplicate"}


def test_when_nobody_could_look_only_what_was_seen_before_counts() -> None:
    unread: list[Event] = [event for event in GOOD if not isinstance(event, CommittedFinal)]
    assert kinds([*unread, NotRecovered(9.0, "nobody answers")]) == {"no recovery"}
    seen = [*unread, NotRecovered(9.0, "nobody answers"), CommittedRead(0.5, "c", P, 2, b"rolled back")]
    assert kinds(seen) == {"no recovery", "aborted read"}


OFFSETS: list[Event] = [
    *GOOD,
    TxnOffset(0.1, "x1", "x1#1", 1),
    TxnOffset(0.5, "x1", "x1#2", 2),
    TxnOffset(0.9, "x1", "x1#3", 3),
    CommitAsked(0.9, "x1", "x1#3"),
    TxnEnded(1.0, "x1", "x1#3", "committed"),
    TxnOffset(1.1, "x1", "x1#4", 4),
    CommitAsked(1.2, "x1", "x1#4"),
    TxnEnded(1.3, "x1", "x1#4", "unknown"),
]


@pytest.mark.parametrize("offset", [3, 4])
def test_a_group_has_the_offset_of_its_last_transaction_that_is_or_may_be_committed(offset: int) -> None:
    assert check([*OFFSETS, OffsetFinal("x1", offset)]) == []


@pytest.mark.parametrize(("offset", "kind"), [(2, "aborted read"), (1, "lost transaction"), (-1, "lost transaction")])
def test_an_offset_that_was_rolled_back_or_is_too_old_is_found(offset: int, kind: str) -> None:
    assert kinds([*OFFSETS, OffsetFinal("x1", offset)]) == {kind}
