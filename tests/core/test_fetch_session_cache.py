"""The slots for sessions: who gets one, who has to go, and what it costs to have a big one."""

import itertools
import random

import pytest

from headrace.core.fetch_answer import Fetch
from headrace.core.fetch_cache import EVICTION_AGE_MS
from headrace.core.fetch_session import Fetcher
from headrace.core.fetch_sessions import FetchSessions
from headrace.errors import ErrorCode
from tests.core.fetch_world import ALICE, BOB, BY_NAME, FOLLOWER, Ask, World, read, request

ID = b"i" * 16
AGE = EVICTION_AGE_MS


def world_with(partitions: int, slots_max: int = 1) -> World:
    world = World(slots_max=slots_max)
    for index in range(partitions):
        world.host("t", ID, index)
    return world


def opened(world: World, size: int, privileged: bool = False) -> int:
    return world.open([Ask("t", index) for index in range(size)], FOLLOWER if privileged else ALICE).session_id


@pytest.mark.parametrize(
    ("candidate_privileged", "privileged", "age_ms", "idle_ms", "candidate_size"),
    [
        case
        for case in itertools.product(
            [False, True], [False, True], [AGE - 1, AGE, AGE + 1], [0, AGE - 1, AGE, AGE + 1], [1, 2, 3]
        )
        if case[3] <= case[2]  # it cannot be idle for longer than it lives
    ],
)
def test_who_may_take_whose_slot(
    candidate_privileged: bool, privileged: bool, age_ms: int, idle_ms: int, candidate_size: int
) -> None:
    """T227-8: every combination, with ties of size and exactly the eviction age."""
    world = world_with(3)
    session_id = opened(world, 2, privileged)
    world.now_ms += age_ms - idle_ms
    world.reply(request(session_id, 1, wait_ms=0), FOLLOWER if privileged else ALICE)
    world.now_ms += idle_ms
    stale = idle_ms > AGE
    outranks = candidate_privileged and not privileged
    bigger = age_ms > AGE and candidate_size > 2 and not (privileged and not candidate_privileged)
    evicts = stale or outranks or bigger
    got_one = opened(world, candidate_size, candidate_privileged) != 0
    assert (got_one, session_id in world.sessions.cache) == (evicts, not evicts)
    assert world.sessions.cache.evictions == int(evicts)
    assert world.sessions.cache.partitions == (candidate_size if evicts else 2)


def test_the_least_recently_used_of_the_stale_ones_goes_first() -> None:
    """Every incremental fetch counts as use, also one without partitions."""
    world = world_with(2, slots_max=3)
    ids = [opened(world, 1) for _ in range(3)]
    world.now_ms += 10
    for session_id in (ids[2], ids[0], ids[1]):
        world.reply(request(session_id, 1, wait_ms=0))
    world.now_ms += AGE + 1
    opened(world, 1)
    assert [session_id in world.sessions.cache for session_id in ids] == [True, True, False]
    opened(world, 1)
    assert [session_id in world.sessions.cache for session_id in ids] == [False, True, False]


def test_the_smallest_goes_first_when_a_follower_needs_a_slot() -> None:
    world = world_with(5, slots_max=3)
    ids = [opened(world, size) for size in (4, 2, 5)]
    assert opened(world, 1, privileged=True) != 0
    assert [session_id in world.sessions.cache for session_id in ids] == [True, False, True]


def test_without_slots_everybody_is_served_without_a_session() -> None:
    world = world_with(2, slots_max=0)
    reply = world.open([Ask("t", 0), Ask("t", 1)])
    assert (reply.session_id, len(reply.parts), len(world.sessions.cache)) == (0, 2, 0)
    assert not any(replica.subscribers for replica in world.by_name.values())


def test_a_close_by_the_client_is_no_eviction() -> None:
    world = world_with(1)
    session_id = opened(world, 1)
    world.reply(request(session_id, -1, wait_ms=0))
    assert (world.sessions.cache.evictions, len(world.sessions.cache)) == (0, 0)


def test_an_evicted_session_answers_its_parked_fetch_first() -> None:
    """T227-22."""
    world = world_with(2)
    session_id = opened(world, 1)
    fetch = world.parked(request(session_id, 1, min_bytes=1_000))
    world.produce(world.by_name["t", 0])
    assert opened(world, 1, privileged=True) != 0
    reply = world.replies[fetch]
    assert (reply.error, reply.session_id, reply.with_records) == (0, session_id, [("t", 0)])
    assert world.reply(request(session_id, 2)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert world.by_name["t", 1].subscribers is None


def test_a_request_that_overtakes_a_parked_one_answers_it_at_once() -> None:
    """T227-22: with the session's id, so that the client can tell which one it was."""
    world = world_with(1)
    session_id = opened(world, 1)
    fetch = world.parked(request(session_id, 1))
    later = world.parked(request(session_id, 2))
    reply = world.replies[fetch]
    assert (reply.error, reply.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id)
    assert world.sessions.parked == [later]


def test_session_ids_look_uniform() -> None:
    """T227-26: one chi-squared test over 64 buckets of the range, with a seeded source in the place of `secrets`."""
    source = random.Random(227)

    sessions = FetchSessions(
        slots_max=100_000,
        partitions_max=100_000,
        fetch_bytes_max=1,
        draw_id=lambda: source.getrandbits(31),
        find_by_name=lambda _topic, _index: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        find_by_id=lambda _topic, _index: ErrorCode.UNKNOWN_TOPIC_ID,
        allowed=lambda _principal, _topic: True,
    )
    body = request(0, 0, [Ask("t", 0)])
    count, buckets = 100_000, [0] * 64
    for _ in range(count):
        fetch = sessions.receive(body, BY_NAME, BOB, 0).verdict
        assert isinstance(fetch, Fetch)
        buckets[sessions.build(fetch, read, 0).session_id >> 25] += 1
    expected = count / 64
    assert len(sessions.cache) == count
    # 63 degrees of freedom: above 120 once in 100,000 runs, if the ids are what they should be.
    assert sum((bucket - expected) ** 2 / expected for bucket in buckets) < 120


class TestCostOfABigSession:
    def test_an_idle_fetch_visits_nothing(self) -> None:
        """T227-4."""
        world = world_with(1_000)
        session_id = opened(world, 1_000)
        before, reads = world.sessions.partitions_visited, [replica.reads for replica in world.by_name.values()]
        fetch = world.parked(request(session_id, 1))
        assert world.finish(fetch).parts == {}
        assert world.sessions.partitions_visited == before
        assert [replica.reads for replica in world.by_name.values()] == reads

    def test_one_append_among_many_visits_one(self) -> None:
        """T227-5."""
        world = world_with(10_000)
        session_id = opened(world, 10_000)
        before = world.sessions.partitions_visited, world.sessions.partitions_returned
        fetch = world.parked(request(session_id, 1))
        world.produce(world.by_name["t", 4711])
        assert world.replies[fetch].with_records == [("t", 4711)]
        assert world.sessions.partitions_visited - before[0] == 1
        assert world.sessions.partitions_returned - before[1] == 1


def test_two_registrations_of_one_node_have_sessions_of_their_own() -> None:
    world = world_with(1, slots_max=2)
    for broker_epoch in (70, 71):
        assert world.open([Ask("t", 0)], Fetcher("User:node", 7, broker_epoch)).session_id != 0
