"""What an answer holds, in which order, and what the fetcher has been told by it."""

import pytest

from headrace.core.fetch_answer import handed_over
from headrace.core.fetch_sessions import Refusal
from headrace.errors import ErrorCode
from tests.core.fetch_world import (
    ALICE,
    BATCH_BYTES,
    BY_ID,
    BY_NAME,
    FOLLOWER,
    Ask,
    FakeReplica,
    World,
    read,
    reply_of,
    request,
)

ID = b"i" * 16


@pytest.fixture
def world() -> World:
    world = World()
    for index in range(3):
        world.host("t", ID, index)
    return world


def some(count: int) -> list[Ask]:
    return [Ask("t", index) for index in range(count)]


def test_two_endless_partitions_alternate_under_a_budget_for_one(world: World) -> None:
    """T227-6: and the high watermark of a third one does not change that."""
    for index in (0, 1):
        for _ in range(10):
            world.produce(world.by_name["t", index])
    quiet = world.by_name["t", 2]
    quiet.append(100)
    session_id = world.open([*some(2), Ask("t", 2, 100)]).session_id
    served = []
    for epoch in range(1, 9):
        quiet.high_watermark = epoch
        world.answer(world.sessions.advanced(quiet))
        reply = world.reply(request(session_id, epoch, max_bytes=BATCH_BYTES))
        served += [index for _, index in reply.with_records]
    # The full fetch served both, in the order of the request.
    assert served == [0, 1, 0, 1, 0, 1, 0, 1]


def test_news_of_offsets_move_nobody_to_the_end(world: World) -> None:
    """T227-6: else a busy partition that is never reached would starve."""
    for index in range(3):
        world.produce(world.by_name["t", index])
    session_id = world.open(some(3)).session_id
    served = []
    for epoch in range(1, 7):
        for index in (1, 2):
            world.produce(world.by_name["t", index])
        served += world.reply(request(session_id, epoch, max_bytes=BATCH_BYTES)).with_records
    assert [index for _, index in served] == [0, 1, 2, 0, 1, 2]


def test_the_first_batch_may_exceed_every_limit(world: World) -> None:
    world.produce(world.by_name["t", 0], size=5_000)
    world.produce(world.by_name["t", 1], size=70)
    reply = world.reply(request(0, -1, [Ask("t", 0, max_bytes=10), Ask("t", 1)], max_bytes=100))
    assert [len(part.records or b"") for part in reply.parts.values()] == [5_000, 0]


def test_what_does_not_fit_is_skipped_and_keeps_its_place(world: World) -> None:
    sizes = {0: 100, 1: 5_000, 2: 100}
    for index, size in sizes.items():
        world.produce(world.by_name["t", index], size=size)
    session_id = world.open(some(3)).session_id
    # Everybody was served by the full fetch, in this order.
    assert world.reply(request(session_id, 1, max_bytes=300)).with_records == [("t", 0), ("t", 2)]
    assert world.reply(request(session_id, 2, max_bytes=300)).with_records == [("t", 1)]


def test_a_budget_that_fits_nobody_any_more_ends_the_reading() -> None:
    world = World()
    asks = []
    for index in range(1_000):
        replica = world.host("t", ID, index)
        replica.append(size=100)
        replica.commit()
        asks.append(Ask("t", index))
    reply = world.reply(request(0, -1, asks, max_bytes=190))
    assert reply.with_records == [("t", 0)]
    assert sum(replica.reads for replica in world.by_name.values()) < 20


def test_listing_a_ready_partition_keeps_its_place(world: World) -> None:
    for index in (0, 1):
        for _ in range(3):
            world.produce(world.by_name["t", index])
    session_id = world.open(some(2)).session_id
    reply = world.reply(request(session_id, 1, [Ask("t", 0, 1)], max_bytes=BATCH_BYTES))
    assert reply.with_records == [("t", 0)]


@pytest.mark.parametrize("error", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_an_error_is_told_until_it_ends_and_then_the_old_high_watermark_again(world: World, error: ErrorCode) -> None:
    """T227-7."""
    replica = world.by_name["t", 0]
    session_id = world.open(some(2)).session_id
    replica.error = error
    world.answer(world.sessions.changed(replica))
    for epoch in (1, 2):
        reply = world.reply(request(session_id, epoch))
        assert [(key, part.error_code, part.high_watermark) for key, part in reply.parts.items()] == [
            (("t", 0), error, -1)
        ]
    replica.error = ErrorCode.NONE
    world.answer(world.sessions.changed(replica))
    reply = world.reply(request(session_id, 3, wait_ms=0))
    assert [(part.error_code, part.high_watermark) for part in reply.parts.values()] == [(0, 0)]
    assert world.reply(request(session_id, 4, wait_ms=0)).parts == {}


def test_an_error_that_nobody_was_told_of_is_no_news(world: World) -> None:
    replica = world.by_name["t", 0]
    session_id = world.open(some(2)).session_id
    for error in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE):
        replica.error = error
        world.answer(world.sessions.changed(replica))
    assert world.reply(request(session_id, 1, wait_ms=0)).parts == {}


def test_data_that_is_not_asked_beyond_comes_again(world: World) -> None:
    """T227-15: never silence."""
    session_id = world.open(some(2)).session_id
    world.produce(world.by_name["t", 0])
    replies = [world.reply(request(session_id, epoch)) for epoch in (1, 2, 3)]
    assert [reply.parts["t", 0].records for reply in replies] == [replies[0].parts["t", 0].records] * 3
    world.reply(request(session_id, 4, [Ask("t", 0, 1)], wait_ms=0))
    world.parked(request(session_id, 5))


def test_forgetting_a_partition_stops_its_data_at_once(world: World) -> None:
    """T227-16."""
    session_id = world.open(some(2)).session_id
    world.produce(world.by_name["t", 0])
    world.parked(request(session_id, 1, forget=[("t", 0)]))
    world.produce(world.by_name["t", 0])
    assert world.replies.keys() == {fetch for fetch in world.replies if fetch.full}


class TestNewsThatDidNotArrive:
    """T227-25, T227-32."""

    def raise_high_watermark(self, world: World, replica: FakeReplica) -> None:
        replica.append()
        replica.commit()
        world.answer(world.sessions.advanced(replica))

    def test_of_an_answer_that_was_overtaken_come_again(self, world: World) -> None:
        replica = world.by_name["t", 0]
        session_id = world.open([Ask("t", 0, 1), Ask("t", 1)]).session_id
        world.reply(request(session_id, 1, [Ask("t", 0, 0)], wait_ms=0))
        fetch = world.parked(request(session_id, 2, min_bytes=1_000))
        self.raise_high_watermark(world, replica)
        reply = world.reply(request(session_id, 3, wait_ms=0))
        overtaken = world.replies[fetch]
        assert (overtaken.error, overtaken.session_id, overtaken.parts) == (
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            session_id,
            {},
        )
        assert reply.parts["t", 0].high_watermark == 1

    def test_of_an_answer_whose_connection_died_come_again(self, world: World) -> None:
        replica = world.by_name["t", 0]
        session_id = world.open(some(2)).session_id
        fetch = world.parked(request(session_id, 1, min_bytes=1_000))
        self.raise_high_watermark(world, replica)
        world.sessions.abandon(fetch)
        assert world.reply(request(session_id, 2, wait_ms=0)).parts["t", 0].high_watermark == 1

    def test_between_building_and_handing_over_come_with_the_next_answer(self, world: World) -> None:
        replica = world.by_name["t", 0]
        replica.append(5)
        session_id = world.open([Ask("t", 0, 5), Ask("t", 1)]).session_id
        replica.high_watermark = 1
        world.answer(world.sessions.advanced(replica))
        verdict, *_ = world.sessions.receive(request(session_id, 1), BY_NAME, ALICE, world.now_ms)
        assert not isinstance(verdict, Refusal)
        answer = world.sessions.build(verdict, read, world.now_ms)
        replica.high_watermark = 2
        world.answer(world.sessions.advanced(replica))
        handed_over(answer)
        assert reply_of(answer).parts["t", 0].high_watermark == 1
        assert world.reply(request(session_id, 2, wait_ms=0)).parts["t", 0].high_watermark == 2
        assert world.reply(request(session_id, 3, wait_ms=0)).parts == {}

    def test_a_partition_forgotten_between_building_and_handing_over_stays_forgotten(self, world: World) -> None:
        replica = world.by_name["t", 0]
        session_id = world.open(some(2)).session_id
        self.raise_high_watermark(world, replica)
        verdict, *_ = world.sessions.receive(request(session_id, 1), BY_NAME, ALICE, world.now_ms)
        assert not isinstance(verdict, Refusal)
        answer = world.sessions.build(verdict, read, world.now_ms)
        world.reply(request(session_id, 2, forget=[("t", 0)], wait_ms=0))
        self.raise_high_watermark(world, replica)
        handed_over(answer)
        assert world.reply(request(session_id, 3, wait_ms=0)).parts == {}


class TestFetchersWhoseLogDiverges:
    def grown(self, world: World) -> FakeReplica:
        """Epoch 0 up to offset 3, epoch 2 from there to 5."""
        replica = world.by_name["t", 0]
        world.produce(replica, 3)
        replica.leader_epoch = 2
        replica.epochs.assign(2, 3)
        world.produce(replica, 2)
        return replica

    @pytest.mark.parametrize(
        ("offset", "last_fetched_epoch", "diverging"),
        [(4, 0, (0, 3)), (4, 1, (0, 3)), (6, 2, (2, 5)), (3, 1, (0, 3)), (3, 0, None), (5, 2, None), (4, 2, None)],
    )
    def test_is_told_where_that_epoch_ended(
        self, world: World, offset: int, last_fetched_epoch: int, diverging: tuple[int, int] | None
    ) -> None:
        self.grown(world)
        reply = world.open([Ask("t", 0, offset, last_fetched_epoch=last_fetched_epoch)], FOLLOWER)
        part = reply.parts["t", 0]
        told = part.diverging_epoch and (part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
        assert (part.error_code, told, part.high_watermark) == (0, diverging, 5)
        assert bool(part.records) == (diverging is None and offset < 5)

    @pytest.mark.parametrize(("offset", "last_fetched_epoch"), [(4, 3), (0, 0), (6, -1)])
    def test_or_that_it_is_out_of_range(self, world: World, offset: int, last_fetched_epoch: int) -> None:
        replica = self.grown(world)
        replica.log_start_offset = 1
        reply = world.open([Ask("t", 0, offset, last_fetched_epoch=last_fetched_epoch)])
        assert reply.parts["t", 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_and_is_told_with_every_answer_until_it_lists_another_offset(self, world: World) -> None:
        self.grown(world)
        session_id = world.open([Ask("t", 0, 4, last_fetched_epoch=0), Ask("t", 1)], FOLLOWER).session_id
        for epoch in (1, 2):
            assert world.reply(request(session_id, epoch), FOLLOWER).parts["t", 0].diverging_epoch
        reply = world.reply(request(session_id, 3, [Ask("t", 0, 3, last_fetched_epoch=0)]), FOLLOWER)
        assert reply.parts["t", 0].diverging_epoch is None
        assert reply.with_records == [("t", 0)]

    def test_and_is_told_the_high_watermark_again_once_it_has_truncated(self, world: World) -> None:
        """It took nothing from the answer that told it to truncate, and nothing else may ever happen there."""
        self.grown(world)
        session_id = world.open([Ask("t", 0, 6, last_fetched_epoch=2), Ask("t", 1)], FOLLOWER).session_id
        truncated = [Ask("t", 0, 5, last_fetched_epoch=2)]
        reply = world.reply(request(session_id, 1, truncated, wait_ms=0), FOLLOWER)
        assert reply.parts["t", 0].high_watermark == 5
        assert world.reply(request(session_id, 2, wait_ms=0), FOLLOWER).parts == {}


@pytest.mark.parametrize(
    ("leader_epoch", "error"),
    [(-1, 0), (3, 0), (2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_the_leader_epoch_of_an_entry_is_kept_and_compared(world: World, leader_epoch: int, error: int) -> None:
    replica = world.by_name["t", 0]
    replica.leader_epoch = 3
    session_id = world.open([Ask("t", 0, leader_epoch=leader_epoch), Ask("t", 1)]).session_id
    reply = world.reply(request(session_id, 1, wait_ms=0))
    assert [part.error_code for part in reply.parts.values()] == ([error] if error else [])


@pytest.mark.parametrize(
    ("isolation", "fetcher", "end", "aborted"), [(0, ALICE, 3, None), (1, ALICE, 2, []), (1, FOLLOWER, 5, None)]
)
def test_everybody_reads_as_far_as_he_may(
    world: World, isolation: int, fetcher: object, end: int, aborted: list[object] | None
) -> None:
    replica = world.by_name["t", 0]
    for _ in range(5):
        replica.append()
    replica.high_watermark, replica.last_stable_offset = 3, 2
    reply = world.open([Ask("t", 0)], FOLLOWER if fetcher is FOLLOWER else ALICE, isolation=isolation)
    part = reply.parts["t", 0]
    assert len(part.records or b"") == end * BATCH_BYTES
    assert (part.high_watermark, part.last_stable_offset, part.aborted_transactions) == (3, 2, aborted)


def test_between_the_high_watermark_and_the_log_end_there_is_neither_error_nor_data(world: World) -> None:
    replica = world.by_name["t", 0]
    replica.append(5)
    reply = world.open([Ask("t", 0, 4)])
    assert (reply.parts["t", 0].error_code, reply.parts["t", 0].records) == (0, b"")


def test_a_read_that_fails_is_an_error_of_that_partition_alone(world: World) -> None:
    for index in (0, 1):
        world.produce(world.by_name["t", index])
    world.by_name["t", 0].read_error = ErrorCode.KAFKA_STORAGE_ERROR
    session_id = world.open(some(3)).session_id
    reply = world.reply(request(session_id, 1))
    assert {key: part.error_code for key, part in reply.parts.items()} == {
        ("t", 0): ErrorCode.KAFKA_STORAGE_ERROR,
        ("t", 1): 0,
    }
    world.by_name["t", 0].read_error = ErrorCode.NONE
    assert world.reply(request(session_id, 2)).with_records == [("t", 0), ("t", 1)]


def test_topics_by_id_are_answered_by_id(world: World) -> None:
    assert world.open([Ask(ID, 0), Ask(b"?" * 16, 0)], version=BY_ID).parts[b"?" * 16, 0].error_code == 100


class TestWhatIsInTheTierAlone:
    def grown(self, world: World) -> FakeReplica:
        replica = world.by_name["t", 0]
        for _ in range(5):
            world.produce(replica)
        replica.local_log_start_offset = 3
        return replica

    def test_a_follower_is_sent_there_with_the_leaders_offsets(self, world: World) -> None:
        self.grown(world)
        part = world.open([Ask("t", 0, 2)], FOLLOWER).parts["t", 0]
        assert part.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        assert (part.high_watermark, part.log_start_offset, part.records) == (5, 0, b"")

    def test_and_is_told_them_again_once_it_has_begun_behind_it(self, world: World) -> None:
        self.grown(world)
        session_id = world.open([Ask("t", 0, 2), Ask("t", 1)], FOLLOWER).session_id
        begun = [Ask("t", 0, 5, last_fetched_epoch=0)]
        reply = world.reply(request(session_id, 1, begun, wait_ms=0), FOLLOWER)
        assert (reply.parts["t", 0].error_code, reply.parts["t", 0].high_watermark) == (0, 5)

    def test_one_whose_records_leave_the_disk_while_it_waits_hears_of_it(self, world: World) -> None:
        replica = self.grown(world)
        session_id = world.open([Ask("t", 0, 3), Ask("t", 1)], FOLLOWER).session_id
        replica.local_log_start_offset = 4
        world.sessions.changed(replica)
        part = world.reply(request(session_id, 1), FOLLOWER).parts["t", 0]
        assert part.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE

    def test_below_the_log_start_nothing_is_anywhere(self, world: World) -> None:
        self.grown(world).log_start_offset = 2
        part = world.open([Ask("t", 0, 1)], FOLLOWER).parts["t", 0]
        assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_a_consumer_reads_on(self, world: World) -> None:
        self.grown(world)
        assert world.open([Ask("t", 0, 2)]).parts["t", 0].error_code == 0
