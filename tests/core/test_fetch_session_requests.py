"""What a fetch request means: full, sessionless, incremental, and the refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.fetch_session import EPOCH_MAX, Fetcher, next_epoch
from headrace.errors import ErrorCode
from tests.core.fetch_world import ALICE, BOB, BY_ID, BY_NAME, FOLLOWER, Ask, World, request

NOT_FOUND = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
WRONG_EPOCH = ErrorCode.INVALID_FETCH_SESSION_EPOCH
WRONG_TOPIC_FORM = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
ID = b"i" * 16


@pytest.fixture
def world() -> World:
    world = World()
    for index in range(3):
        world.host("t", ID, index)
    return world


def two() -> list[Ask]:
    return [Ask("t", 0), Ask("t", 1)]


class TestTheTableOfRequests:
    """T227-1, row by row."""

    def test_a_sessionless_fetch_gets_every_partition_and_no_session(self, world: World) -> None:
        reply = world.reply(request(0, -1, two(), wait_ms=0))
        assert (reply.error, reply.session_id, reply.order) == (0, 0, [("t", 0), ("t", 1)])
        assert len(world.sessions.cache) == 0

    def test_a_full_fetch_gets_every_partition_and_a_session(self, world: World) -> None:
        reply = world.open(two())
        assert (reply.error, reply.order) == (0, [("t", 0), ("t", 1)])
        assert reply.session_id in world.sessions.cache

    @pytest.mark.parametrize("known", [True, False])
    def test_epoch_zero_with_an_id_replaces_that_session(self, world: World, known: bool) -> None:
        old = world.open(two()).session_id if known else 4711
        reply = world.reply(request(old, 0, [Ask("t", 2)], wait_ms=0))
        assert (reply.error, reply.order) == (0, [("t", 2)])
        assert reply.session_id not in (0, old)
        assert old not in world.sessions.cache
        assert len(world.sessions.cache) == 1

    @pytest.mark.parametrize("known", [True, False])
    def test_epoch_minus_one_with_an_id_closes_that_session(self, world: World, known: bool) -> None:
        old = world.open(two()).session_id if known else 4711
        reply = world.reply(request(old, -1, [Ask("t", 2)], wait_ms=0))
        assert (reply.error, reply.session_id, reply.order) == (0, 0, [("t", 2)])
        assert len(world.sessions.cache) == 0

    @pytest.mark.parametrize("session_id", [0, 4711, -5])
    def test_an_incremental_fetch_of_an_unknown_session_is_refused(self, world: World, session_id: int) -> None:
        reply = world.reply(request(session_id, 1, two()))
        assert (reply.error, reply.session_id, reply.parts) == (NOT_FOUND, 0, {})
        assert world.sessions.errors == {NOT_FOUND: 1}

    @pytest.mark.parametrize("epoch", [2, EPOCH_MAX, -2, -7])
    def test_an_incremental_fetch_with_another_epoch_is_refused(self, world: World, epoch: int) -> None:
        session_id = world.open(two()).session_id
        reply = world.reply(request(session_id, epoch))
        assert (reply.error, reply.session_id, reply.parts) == (WRONG_EPOCH, 0, {})

    def test_an_incremental_fetch_advances_the_epoch(self, world: World) -> None:
        session_id = world.open(two()).session_id
        for epoch in (1, 2, 3):
            reply = world.reply(request(session_id, epoch, wait_ms=0))
            assert (reply.error, reply.session_id, reply.parts) == (0, session_id, {})


def test_the_epoch_after_the_highest_is_one() -> None:
    """T227-2."""
    world = World()
    world.host("t", ID, 0)
    session_id = world.open([Ask("t", 0)]).session_id
    session = world.sessions.cache.get(session_id)
    assert session is not None
    session.epoch = EPOCH_MAX
    assert world.reply(request(session_id, EPOCH_MAX, wait_ms=0)).error == 0
    assert world.reply(request(session_id, 0x7FFFFFFF, wait_ms=0)).error == WRONG_EPOCH
    assert world.reply(request(session_id, 1, wait_ms=0)).error == 0


@given(st.integers(-(2**31), EPOCH_MAX))
def test_the_next_epoch_is_never_zero(epoch: int) -> None:
    following = next_epoch(epoch)
    assert following == (-1 if epoch < 0 else 1 if epoch == EPOCH_MAX else epoch + 1)
    assert following != 0


def test_a_replayed_request_is_refused_and_its_data_comes_with_the_next_full_fetch(world: World) -> None:
    """T227-3."""
    session_id = world.open(two()).session_id
    world.produce(world.by_name["t", 0])
    first = world.reply(request(session_id, 1))
    replayed = world.reply(request(session_id, 1))
    assert first.with_records == [("t", 0)]
    assert (replayed.error, replayed.session_id) == (WRONG_EPOCH, 0)
    again = world.reply(request(session_id, 0, two()))
    assert again.parts["t", 0].records == first.parts["t", 0].records


def test_forgetting_the_last_partition_frees_the_slot(world: World) -> None:
    """T227-9."""
    session_id = world.open(two()).session_id
    assert world.reply(request(session_id, 1, forget=[("t", 0)], wait_ms=0)).session_id == session_id
    reply = world.reply(request(session_id, 2, forget=[("t", 1)]))
    assert (reply.error, reply.session_id, reply.parts) == (0, 0, {})
    assert (len(world.sessions.cache), world.sessions.cache.partitions, world.sessions.cache.evictions) == (0, 0, 0)
    assert world.reply(request(session_id, 3)).error == NOT_FOUND


def test_a_throttled_answer_keeps_the_id_of_a_session_but_opens_none(world: World) -> None:
    """T227-10: last-sent values stay as they were, so nothing that the throttled answer left out is lost."""
    session_id = world.open(two()).session_id
    world.produce(world.by_name["t", 0])
    verdict, *_ = world.sessions.receive(request(session_id, 1), BY_NAME, ALICE, world.now_ms)
    throttled = world.finish(verdict, throttle_ms=100)  # type: ignore[arg-type]  # a fetch, for it was not refused
    assert (throttled.error, throttled.session_id, throttled.parts) == (0, session_id, {})
    assert world.reply(request(session_id, 2)).with_records == [("t", 0)]
    verdict, *_ = world.sessions.receive(request(0, 0, two()), BY_NAME, ALICE, world.now_ms)
    throttled = world.finish(verdict, throttle_ms=100)  # type: ignore[arg-type]  # a fetch, for it was not refused
    assert (throttled.error, throttled.session_id, throttled.parts) == (0, 0, {})
    assert len(world.sessions.cache) == 1


@pytest.mark.parametrize(("opened", "used"), [(BY_NAME, BY_ID), (BY_ID, BY_NAME)])
def test_a_session_does_not_change_between_names_and_ids(world: World, opened: int, used: int) -> None:
    """T227-11. The session is still there for requests in its own form."""
    key: str | bytes = "t" if opened == BY_NAME else ID
    session_id = world.open([Ask(key, 0)], version=opened).session_id
    refused = world.reply(request(session_id, 1), version=used)
    assert (refused.error, refused.session_id) == (WRONG_TOPIC_FORM, 0)
    assert world.reply(request(session_id, 1, wait_ms=0), version=opened).error == 0


def test_a_partition_both_listed_and_forgotten_is_removed(world: World) -> None:
    """T227-23."""
    session_id = world.open(two()).session_id
    world.produce(world.by_name["t", 0])
    reply = world.reply(request(session_id, 1, [Ask("t", 0), Ask("t", 2)], [("t", 0), ("x", 9)], wait_ms=0))
    assert reply.order == [("t", 2)]
    world.produce(world.by_name["t", 0])
    assert world.reply(request(session_id, 2, wait_ms=0)).order == []


def test_session_ids_come_from_the_injected_source_and_are_unique() -> None:
    """T227-26: what the source says twice, or below one, is drawn anew."""
    world = World(ids=[0, 5, 5, -3, 0, 9])
    world.host("t", ID, 0)
    assert [world.open([Ask("t", 0)]).session_id for _ in range(2)] == [5, 9]


class TestWhoseSessionItIs:
    def test_another_principal_gets_not_found(self, world: World) -> None:
        session_id = world.open(two(), ALICE).session_id
        assert world.reply(request(session_id, 1), BOB).error == NOT_FOUND
        assert world.reply(request(session_id, 1, wait_ms=0), ALICE).error == 0

    @pytest.mark.parametrize("epoch", [0, -1])
    def test_nobody_drops_the_session_of_another(self, world: World, epoch: int) -> None:
        session_id = world.open(two(), ALICE).session_id
        assert world.reply(request(session_id, epoch, two(), wait_ms=0), BOB).error == 0
        assert session_id in world.sessions.cache

    def test_a_consumer_cannot_use_the_session_of_a_follower(self, world: World) -> None:
        session_id = world.open(two(), FOLLOWER).session_id
        consumer = Fetcher(FOLLOWER.principal, -1, -1)
        assert world.reply(request(session_id, 1), consumer).error == NOT_FOUND
        assert world.reply(request(world.open(two(), consumer).session_id, 1), FOLLOWER).error == NOT_FOUND

    @pytest.mark.parametrize("other", [FOLLOWER._replace(replica_id=8), FOLLOWER._replace(broker_epoch=71)])
    def test_a_follower_is_one_registration_of_one_node(self, world: World, other: Fetcher) -> None:
        session_id = world.open(two(), FOLLOWER).session_id
        assert world.reply(request(session_id, 1), other).error == NOT_FOUND
        assert world.reply(request(session_id, 1, wait_ms=0), FOLLOWER).error == 0

    def test_sessions_of_a_fenced_registration_are_closed(self, world: World) -> None:
        session_id = world.open(two(), FOLLOWER).session_id
        kept = world.open(two(), FOLLOWER._replace(broker_epoch=71)).session_id
        fetch = world.parked(request(session_id, 1), FOLLOWER)
        world.answer(world.sessions.replica_gone(FOLLOWER.replica_id, FOLLOWER.broker_epoch))
        assert world.replies[fetch].session_id == session_id
        assert world.reply(request(session_id, 2), FOLLOWER).error == NOT_FOUND
        assert kept in world.sessions.cache


def test_a_full_fetch_without_partitions_makes_no_session(world: World) -> None:
    reply = world.reply(request(0, 0))
    assert (reply.error, reply.session_id, len(world.sessions.cache)) == (0, 0, 0)


def test_a_partition_listed_twice_is_answered_once(world: World) -> None:
    world.produce(world.by_name["t", 0], 3)
    reply = world.open([Ask("t", 0, 1), Ask("t", 0, 3)])
    assert reply.order == [("t", 0)]
    assert not reply.parts["t", 0].records


class TestBoundsOfMemory:
    def test_a_session_that_would_not_fit_is_served_without_one(self) -> None:
        world = World(partitions_max=2)
        reply = world.open([Ask("t", index) for index in range(3)])
        assert (reply.error, reply.session_id, len(reply.parts)) == (0, 0, 3)

    def test_a_session_that_outgrows_the_bound_is_closed(self) -> None:
        world = World(partitions_max=2)
        session_id = world.open(two()).session_id
        reply = world.reply(request(session_id, 1, [Ask("t", 2)]))
        assert (reply.error, reply.session_id, reply.parts) == (NOT_FOUND, 0, {})
        assert (len(world.sessions.cache), world.sessions.cache.partitions) == (0, 0)

    def test_the_partitions_of_all_sessions_are_counted(self, world: World) -> None:
        session_id = world.open(two()).session_id
        world.open([Ask("t", 0)], BOB)
        assert world.sessions.cache.partitions == 3
        world.reply(request(session_id, 1, [Ask("t", 2), Ask("t", 0)], [("t", 1)], wait_ms=0))
        assert world.sessions.cache.partitions == 3
        world.reply(request(session_id, -1, wait_ms=0))
        assert world.sessions.cache.partitions == 1
