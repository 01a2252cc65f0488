"""Each checker of batches passes what is right and finds what is wrong."""

from headrace.model import TopicPartition
from headrace.sim.batches import TOPIC, Row, row_of, rows_of, value_of
from headrace.sim.checkers import check
from headrace.sim.history import BatchCommitted, BatchTold, CommittedFinal, CommittedRead, Event, NotRecovered

P = TopicPartition(TOPIC, 0)


def final(batch_id: int, task: int, number: int, offset: int, attempt: str = "d1.1#1") -> CommittedFinal:
    return CommittedFinal(P, offset, value_of(Row(batch_id, task, number), attempt))


GOOD: list[Event] = [
    BatchTold(0.0, 0.1, "d1", -1),
    BatchCommitted(0.5, "d1", 0),
    BatchCommitted(1.0, "d1", 1),
    BatchTold(0.9, 1.2, "d2", 0),
    BatchTold(1.1, 1.2, "d2", 1),
    final(1, 0, 0, 0),
    final(1, 1, 0, 1),
    final(1, 1, 1, 2),
]


def kinds(events: list[Event]) -> set[str]:
    return {violation.kind for violation in check(events)}


def test_a_good_history_passes() -> None:
    assert check(GOOD) == []
    assert not any(rows_of(0)), "a batch without rows"
    assert [len(rows) for rows in rows_of(1)] == [1, 2]


def test_a_row_knows_its_place_whoever_wrote_it() -> None:
    assert row_of(value_of(Row(12, 1, 2), "d1.3#4")) == Row(12, 1, 2)


def test_a_row_of_another_attempt_is_the_same_row() -> None:
    assert kinds([*GOOD, final(1, 0, 0, 9, "d2.1#1")]) == {"doubled batch"}


def test_a_batch_of_which_a_row_is_missing_is_torn() -> None:
    assert kinds([event for event in GOOD if event != final(1, 1, 1, 2)]) == {"torn batch"}


def test_a_committed_batch_of_which_nothing_is_there_is_lost() -> None:
    assert kinds([event for event in GOOD if not isinstance(event, CommittedFinal)]) == {"lost batch"}


def test_a_whole_batch_that_nobody_committed_is_stray() -> None:
    rows: list[Event] = [
        final(2, task, row.number, 10 + task * 3 + row.number) for task in range(3) for row in rows_of(2)[task]
    ]
    assert kinds([*GOOD, *rows]) == {"stray batch"}


def test_the_last_batch_does_not_go_back_for_who_asks_later() -> None:
    assert kinds([*GOOD, BatchTold(1.05, 1.3, "d2", 0)]) == {"batch going back"}
    assert kinds([*GOOD, BatchTold(0.95, 1.3, "d2", 0)]) == set()


def test_what_was_read_as_committed_stays() -> None:
    assert kinds([*GOOD, CommittedRead(2.0, "c3", P, 7, b"1.0.0 d2.1#1")]) == {"lost transaction"}


def test_when_nobody_could_look_only_what_was_told_counts() -> None:
    unread: list[Event] = [event for event in GOOD if not isinstance(event, CommittedFinal)]
    assert kinds([*unread, NotRecovered(9.0, "nobody answers")]) == {"no recovery"}
