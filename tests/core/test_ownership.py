"""Rules of ownership, row by row: claims, resumes, tokens, and who passes a gate."""

import pytest

from headrace.core.cluster import OwnedRecord
from headrace.core.ownership import FETCH, NOBODY, PRODUCE, Book, Entry, Identity, Key, Peer, Tenure
from headrace.core.ownership_gate import Gate, Gated, Pass
from headrace.core.ownership_rules import GENERATION_MAX, Action, Known, Op, decide, decide_token, look
from headrace.core.ownership_tokens import Token, token_of
from headrace.errors import ErrorCode

ME, OTHER, NAMELESS = Identity("User:me", "a"), Identity("User:me", "b"), Identity("User:me", "")
TOPIC_ID = "00" * 16


class Connection:
    def __init__(self, client_id: str | None = "x", principal: str = "User:me") -> None:
        self.client_id = client_id
        self.principal = principal
        self.peer = "h:1"
        self.closing = False


def known(
    live: int = 0, retained: int = 0, *, mine: bool = False, by: Identity = OTHER, is_confirmed: bool = True
) -> Known:
    return Known(live, by if live else None, mine, is_confirmed, retained, by if retained else None)


GRANT, KEEP, REFUSE, SHARE, JOIN = Action.GRANT, Action.KEEP, Action.REFUSE, Action.SHARE, Action.JOIN


@pytest.mark.parametrize(
    ("generation", "state", "action", "number"),
    [
        (1, known(), GRANT, 1),
        (9, known(), GRANT, 1),
        (4, known(live=5), REFUSE, 5),
        (5, known(live=5), GRANT, 6),
        (8, known(live=5), GRANT, 9),
        (0, known(live=5), GRANT, 1),
        (0, known(retained=5), GRANT, 1),
        (0, known(), GRANT, 1),
        (5, known(live=5, mine=True), KEEP, 5),
        (9, known(live=5, mine=True), KEEP, 5),
        (4, known(live=5, mine=True), REFUSE, 5),
        (0, known(live=5, mine=True), GRANT, 1),
        (4, known(retained=5), REFUSE, 5),
        (5, known(retained=5), GRANT, 6),
        (7, known(retained=5), GRANT, 8),
        (GENERATION_MAX, known(live=5), REFUSE, GENERATION_MAX),
        (GENERATION_MAX, known(retained=GENERATION_MAX), REFUSE, GENERATION_MAX),
        (0, known(live=GENERATION_MAX), GRANT, 1),
        (1, known(live=5, mine=True, is_confirmed=False), SHARE, 5),
    ],
)
def test_a_claim(generation: int, state: Known, action: Action, number: int) -> None:
    decided = decide(Op.CLAIM, generation, ME, state)
    assert (decided.action, decided.generation) == (action, number)
    if action is REFUSE:
        full = number == GENERATION_MAX
        assert decided.error is (ErrorCode.POLICY_VIOLATION if full else ErrorCode.ILLEGAL_GENERATION)


@pytest.mark.parametrize(
    ("generation", "state", "identity", "action"),
    [
        (5, known(live=5, by=ME), ME, GRANT),
        (5, known(retained=5, by=ME), ME, GRANT),
        (5, known(live=5, by=ME, mine=True), ME, KEEP),
        (5, known(live=5), ME, REFUSE),
        (4, known(live=5, by=ME), ME, REFUSE),
        (6, known(live=5, by=ME), ME, REFUSE),
        (5, known(live=6, retained=5, by=ME), ME, REFUSE),
        (0, known(), ME, REFUSE),
        (1, known(), ME, REFUSE),
        (5, known(live=5, by=NAMELESS), NAMELESS, REFUSE),
    ],
)
def test_a_resume(generation: int, state: Known, identity: Identity, action: Action) -> None:
    decided = decide(Op.RESUME, generation, identity, state)
    assert decided.action is action
    if action is GRANT:
        assert (decided.generation, decided.resumes) == (5, True)


@pytest.mark.parametrize(
    ("state", "action", "number"),
    [
        (known(), GRANT, 1),
        (known(live=5), REFUSE, 5),
        (known(live=5, mine=True), KEEP, 5),
        (known(retained=5), GRANT, 6),
        (known(retained=GENERATION_MAX), REFUSE, GENERATION_MAX),
    ],
)
def test_a_claim_if_unowned(state: Known, action: Action, number: int) -> None:
    decided = decide(Op.CLAIM_IF_UNOWNED, 99, ME, state)
    assert (decided.action, decided.generation) == (action, number)


@pytest.mark.parametrize(
    ("number", "state", "action"),
    [
        (3, known(), GRANT),
        (3, known(live=2), GRANT),
        (3, known(retained=2), GRANT),
        (3, known(live=3, by=ME), JOIN),
        (3, known(live=3, by=ME, mine=True), KEEP),
        (3, known(live=3), REFUSE),
        (3, known(retained=3, by=ME), GRANT),
        (3, known(retained=3), REFUSE),
        (3, known(live=4), REFUSE),
        (3, known(retained=4, by=ME), REFUSE),
    ],
)
def test_a_token(number: int, state: Known, action: Action) -> None:
    decided = decide_token(number, ME, state)
    assert decided.action is action
    if action is GRANT:
        assert decided.generation == number


@pytest.mark.parametrize(
    ("client_id", "token"),
    [
        ("own--g--1--x", Token("g", 1)),
        ("own--a--b--1--x", Token("a--b", 1)),
        (f"own--g--{2**31 - 1}--x", Token("g", 2**31 - 1)),
        (f"own--g--{2**31}--x", None),
        ("own--g--0--x", None),
        ("own--g--one--x", None),
        ("own--g--+1--x", None),
        ("own--g--1--", None),
        ("own----1--x", None),
        ("own--g--1", None),
        ("owned", None),
        (None, None),
    ],
)
def test_what_a_client_id_says(client_id: str | None, token: Token | None) -> None:
    assert token_of(client_id) == token


class Place:
    """A gate, and who owns what behind it."""

    def __init__(self, produce: str = "", fetch: str = "") -> None:
        self.book = Book()
        self.leads = True
        self.now_ms = 0
        self.gate = Gate(TOPIC_ID, self.book, lambda: self.leads, lambda: self.now_ms)
        self.gate.groups = (produce, fetch)
        self.gate.settle()

    def own(self, connection: Connection, group: str = "g", *, exclusive: int = 0, is_confirmed: bool = True) -> Tenure:
        entry = self.gate.entries.setdefault(group, Entry(group, "t-0", self.gate))
        entry.tenure = Tenure(1, ME, [connection])
        entry.tenure.exclusive, entry.tenure.is_confirmed = exclusive, is_confirmed
        member = self.book.member(connection)
        member.group, member.entries[entry] = group, None
        self.gate.had_owner = True
        self.gate.settle()
        return entry.tenure

    def passes(self, connection: Peer) -> tuple[Pass, Pass]:
        return self.gate.judge(PRODUCE, connection), self.gate.judge(FETCH, connection)


def test_where_nobody_keeps_others_out_strangers_pass() -> None:
    place, owner, stranger = Place(), Connection(), Connection()
    place.own(owner)
    assert place.passes(stranger) == place.passes(owner) == (Pass.ALLOWED, Pass.ALLOWED)


def test_a_setting_keeps_out_everybody_but_the_owner() -> None:
    place, owner, stranger = Place("w", "r"), Connection(), Connection()
    assert place.passes(stranger) == (Pass.UNOWNED, Pass.UNOWNED)
    place.own(owner, "w")
    assert place.passes(owner) == (Pass.ALLOWED, Pass.UNOWNED)
    assert place.passes(stranger) == (Pass.DENIED, Pass.UNOWNED)
    assert place.gate.fetch_fault(stranger) is Gated.UNOWNED


def test_of_several_groups_each_must_allow() -> None:
    place, one, two = Place("w"), Connection(), Connection()
    place.own(one, "w")
    place.own(two, "x", exclusive=PRODUCE)
    assert place.passes(one)[0] is place.passes(two)[0] is Pass.DENIED
    assert place.passes(one)[1] is Pass.ALLOWED


def test_an_owner_waits_for_its_confirmation_and_others_do_not() -> None:
    place, owner, stranger = Place("g"), Connection(), Connection()
    tenure = place.own(owner, is_confirmed=False)
    assert (place.passes(owner)[0], place.passes(stranger)[0]) == (Pass.WAITS, Pass.DENIED)
    assert place.gate.unconfirmed(owner) is tenure
    assert place.gate.unconfirmed(stranger) is None


def test_a_member_of_the_group_is_denied_where_another_owns() -> None:
    place, owner, rival = Place(), Connection(), Connection()
    place.own(owner)
    place.book.member(rival).group = "g"
    assert place.passes(rival) == (Pass.DENIED, Pass.DENIED)


def test_connections_that_stand_for_the_owner_pass_with_it() -> None:
    place, owner = Place("g", "g"), Connection("companion")
    place.own(owner)
    place.book.bind(place.book.member(owner), "app")
    assert place.passes(Connection("app")) == (Pass.ALLOWED, Pass.ALLOWED)
    assert place.passes(Connection("app", "User:other")) == (Pass.DENIED, Pass.DENIED)
    place.book.forget(owner)
    assert place.passes(Connection("app")) == (Pass.DENIED, Pass.DENIED)


def test_without_the_lease_nothing_that_was_owned_or_is_gated_is_served() -> None:
    place, owner = Place(), Connection()
    place.leads = False
    assert place.passes(owner) == (Pass.ALLOWED, Pass.ALLOWED)
    place.own(owner)
    assert place.passes(owner) == (Pass.NOT_SERVED, Pass.NOT_SERVED)
    assert place.gate.fetch_fault(owner) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    gated = Place("g")
    gated.leads = False
    assert gated.passes(owner) == (Pass.NOT_SERVED, Pass.NOT_SERVED)


def test_nobody_passes_before_the_memory_of_the_store_is_known_and_nobody_whose_connection_is_cut() -> None:
    place, owner = Place(), Connection()
    place.gate.is_loading = True
    assert place.passes(owner) == (Pass.NOT_SERVED, Pass.NOT_SERVED)
    place.gate.is_loading = False
    owner.closing = True
    assert place.passes(owner) == (Pass.DENIED, Pass.DENIED)


def test_what_the_store_remembers_keeps_others_out_as_long_as_it_counts() -> None:
    place = Place()
    record = OwnedRecord(5, "User:me", "a", 1_000, TOPIC_ID, PRODUCE)
    entry = place.gate.entries["g"] = Entry("g", "t-0", place.gate, Key(record, 7))
    entry.expires_ms = 1_000
    place.gate.settle()
    assert place.passes(NOBODY) == (Pass.UNOWNED, Pass.ALLOWED)
    assert look(entry, Connection(), 999).retained == 5
    place.now_ms = 1_000
    place.gate.settle()
    assert place.passes(Connection()) == (Pass.ALLOWED, Pass.ALLOWED)
    entry.key = Key(OwnedRecord(5, "User:me", "a", 1_000, "ff" * 16, PRODUCE), 8)
    assert entry.retained(0) is None, "another topic's counts as absent"


def test_a_lower_token_is_denied_by_what_the_store_remembers() -> None:
    place = Place()
    record = OwnedRecord(5, "User:me", "own--g--5--x", 1_000, TOPIC_ID)
    place.gate.entries["g"] = Entry("g", "t-0", place.gate, Key(record, 7))
    place.gate.entries["g"].expires_ms = 1_000
    denied = [Connection("own--g--4--x"), Connection("own--g--5--y"), Connection("own--g--5--x", "User:other")]
    assert [place.passes(one)[0] for one in denied] == [Pass.DENIED] * 3
    assert place.passes(Connection("own--g--5--x"))[0] is Pass.UNOWNED, "its claim did not succeed"
    assert place.passes(Connection("own--g--6--z"))[0] is Pass.UNOWNED
