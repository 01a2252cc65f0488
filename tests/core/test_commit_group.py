"""What may be decided for the batches of a query."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.commit_group import Decision, Handle, fault_of, fault_of_batch, is_committable, is_over
from headrace.core.transaction import Claim, State, Transaction
from headrace.core.transactional_id import Attempt, attempt_id, attempt_of, placement_key, query_key

OPEN = Transaction(
    producer_id=5, epoch=3, timeout_ms=1_000, state=State.ONGOING, updated_ms=0, partitions=frozenset({("t", 0)})
)
SCOPES = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)
NAMES = st.text(st.characters(exclude_characters=":", exclude_categories=["Cs"]), min_size=1, max_size=128)
NUMBERS = st.integers(0, 10**17)


@given(SCOPES, NAMES, NUMBERS, NUMBERS, NAMES, NUMBERS)
def test_the_id_of_an_attempt_says_whose_it_is_whatever_the_names(
    scope: str, query: str, batch_id: int, partition: int, run: str, number: int
) -> None:
    made = attempt_id(scope, query, batch_id, partition, run, number)
    assert attempt_of(made) == Attempt(query_key(scope, query), batch_id)
    assert placement_key(made) == placement_key(query_key(scope, query)) == query_key(scope, query)


@pytest.mark.parametrize(
    "ordinary",
    ["", "hr1", "id", "hr1:jobs:q", "hr1:jobs:q:5:0:run", "hr1:jobs:q:x:0:run:9", "hr1:jobs:q:-5:0:run:9"],
)
def test_every_other_id_is_nobodys_attempt(ordinary: str) -> None:
    assert attempt_of(ordinary) is None


@pytest.mark.parametrize(
    ("scope", "query", "batch_id", "run"),
    [("a b", "q", 0, "r"), ("s", "q:", 0, "r"), ("s", "q", -1, "r"), ("s", "q", 0, ""), ("s", "q" * 129, 0, "r")],
)
def test_a_part_that_cannot_stand_in_an_id_is_told(scope: str, query: str, batch_id: int, run: str) -> None:
    with pytest.raises(ValueError, match=r"has|named|0 or more"):
        attempt_id(scope, query, batch_id, 0, run, 0)
    assert fault_of(scope, query) or fault_of_batch(scope, query, batch_id, run, [])


def test_only_what_is_open_and_exactly_as_its_attempt_left_it_can_be_committed() -> None:
    assert is_committable(OPEN, Claim(5, 3))
    assert not is_committable(None, Claim(5, 3))
    assert not is_committable(OPEN, Claim(5, 4)) and not is_committable(OPEN, Claim(5, 2))
    assert not is_committable(OPEN, Claim(6, 3))
    for state in State:
        assert is_committable(replace(OPEN, state=state), Claim(5, 3)) == (state is State.ONGOING)


def test_a_batch_is_over_when_it_or_a_later_one_was_committed() -> None:
    last = Decision(batch_id=7, run_id="r", decided_ms=0)
    assert [is_over(last, batch_id) for batch_id in (0, 6, 7, 8)] == [True, True, True, False]
    assert not is_over(None, 0)


def test_a_request_names_attempts_at_its_own_batch_each_once() -> None:
    good = Handle(attempt_id("s", "q", 7, 0, "r", 0), Claim(5, 3))
    assert fault_of_batch("s", "q", 7, "r", [good]) is None
    assert fault_of_batch("s", "q", 7, "r", []) is None
    assert fault_of_batch("s", "q", 8, "r", [good]) and fault_of_batch("s", "p", 7, "r", [good])
    assert fault_of_batch("s", "q", 7, "r", [good, good]) == "an attempt is named twice"
