"""Who keeps up, told by fetch sessions: idle, busy, dead, replaced, late and faulty followers of one partition."""

import pytest

from headrace.core import fetch_liveness
from headrace.core.fetch_answer import Fetch
from headrace.core.fetch_entries import watching
from headrace.core.fetch_session import Fetcher
from headrace.core.leading import FollowerState
from headrace.errors import ErrorCode
from tests.core.fetch_world import BY_ID, FOLLOWER, Ask, FakeReplica, Reply, World, request
from tests.core.replicas import nodes_with

LAG_MS = 30_000
T = b"t".ljust(16)


class LedWorld(World):
    def __init__(self, partitions: int = 1) -> None:
        super().__init__()
        self.replicas = [self.host("t", T, index) for index in range(partitions)]
        for replica in self.replicas:
            replica.lead_follower(nodes_with(0, FOLLOWER.replica_id), lambda: self.now_ms)
        self.session_id = 0
        self.epoch = 0

    @property
    def replica(self) -> FakeReplica:
        return self.replicas[0]

    def follower(self, index: int = 0) -> FollowerState:
        leadership = self.replicas[index].leadership
        assert leadership is not None
        return leadership.followers[FOLLOWER.replica_id]

    def out_of_sync(self, index: int = 0) -> bool:
        replica = self.replicas[index]
        assert replica.leadership is not None
        return bool(replica.leadership.out_of_sync(replica.log_end_offset, self.now_ms))

    def join(self, *offsets: int, leader_epoch: int = -1) -> None:
        """A full fetch that opens a session."""
        asks = [Ask(T, index, offset, leader_epoch=leader_epoch) for index, offset in enumerate(offsets or (0,))]
        reply = self.reply(request(self.session_id, 0, asks, wait_ms=0), FOLLOWER, BY_ID)
        self.session_id, self.epoch = reply.session_id, 1

    def poll(self, *asks: Ask, wait_ms: int = 0, max_bytes: int = 1 << 30) -> Reply | Fetch:
        body = request(self.session_id, self.epoch, asks, wait_ms=wait_ms, max_bytes=max_bytes)
        self.epoch += 1
        return self.fetch(body, FOLLOWER, BY_ID)


def test_an_idle_follower_that_lists_nothing_stays() -> None:
    """T227-14: for ten times the largest lag."""
    world = LedWorld()
    world.join()
    for _ in range(40):
        world.now_ms += LAG_MS // 4
        world.poll()
        assert not world.out_of_sync()
    last = world.now_ms
    world.produce(world.replica)
    assert world.follower().caught_up_ms == last


def test_a_dead_follower_of_a_busy_partition_leaves_in_time() -> None:
    """T227-14. The check comes every half of the largest lag."""
    world = LedWorld()
    world.join()
    world.produce(world.replica)
    world.now_ms += LAG_MS
    assert not world.out_of_sync()
    world.now_ms += 1
    assert world.out_of_sync()


def test_a_fenced_follower_of_a_busy_partition_leaves_in_time() -> None:
    """T227-17."""
    world = LedWorld()
    world.join(leader_epoch=0)
    world.replica.lead(1)
    world.answer(world.sessions.changed(world.replica))
    world.produce(world.replica)
    for _ in range(5):
        world.now_ms += LAG_MS // 4
        world.poll()  # it asks on, but with the old epoch
    assert world.out_of_sync()


def test_what_a_fenced_follower_asks_while_nothing_happens_does_not_keep_it_in_sync() -> None:
    """T227-17."""
    world = LedWorld()
    world.join(leader_epoch=0)
    world.replica.lead(1)
    world.answer(world.sessions.changed(world.replica))
    for _ in range(5):
        world.now_ms += LAG_MS // 4
        world.poll()
    world.produce(world.replica)
    assert world.out_of_sync()


def test_a_replaced_incarnation_that_wakes_up_has_no_session_and_counts_no_more() -> None:
    """T227-20."""
    world = LedWorld()
    world.join()
    world.answer(world.sessions.replica_gone(FOLLOWER.replica_id, FOLLOWER.broker_epoch))
    assert world.follower().entry is None
    reply = world.poll()
    assert isinstance(reply, Reply) and reply.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert world.follower().entry is None


def test_a_parked_full_fetch_of_a_replaced_incarnation_opens_no_session() -> None:
    world = LedWorld()
    world.join()
    parked = world.parked(request(0, 0, [Ask(T, 0)]), FOLLOWER, BY_ID)
    woken = world.sessions.replica_gone(FOLLOWER.replica_id, FOLLOWER.broker_epoch)
    assert parked in woken
    assert world.finish(parked).session_id == 0
    assert world.follower().entry is None and len(world.sessions.cache) == 0


def test_a_follower_that_reconnects_every_second_stays_and_is_counted_once() -> None:
    """T227-21: for ten minutes."""
    world = LedWorld()
    for _ in range(600):
        world.now_ms += 1000
        world.session_id = 0
        world.join(world.replica.log_end_offset)
        world.produce(world.replica)
        assert not world.out_of_sync()
        (speaker,) = [entry for entry in watching(world.replica) if fetch_liveness.spoken_for(entry) is not None]
        assert speaker.session.id == world.session_id
    assert len(list(watching(world.replica))) > 1  # the sessions before are there still, and do not count


def test_a_late_copy_of_an_old_full_fetch_holds_the_follower_back_until_its_next_fetch_only() -> None:
    """T227-28."""
    world = LedWorld()
    for _ in range(3):
        world.produce(world.replica)
    world.join(3)
    late = world.reply(request(0, 0, [Ask(T, 0, 1)], wait_ms=0), FOLLOWER, BY_ID)
    assert late.session_id != world.session_id and world.follower().offset == 1
    world.poll()  # lists nothing
    assert world.follower().offset == 3
    assert not world.out_of_sync()


def test_news_of_offsets_alone_do_not_end_being_in_step() -> None:
    """T227-29."""
    world = LedWorld()
    world.produce(world.replica)
    world.join(1)
    world.now_ms += LAG_MS
    world.replica.log_start_offset = 1
    world.answer(world.sessions.changed(world.replica))
    world.poll()
    world.produce(world.replica)
    world.now_ms += LAG_MS
    assert not world.out_of_sync()


@pytest.mark.parametrize("heals", [True, False])
def test_a_fault_that_ends_by_itself_lends_no_liveness(heals: bool) -> None:
    """T227-29."""
    world = LedWorld()
    world.join()
    joined = world.now_ms
    world.replica.error = ErrorCode.KAFKA_STORAGE_ERROR
    world.answer(world.sessions.changed(world.replica))
    world.now_ms += LAG_MS
    world.poll()  # gets the error
    if heals:
        world.replica.error = ErrorCode.NONE
        world.answer(world.sessions.changed(world.replica))
    world.produce(world.replica)
    assert world.follower().caught_up_ms == joined
    world.now_ms += 1
    assert world.out_of_sync()


def test_followers_of_many_busy_partitions_under_a_small_budget_stay_while_they_keep_up() -> None:
    """T227-30."""
    world = LedWorld(80)
    world.join(*[0] * 80)
    fetched = dict.fromkeys(range(80), 0)
    for _ in range(600):
        world.now_ms += 500
        for replica in world.replicas[:4]:
            world.produce(replica)
        reply = world.poll(*(Ask(T, index, offset) for index, offset in fetched.items() if offset), max_bytes=600)
        assert isinstance(reply, Reply)
        fetched = {}
        for (_, index), part in reply.parts.items():
            if part.records:
                batches = bytes(part.records).count(b"@")
                entry = world.follower(index).entry
                assert entry is not None
                fetched[index] = entry.fetch_offset + batches
        assert not any(world.out_of_sync(index) for index in range(80))


def test_a_follower_whose_turn_comes_seldom_is_in_sync_as_of_the_answer_that_brought_everything() -> None:
    """T227-30: a round takes less than the largest lag, two take more, and the log has grown at each listing."""
    world = LedWorld(80)
    world.join(*[0] * 80)
    for replica in world.replicas:
        world.produce(replica)
    fetched: dict[int, int] = {}
    for _ in range(600):
        world.now_ms += LAG_MS // 120
        for index in fetched:
            world.produce(world.replicas[index])
        reply = world.poll(*(Ask(T, index, offset) for index, offset in fetched.items()), max_bytes=1)
        assert isinstance(reply, Reply)
        served = [index for (_, index), part in reply.parts.items() if part.records]
        assert len(served) == 1
        fetched = {index: world.replicas[index].log_end_offset for index in served}
        assert not any(world.out_of_sync(index) for index in range(80))


def test_a_node_without_a_replica_learns_that_it_is_none() -> None:
    world = LedWorld()
    stranger = Fetcher("User:node", 9, 90)
    reply = world.reply(request(0, 0, [Ask(T, 0, leader_epoch=0)]), stranger, BY_ID)
    assert reply.parts[T, 0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    reply = world.reply(request(0, 0, [Ask(T, 0)]), stranger, BY_ID)
    assert reply.parts[T, 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_request_tells_which_partitions_its_follower_moved_in() -> None:
    world = LedWorld(3)
    world.join(0, 0, 0)
    body = request(world.session_id, 1, [Ask(T, 1, 0)])
    assert world.sessions.receive(body, BY_ID, FOLLOWER, world.now_ms).followed == [world.replicas[1]]
