"""The asking side of a fetch session: the table of answers row by row (T227-27), and a model of an honest broker."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.core.fetching import EPOCH_MAX, Ask, FetchingSession, Verdict
from headrace.errors import ErrorCode

Session = FetchingSession[str, int]


def opened(*keys: str) -> Session:
    """A session 7 that the broker has granted for these."""
    session = Session()
    for key in keys:
        session.want(key, 0)
    ask = session.next()
    assert (ask.session_id, ask.epoch) == (0, 0)
    assert session.answered(0, 7, list(keys)) is Verdict.USE
    return session


def test_the_first_request_is_full_and_the_next_lists_only_changes() -> None:
    session = opened("a", "b")
    assert session.next() == Ask(7, 1, [], [])
    assert session.answered(0, 7, []) is Verdict.USE
    session.want("a", 5)
    session.want("c", 1)
    session.drop("b")
    assert session.next() == Ask(7, 2, [("a", 5), ("c", 1)], ["b"])


def test_a_partition_dropped_and_wanted_again_is_listed_and_not_forgotten() -> None:
    session = opened("a", "b")
    session.drop("a")
    session.want("a", 9)
    session.want("new", 1)
    session.drop("new")
    assert session.next() == Ask(7, 1, [("a", 9)], [])


def test_the_epoch_wraps_to_one() -> None:
    session = opened("a")
    session.epoch = EPOCH_MAX
    session.next()
    assert session.answered(0, 7, []) is Verdict.USE
    assert session.epoch == 1


def test_an_unknown_session_is_asked_for_anew_at_once() -> None:
    session = opened("a", "b")
    session.next()
    assert session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, []) is Verdict.AGAIN
    assert session.next() == Ask(0, 0, [("a", 0), ("b", 0)], [])


@pytest.mark.parametrize("code", [ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR])
def test_a_session_that_lost_step_is_replaced_at_once(code: ErrorCode) -> None:
    session = opened("a")
    session.next()
    assert session.answered(code, 0, []) is Verdict.AGAIN
    assert session.next() == Ask(7, 0, [("a", 0)], [])


def test_the_same_trouble_twice_in_a_row_asks_for_patience() -> None:
    session = opened("a")
    verdicts = []
    for code in (70, 71, 106, 0, 70):
        session.next()
        verdicts.append(session.answered(code, 0 if code else 8, ["a"] if session.epoch == 0 and not code else []))
    assert verdicts == [Verdict.AGAIN, Verdict.BACK_OFF, Verdict.BACK_OFF, Verdict.USE, Verdict.AGAIN]


def test_a_lost_connection_replaces_the_session() -> None:
    session = opened("a")
    session.want("a", 3)
    session.next()
    assert session.lost() is Verdict.AGAIN
    assert session.next() == Ask(7, 0, [("a", 3)], [])


@pytest.mark.parametrize("keys", [[], ["a"], ["a", "b", "c"], ["a", "c"]])
def test_a_full_answer_with_a_missing_or_extra_partition_does_not_count(keys: list[str]) -> None:
    session = Session()
    session.want("a", 0)
    session.want("b", 0)
    session.next()
    assert session.answered(0, 9, keys) is Verdict.AGAIN
    assert session.next() == Ask(9, 0, [("a", 0), ("b", 0)], [])


def test_a_throttled_full_answer_may_be_empty() -> None:
    session = Session()
    session.want("a", 0)
    session.next()
    assert session.answered(0, 0, [], throttled=True) is Verdict.USE
    assert session.next() == Ask(0, 0, [("a", 0)], [])


def test_a_partition_outside_the_session_does_not_count() -> None:
    session = opened("a")
    session.next()
    assert session.answered(0, 7, ["z"]) is Verdict.AGAIN
    assert session.next() == Ask(7, 0, [("a", 0)], [])


def test_without_a_session_a_new_one_is_asked_for_each_time() -> None:
    session = Session()
    session.want("a", 0)
    for _ in range(3):
        assert session.next() == Ask(0, 0, [("a", 0)], [])
        assert session.answered(0, 0, ["a"]) is Verdict.USE


def test_another_error_stands_for_every_partition() -> None:
    session = opened("a")
    session.next()
    assert session.answered(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0, []) is Verdict.FAILED
    assert session.next() == Ask(7, 0, [("a", 0)], [])


def test_closing_ends_the_session_if_there_is_one() -> None:
    assert opened("a").closing() == Ask(7, -1, [], [])
    assert Session().closing() is None


KEYS = st.sampled_from("abcdef")


class HonestBroker(RuleBasedStateMachine):
    """A broker that keeps what it is told, loses sessions and answers, and at the end knows what is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session()
        self.wanted: dict[str, int] = {}
        self.sessions: dict[int, tuple[int, dict[str, int]]] = {}
        self.ids = 0

    @rule(key=KEYS, offset=st.integers(0, 3))
    def want(self, key: str, offset: int) -> None:
        self.session.want(key, offset)
        self.wanted[key] = offset

    @rule(key=KEYS)
    def drop(self, key: str) -> None:
        self.session.drop(key)
        self.wanted.pop(key, None)

    @precondition(lambda self: self.sessions)
    @rule()
    def evict(self) -> None:
        self.sessions.clear()

    @precondition(lambda self: self.wanted)
    @rule(grants=st.booleans(), arrives=st.sampled_from(["both", "both", "request", "none"]))
    def fetch(self, grants: bool, arrives: str) -> None:
        ask = self.session.next()
        if arrives == "none":
            self.session.lost()
            return
        code, session_id, keys, seen = self.answer(ask, grants)
        if arrives == "request":
            self.session.lost()
            return
        verdict = self.session.answered(code, session_id, keys)
        assert (verdict is Verdict.USE) == (code == 0)
        if code == 0:
            assert seen == self.wanted

    def answer(self, ask: Ask[str, int], grants: bool) -> tuple[int, int, list[str], dict[str, int]]:
        if ask.epoch == 0:
            self.sessions.pop(ask.session_id, None)
            partitions = dict(ask.listed)
            if not grants:
                return 0, 0, list(partitions), partitions
            self.ids += 1
            self.sessions[self.ids] = (1, partitions)
            return 0, self.ids, list(partitions), partitions
        if ask.session_id not in self.sessions:
            return 70, 0, [], {}
        epoch, partitions = self.sessions[ask.session_id]
        if ask.epoch != epoch:
            return 71, 0, [], {}
        partitions.update(ask.listed)
        for key in ask.forgotten:
            partitions.pop(key, None)
        self.sessions[ask.session_id] = (epoch + 1, partitions)
        return 0, ask.session_id, [key for key, _ in ask.listed], partitions

    @invariant()
    def knows_how_many(self) -> None:
        assert len(self.session) == len(self.wanted)


TestHonestBroker = HonestBroker.TestCase
TestHonestBroker.settings = settings(stateful_step_count=40)
