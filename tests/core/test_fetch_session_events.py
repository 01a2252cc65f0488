"""What wakes a parked fetch, what does not, and what an event does to a session."""

import pytest

from headrace.errors import ErrorCode
from tests.core.fetch_world import ALICE, BATCH_BYTES, BY_ID, BY_NAME, FOLLOWER, Ask, FakeReplica, World, request

ID, NEW_ID = b"i" * 16, b"n" * 16
OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.fixture
def world() -> World:
    world = World()
    for index in range(3):
        world.host("t", ID, index)
    return world


def some(count: int) -> list[Ask]:
    return [Ask("t", index) for index in range(count)]


class TestWaiting:
    def test_an_idle_session_is_answered_when_data_comes(self, world: World) -> None:
        session_id = world.open(some(2)).session_id
        fetch = world.parked(request(session_id, 1))
        world.produce(world.by_name["t", 1])
        assert world.replies[fetch].with_records == [("t", 1)]
        assert world.sessions.parked == []

    @pytest.mark.parametrize("epoch", [0, -1])
    def test_a_full_fetch_waits_as_well_and_then_tells_every_partition(self, world: World, epoch: int) -> None:
        fetch = world.parked(request(0, epoch, some(3)))
        world.produce(world.by_name["t", 1])
        reply = world.replies[fetch]
        assert reply.order == [("t", 0), ("t", 1), ("t", 2)]
        assert reply.with_records == [("t", 1)]
        assert (reply.session_id != 0) == (epoch == 0)
        watched = [replica for replica in world.by_name.values() if replica.subscribers]
        assert len(watched) == (3 if epoch == 0 else 0)

    def test_a_fetch_whose_connection_closed_leaves_nothing_behind(self, world: World) -> None:
        fetch = world.parked(request(0, -1, [*some(3), Ask("later", 0)]))
        world.sessions.abandon(fetch)
        assert world.sessions.parked == []
        assert not any(replica.subscribers for replica in world.by_name.values())
        assert not world.sessions.anybody_waits_for_partitions

    @pytest.mark.parametrize(("wait_ms", "min_bytes"), [(0, 1), (-1, 1), (500, 0), (500, -1)])
    def test_who_asks_not_to_wait_does_not(self, world: World, wait_ms: int, min_bytes: int) -> None:
        session_id = world.open(some(2)).session_id
        assert world.reply(request(session_id, 1, wait_ms=wait_ms, min_bytes=min_bytes)).parts == {}

    def test_offsets_alone_never_cause_an_answer_but_go_with_the_next_one(self, world: World) -> None:
        replica = world.by_name["t", 0]
        replica.append(3)
        session_id = world.open([Ask("t", 0, 3)]).session_id
        fetch = world.parked(request(session_id, 1))
        replica.high_watermark = 2
        assert world.sessions.advanced(replica) == []
        replica.log_start_offset = 1
        assert world.sessions.changed(replica) == []
        part = world.finish(fetch).parts["t", 0]
        assert (part.high_watermark, part.log_start_offset, part.records) == (2, 1, b"")
        world.parked(request(session_id, 2))


class TestEnoughBytes:
    """T227-24."""

    def test_what_is_ready_at_parking_counts(self, world: World) -> None:
        session_id = world.open(some(2)).session_id
        world.produce(world.by_name["t", 0], size=40_000)
        fetch = world.parked(request(session_id, 1, min_bytes=50_000))
        world.produce(world.by_name["t", 1], size=9_999)
        assert fetch not in world.replies
        world.produce(world.by_name["t", 1], size=1)
        assert world.replies[fetch].with_records == [("t", 0), ("t", 1)]

    def test_one_hot_partition_counts_up_to_its_own_limit(self, world: World) -> None:
        session_id = world.open([Ask("t", 0, max_bytes=1_000), Ask("t", 1)]).session_id
        fetch = world.parked(request(session_id, 1, min_bytes=1_200))
        for _ in range(50):
            world.produce(world.by_name["t", 0], size=100)
        assert fetch not in world.replies
        world.produce(world.by_name["t", 1], size=200)
        assert fetch in world.replies

    def test_more_than_the_answer_can_hold_is_not_waited_for(self, world: World) -> None:
        session_id = world.open(some(2)).session_id
        world.produce(world.by_name["t", 0], size=300)
        assert world.reply(request(session_id, 1, min_bytes=5_000, max_bytes=250)).with_records == [("t", 0)]

    def test_a_reader_in_an_older_segment_never_waits(self, world: World) -> None:
        replica = world.by_name["t", 0]
        session_id = world.open(some(2)).session_id
        for _ in range(3):
            world.produce(replica)
        replica.segment_start = 2
        assert world.reply(request(session_id, 1, min_bytes=1_000_000)).with_records == [("t", 0)]

    @pytest.mark.parametrize("listed", [True, False])
    def test_an_entry_held_by_a_quota_neither_wakes_nor_loops(self, world: World, listed: bool) -> None:
        session_id = world.open(some(2), FOLLOWER).session_id
        world.held_back = True
        world.produce(world.by_name["t", 0])
        fetch = world.parked(request(session_id, 1, some(1) if listed else ()), FOLLOWER)
        world.produce(world.by_name["t", 0])
        assert fetch not in world.replies
        world.held_back = False
        world.answer(world.sessions.quota_moved())
        assert world.replies[fetch].with_records == [("t", 0)]

    def test_an_entry_listed_at_the_log_end_is_held_no_longer(self, world: World) -> None:
        session_id = world.open(some(2), FOLLOWER).session_id
        world.held_back = True
        world.produce(world.by_name["t", 0])
        world.parked(request(session_id, 1), FOLLOWER)
        fetch = world.parked(request(session_id, 2, [Ask("t", 0, 1)]), FOLLOWER)
        assert fetch.session.held == {}
        world.held_back = False
        assert world.sessions.quota_moved() == []

    def test_consumers_are_not_held_back(self, world: World) -> None:
        session_id = world.open(some(2)).session_id
        world.held_back = True
        world.produce(world.by_name["t", 0])
        assert world.reply(request(session_id, 1)).with_records == [("t", 0)]


@pytest.mark.parametrize("opened", [True, False])
def test_a_quota_that_begins_to_hold_while_parked_does_not_wake(world: World, opened: bool) -> None:
    """T227-34: what it holds counts no longer."""
    if opened:
        world.produce(world.by_name["t", 0])
        session_id = world.open(some(2), FOLLOWER).session_id
        fetch = world.parked(request(session_id, 1, min_bytes=150), FOLLOWER)
    else:
        world.produce(world.by_name["t", 0])
        fetch = world.parked(request(0, 0, some(2), min_bytes=150), FOLLOWER)
    world.held_back = True
    assert world.sessions.quota_moved() == []
    world.produce(world.by_name["t", 1], size=149)
    assert fetch not in world.replies
    world.produce(world.by_name["t", 1], size=1)
    assert world.replies[fetch].with_records == [("t", 1)]


def test_an_open_transaction_and_a_busy_high_watermark_do_not_wake_a_committed_reader(world: World) -> None:
    """T227-18."""
    replica = world.by_name["t", 0]
    session_id = world.open(some(2), isolation=1).session_id
    fetch = world.parked(request(session_id, 1, isolation=1))
    for _ in range(1_000):
        replica.append()
        replica.high_watermark = replica.log_end_offset
        assert world.sessions.advanced(replica) == []
    reply = world.finish(fetch)
    assert (reply.parts["t", 0].high_watermark, reply.with_records) == (1_000, [])
    fetch = world.parked(request(session_id, 2, isolation=1))
    replica.last_stable_offset = 1_000
    world.answer(world.sessions.advanced(replica))
    assert world.replies[fetch].with_records == [("t", 0)]


def test_a_session_may_change_its_isolation(world: World) -> None:
    """T227-19."""
    replica = world.by_name["t", 0]
    for _ in range(5):
        replica.append()
    replica.high_watermark, replica.last_stable_offset = 5, 2
    session_id = world.open(some(2)).session_id
    read_bytes = [
        len(world.reply(request(session_id, epoch, isolation=isolation, wait_ms=0)).parts["t", 0].records or b"")
        for epoch, isolation in enumerate([1, 0, 1, 1], start=1)
    ]
    assert read_bytes == [2 * BATCH_BYTES, 5 * BATCH_BYTES, 2 * BATCH_BYTES, 2 * BATCH_BYTES]


class TestTopicsThatComeAndGo:
    def test_one_that_is_deleted_and_created_again_has_another_id(self, world: World) -> None:
        """T227-12."""
        session_id = world.open([Ask(ID, 0), Ask(ID, 1)], version=BY_ID).session_id
        fetch = world.parked(request(session_id, 1), version=BY_ID)
        world.drop(world.by_name["t", 0])
        assert fetch not in world.replies, "nothing that the client could do about it at once"
        world.drop(world.by_name["t", 1])
        assert [part.error_code for part in world.replies[fetch].parts.values()] == [100, 100]
        replica = world.host("t", NEW_ID, 0)
        world.produce(replica)
        reply = world.reply(request(session_id, 2, [Ask(NEW_ID, 0)], [(ID, 0), (ID, 1)]), version=BY_ID)
        assert (reply.session_id, reply.with_records, reply.order) == (session_id, [(NEW_ID, 0)], [(NEW_ID, 0)])

    def test_one_named_before_it_exists_is_served_when_it_does(self, world: World) -> None:
        """T227-31: it rides along with other answers, and causes none."""
        session_id = world.open([Ask("later", 0), Ask("t", 0)]).session_id
        fetch = world.parked(request(session_id, 1))
        assert world.finish(fetch).parts["later", 0].error_code == 3
        fetch = world.parked(request(session_id, 2))
        replica = world.host("later", NEW_ID, 0)
        world.produce(replica)
        reply = world.replies[fetch]
        assert (reply.order, reply.with_records) == ([("later", 0)], [("later", 0)])
        assert not world.sessions.anybody_waits_for_partitions

    def test_one_that_moves_away_and_back_is_served_again(self, world: World) -> None:
        """T227-31."""
        replica = world.by_name["t", 0]
        world.produce(replica, 2)
        session_id = world.open([Ask("t", 0, 2), Ask("t", 1)]).session_id
        fetch = world.parked(request(session_id, 1))
        del world.by_name["t", 0]
        world.answer(world.sessions.removed(replica))
        assert world.finish(fetch).parts["t", 0].error_code == 3
        assert replica.subscribers is None
        world.by_name["t", 0] = replica
        world.answer(world.sessions.placed("t", ID, 0))
        reply = world.reply(request(session_id, 2, wait_ms=0))
        assert (reply.parts["t", 0].error_code, reply.parts["t", 0].high_watermark) == (0, 2)
        world.parked(request(session_id, 3))

    def test_nobody_is_asked_about_a_partition_that_he_forgot(self, world: World) -> None:
        session_id = world.open([Ask("later", 0), Ask("t", 0)]).session_id
        world.reply(request(session_id, 1, forget=[("later", 0)], wait_ms=0))
        assert not world.sessions.anybody_waits_for_partitions
        world.open([Ask("later", 0)])
        session = world.sessions.cache.values()[-1]
        world.reply(request(session.id, -1, wait_ms=0))
        assert not world.sessions.anybody_waits_for_partitions


class TestLogsThatMoveUnderTheReader:
    def test_a_log_start_beyond_the_reader_is_told_at_once(self, world: World) -> None:
        """T227-33."""
        replica = world.by_name["t", 0]
        world.produce(replica, 5)
        session_id = world.open([Ask("t", 0, 5), Ask("t", 1)]).session_id
        fetch = world.parked(request(session_id, 1))
        world.produce(replica, 3)
        world.replies.clear()
        fetch = world.parked(request(session_id, 2, [Ask("t", 0, 8)], min_bytes=500))
        world.produce(replica, 2)
        replica.log_start_offset = 9
        world.answer(world.sessions.changed(replica))
        assert world.replies[fetch].parts["t", 0].error_code == OUT_OF_RANGE

    def test_a_reader_ahead_of_the_log_gets_its_data_when_the_log_grows_past_it(self, world: World) -> None:
        """T227-35: the log end is enough to end the error, the high watermark to send the data."""
        replica = world.by_name["t", 0]
        session_id = world.open([Ask("t", 0, 2), Ask("t", 1)]).session_id
        assert world.reply(request(session_id, 1)).parts["t", 0].error_code == OUT_OF_RANGE
        replica.append(1)
        assert world.reply(request(session_id, 2)).parts["t", 0].error_code == OUT_OF_RANGE
        replica.append(1)
        world.answer(world.sessions.advanced(replica))
        reply = world.reply(request(session_id, 3, wait_ms=0))
        assert (reply.parts["t", 0].error_code, reply.parts["t", 0].high_watermark) == (0, 0)
        fetch = world.parked(request(session_id, 4))
        replica.append(1)
        replica.commit()
        world.answer(world.sessions.advanced(replica))
        assert world.replies[fetch].with_records == [("t", 0)]

    def test_a_truncation_takes_back_what_was_ready(self, world: World) -> None:
        replica = world.by_name["t", 0]
        world.produce(replica, 2)
        session_id = world.open([Ask("t", 0, 2), Ask("t", 1)]).session_id
        world.produce(replica, 2)
        replica.truncate(2)
        world.answer(world.sessions.changed(replica))
        fetch = world.parked(request(session_id, 1))
        assert world.finish(fetch).with_records == []

    def test_a_new_leader_epoch_fences_the_reader_at_once(self, world: World) -> None:
        replica = world.by_name["t", 0]
        session_id = world.open([Ask("t", 0, leader_epoch=0), Ask("t", 1)]).session_id
        fetch = world.parked(request(session_id, 1))
        replica.leader_epoch = 1
        world.answer(world.sessions.changed(replica))
        assert world.replies[fetch].parts["t", 0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        world.parked(request(session_id, 2, [Ask("t", 0, leader_epoch=1)]))


class TestPermissions:
    def test_a_denied_topic_rides_along(self, world: World) -> None:
        world.host("secret", NEW_ID, 0)
        world.denied.add((ALICE.principal, "secret"))
        session_id = world.open([Ask("secret", 0), Ask("t", 0)]).session_id
        fetch = world.parked(request(session_id, 1))
        assert world.finish(fetch).parts["secret", 0].error_code == 29
        world.produce(world.by_name["secret", 0])
        assert world.finish(world.parked(request(session_id, 2))).with_records == []

    @pytest.mark.parametrize("version", [BY_NAME, BY_ID])
    def test_a_changed_rule_is_seen_by_the_next_fetch_of_a_session(self, world: World, version: int) -> None:
        key: str | bytes = "t" if version == BY_NAME else ID
        world.produce(world.by_name["t", 0])
        session_id = world.open([Ask(key, 0)], version=version).session_id
        world.denied.add((ALICE.principal, "t"))
        world.sessions.acl_version += 1
        denied = world.reply(request(session_id, 1), version=version).parts[key, 0]
        assert (denied.error_code, denied.records) == (29, b"")
        world.denied.clear()
        world.sessions.acl_version += 1
        assert world.reply(request(session_id, 2), version=version).with_records == [(key, 0)]

    def test_whether_a_denied_name_exists_is_not_told(self, world: World) -> None:
        world.denied.add((ALICE.principal, "nowhere"))
        assert world.open([Ask("nowhere", 0)]).parts["nowhere", 0].error_code == 29


def test_a_fetch_of_nothing_but_unknown_partitions_is_answered_at_once(world: World) -> None:
    assert world.reply(request(0, -1, [Ask("x", 0)])).parts["x", 0].error_code == 3


def test_a_closed_session_answers_its_parked_fetch_first(world: World) -> None:
    """T227-22: closed by its own client on another connection; with what is there, and under its id."""
    session_id = world.open(some(2)).session_id
    fetch = world.parked(request(session_id, 1, min_bytes=1_000))
    world.produce(world.by_name["t", 0])
    world.reply(request(session_id, -1, wait_ms=0))
    assert (world.replies[fetch].session_id, world.replies[fetch].with_records) == (session_id, [("t", 0)])
    assert world.reply(request(session_id, 2)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_without_watchers_costs_a_truth_test() -> None:
    replica = FakeReplica("t", ID, 0)
    assert not replica.subscribers
