"""What may become of a transactional id, state by state."""

from dataclasses import replace

import pytest

from headrace.core.transaction import (
    DONE,
    EXHAUSTED_EPOCH,
    NEED_PRODUCER_ID,
    Claim,
    State,
    Transaction,
    begun_after,
    completed,
    ended,
    fenced,
    initialised,
    joined,
    owned,
    verified,
)
from headrace.core.transactional_id import placement_key
from headrace.errors import ErrorCode

NOW_MS = 1_000_000
EVENTS = frozenset({("events", 0)})
MORE = frozenset({("events", 0), ("events", 1)})
CLAIM = Claim(7, 3)


def known(state: State, **fields: object) -> Transaction:
    is_open = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    base = Transaction(
        producer_id=7,
        epoch=3,
        timeout_ms=60_000,
        state=state,
        updated_ms=NOW_MS - 10,
        partitions=EVENTS if is_open else frozenset(),
        started_ms=-1 if state is State.EMPTY else NOW_MS - 100,
    )
    return replace(base, **fields)  # type: ignore[arg-type]  # a test's own words


def init(
    before: Transaction | None, claim: Claim | None = None, fresh: int | None = None
) -> Transaction | ErrorCode | object:
    return initialised(before, claim, 30_000, NOW_MS, fresh)


RESTING = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


def test_a_new_id_begins_with_a_producer_id_of_its_own_and_epoch_0() -> None:
    assert init(None) is NEED_PRODUCER_ID
    first = init(None, fresh=9)
    assert isinstance(first, Transaction)
    assert (first.producer_id, first.epoch, first.state, first.timeout_ms) == (9, 0, State.EMPTY, 30_000)


@pytest.mark.parametrize("state", RESTING)
def test_whoever_comes_next_fences_the_one_before_by_the_epoch(state: State) -> None:
    after = init(known(state))
    assert isinstance(after, Transaction)
    assert (after.producer_id, after.epoch, after.state, after.partitions) == (7, 4, State.EMPTY, frozenset())
    assert owned(after, CLAIM) is ErrorCode.PRODUCER_FENCED


def test_an_open_transaction_is_aborted_under_an_epoch_that_nobody_gets() -> None:
    """Ttxn-2: the caller comes again, and gets the epoch after that one."""
    after = init(known(State.ONGOING))
    assert isinstance(after, Transaction)
    assert (after.state, after.epoch, after.partitions) == (State.PREPARE_ABORT, 4, EVENTS)
    assert init(after) is ErrorCode.CONCURRENT_TRANSACTIONS
    again = init(completed(after, NOW_MS))
    assert isinstance(again, Transaction)
    assert (again.epoch, again.state) == (5, State.EMPTY)


@pytest.mark.parametrize("state", PREPARED)
def test_nobody_begins_while_an_end_is_not_marked(state: State) -> None:
    assert init(known(state)) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("state", RESTING)
def test_a_producer_that_names_itself_gets_the_next_epoch_and_the_same_again_if_it_did_not_hear(state: State) -> None:
    after = init(known(state), CLAIM)
    assert isinstance(after, Transaction)
    assert (after.epoch, after.last_epoch) == (4, 3)
    again = init(after, CLAIM)
    assert isinstance(again, Transaction)
    assert (again.epoch, again.last_epoch) == (4, 3)
    assert init(after, Claim(7, 2)) is ErrorCode.PRODUCER_FENCED
    assert init(after, Claim(7, 5)) is ErrorCode.PRODUCER_FENCED


def test_a_stranger_is_fenced_whatever_the_state() -> None:
    for state in (*RESTING, *PREPARED, State.ONGOING):
        assert init(known(state), Claim(8, 3)) is ErrorCode.PRODUCER_FENCED


def test_a_producer_of_an_older_epoch_does_not_abort_what_its_successor_has_begun() -> None:
    assert init(known(State.ONGOING), Claim(7, 2)) is ErrorCode.PRODUCER_FENCED
    after = init(known(State.ONGOING), CLAIM)
    assert isinstance(after, Transaction) and after.state is State.PREPARE_ABORT


def test_when_all_epochs_are_used_up_there_is_a_new_producer_id() -> None:
    """Ttxn-5."""
    last = known(State.COMPLETE_COMMIT, epoch=EXHAUSTED_EPOCH)
    assert init(last) is NEED_PRODUCER_ID
    after = init(last, fresh=9)
    assert isinstance(after, Transaction)
    assert (after.producer_id, after.epoch, after.previous_producer_id) == (9, 0, 7)
    assert owned(after, Claim(7, EXHAUSTED_EPOCH)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_who_used_up_the_last_epoch_and_did_not_hear_of_the_new_id_hears_it_again() -> None:
    """Ttxn-5."""
    claim = Claim(7, EXHAUSTED_EPOCH)
    after = init(known(State.EMPTY, epoch=EXHAUSTED_EPOCH), claim, 9)
    assert isinstance(after, Transaction)
    again = init(after, claim)
    assert isinstance(again, Transaction)
    assert (again.producer_id, again.epoch) == (9, 0)
    assert init(after, Claim(7, 5)) is ErrorCode.PRODUCER_FENCED


def test_the_last_epoch_can_still_be_fenced() -> None:
    """Ttxn-5: one is kept for that, and leads to a new id."""
    after = fenced(known(State.ONGOING, epoch=EXHAUSTED_EPOCH), NOW_MS)
    assert after.epoch == EXHAUSTED_EPOCH + 1
    assert init(completed(after, NOW_MS)) is NEED_PRODUCER_ID


def test_only_its_owner_works_with_an_id() -> None:
    before = known(State.ONGOING)
    assert owned(before, CLAIM) is ErrorCode.NONE
    assert owned(None, CLAIM) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert owned(before, Claim(8, 3)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert owned(before, Claim(7, 2)) is ErrorCode.PRODUCER_FENCED
    assert owned(before, Claim(7, 4)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("state", RESTING)
def test_the_first_partition_opens_a_transaction_and_its_time_begins(state: State) -> None:
    after = joined(known(state), EVENTS, NOW_MS)
    assert isinstance(after, Transaction)
    assert (after.state, after.partitions, after.started_ms) == (State.ONGOING, EVENTS, NOW_MS)
    assert joined(known(state), frozenset(), NOW_MS) is DONE


def test_more_partitions_join_and_those_that_are_there_already_need_no_record() -> None:
    before = known(State.ONGOING)
    assert joined(before, EVENTS, NOW_MS) is DONE
    after = joined(before, MORE, NOW_MS)
    assert isinstance(after, Transaction)
    assert (after.partitions, after.started_ms, after.updated_ms) == (MORE, before.started_ms, NOW_MS)


@pytest.mark.parametrize("state", PREPARED)
def test_nothing_joins_a_transaction_that_is_about_to_end(state: State) -> None:
    assert joined(known(state), EVENTS, NOW_MS) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert verified(known(state), ("events", 0)) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_what_has_joined_is_verified() -> None:
    assert verified(known(State.ONGOING), ("events", 0)) is ErrorCode.NONE
    assert verified(known(State.ONGOING), ("events", 1)) is ErrorCode.TRANSACTION_ABORTABLE
    assert verified(known(State.COMPLETE_ABORT), ("events", 0)) is ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(
    ("state", "commit", "outcome"),
    [
        (State.ONGOING, True, State.PREPARE_COMMIT),
        (State.ONGOING, False, State.PREPARE_ABORT),
        (State.PREPARE_COMMIT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (State.PREPARE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (State.PREPARE_ABORT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        (State.PREPARE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        (State.COMPLETE_COMMIT, True, DONE),
        (State.COMPLETE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (State.COMPLETE_ABORT, False, DONE),
        (State.COMPLETE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        (State.EMPTY, True, ErrorCode.INVALID_TXN_STATE),
        (State.EMPTY, False, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_transaction_has_one_end(state: State, commit: bool, outcome: object) -> None:
    after = ended(known(state), commit, NOW_MS)
    assert (after.state if isinstance(after, Transaction) else after) == outcome


def test_an_end_that_is_marked_is_complete_and_has_no_partitions_left() -> None:
    after = completed(known(State.PREPARE_COMMIT), NOW_MS)
    assert (after.state, after.partitions, after.epoch) == (State.COMPLETE_COMMIT, frozenset(), 3)
    assert completed(known(State.PREPARE_ABORT), NOW_MS).state is State.COMPLETE_ABORT


def test_a_transaction_has_its_time_and_no_more_whatever_the_clock_that_began_it() -> None:
    """Ttxn-4."""
    begun_ms = NOW_MS - 100
    assert known(State.ONGOING).left_ms(begun_ms) == 60_000
    assert known(State.ONGOING).left_ms(NOW_MS) == 59_900
    assert known(State.ONGOING).left_ms(begun_ms + 60_000) == known(State.ONGOING).left_ms(NOW_MS * 100) == 0
    assert known(State.ONGOING).left_ms(0) == 60_000


def test_only_an_id_at_rest_expires() -> None:
    for state in RESTING:
        assert known(state).is_expired(NOW_MS + 990, 1_000)
        assert not known(state).is_expired(NOW_MS + 989, 1_000)
    for state in (*PREPARED, State.ONGOING):
        assert not known(state).is_expired(NOW_MS * 100, 1_000)


def test_states_have_the_names_that_kafkas_tools_know() -> None:
    assert [state.label for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_a_producer_id_that_is_used_again_begins_under_the_next_epoch() -> None:
    begun = begun_after(Claim(5, 3), 60_000, 2_000)
    fresh = initialised(None, None, 60_000, 2_000, 5)
    assert isinstance(fresh, Transaction)
    assert begun == replace(fresh, epoch=4)


@pytest.mark.parametrize(
    ("transactional_id", "key"),
    [
        ("hr1:jobs:query-1:5:0:run:9", "hr1:jobs:query-1"),
        ("hr1:jobs:query-1:6:3:other:0", "hr1:jobs:query-1"),
        ("hr1:jobs:query-1:5:0:run", "hr1:jobs:query-1:5:0:run"),
        ("hr1:jobs:query-1:5:0:run:9:x", "hr1:jobs:query-1:5:0:run:9:x"),
        ("hr1::query-1:5:0:run:9", "hr1::query-1:5:0:run:9"),
        ("hr1:no spaces:query-1:5:0:run:9", "hr1:no spaces:query-1:5:0:run:9"),
        ("hr1:" + "s" * 65 + ":q:5:0:run:9", "hr1:" + "s" * 65 + ":q:5:0:run:9"),
        ("hr2:jobs:query-1:5:0:run:9", "hr2:jobs:query-1:5:0:run:9"),
        ("", ""),
    ],
)
def test_ids_of_one_query_are_placed_together_and_all_others_by_themselves(transactional_id: str, key: str) -> None:
    """Tcg-7: whatever the batch."""
    assert placement_key(transactional_id) == key
