"""A follower copies its leader: records, epochs, high watermark, log start; and asks for no more than it needs."""

import asyncio

import pytest

from headrace.core.epochs import EpochEntry
from headrace.core.producers import WINDOW_BATCHES
from headrace.errors import ErrorCode
from headrace.wire.messages.fetch import FetchRequest
from tests.broker.following import LEADER, TOPIC_ID, following
from tests.broker.scripted_leader import LedLog
from tests.net.loops import until


async def test_records_epochs_and_offsets_arrive_as_the_leader_has_them() -> None:
    async with following(3) as bench:
        for index in range(3):
            bench.produce(index, records=index + 1)
        bench.follow(0, 1, 2)
        await bench.until_equal(0, 1, 2)
        bench.produce(1, records=5, commit=False)
        await until(lambda: bench[1].log_end_offset == 7)
        assert bench[1].high_watermark == 2
        bench.led(1).high_watermark = 7
        bench.leader.changed()
        await bench.until_equal(0, 1, 2)
        assert bench[1].log.epochs.entries == (EpochEntry(0, 0),)
        assert bench[1].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert bench.replicator.lag(bench[1]) == 0


async def test_an_idle_follower_sends_empty_requests_and_waits_at_the_leader() -> None:
    async with following(20, settings={"replica.fetch.wait.max.ms": "10"}) as bench:
        bench.follow(*range(20))
        await until(lambda: len(bench.leader.requests) > 3)
        first, *rest = bench.leader.requests
        assert [len(topic.partitions) for topic in first.topics] == [20]
        assert first.session_epoch == 0 and [r.session_epoch for r in rest] == list(range(1, len(rest) + 1))
        assert all(not request.topics and not request.forgotten_topics_data for request in rest)
        bench.produce(7)
        await bench.until_equal(7)
        await until(lambda: listed(bench.leader.requests[-1]) == [] and len(bench.leader.requests) > len(rest) + 3)
        news = [listed(request) for request in bench.leader.requests[1:] if listed(request)]
        assert news == [[(7, 1)]]
        assert bench.leader.connections == 1


def listed(request: FetchRequest) -> list[tuple[int, int]]:
    return [(asked.partition, asked.fetch_offset) for topic in request.topics for asked in topic.partitions]


async def test_a_request_says_who_asks_and_from_where() -> None:
    async with following() as bench:
        bench.produce(records=3)
        bench.follow(0)
        await until(lambda: len(bench.leader.requests) >= 2)
        request = bench.leader.requests[1]
        state = request.replica_state
        assert state is not None and (state.replica_id, state.replica_epoch) == (1, 11)
        asked = request.topics[0].partitions[0]
        assert request.topics[0].topic_id == TOPIC_ID
        assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (3, 0, 0)
        assert (request.max_bytes, asked.partition_max_bytes, request.min_bytes) == (10 << 20, 1 << 20, 1)


async def test_fetchers_share_the_partitions_of_a_leader() -> None:
    async with following(12, settings={"num.replica.fetchers": "3"}) as bench:
        bench.follow(*range(12))
        assert len(bench.replicator.fetchers) == 3
        await until(lambda: sum(len(f.partitions) for f in bench.replicator.fetchers.values()) == 12)
        assert [len(f.partitions) for f in bench.replicator.fetchers.values()] == [4, 4, 4]


async def test_segments_are_rolled_and_producers_are_known_as_on_the_leader() -> None:
    async with following(topic={"segment.bytes": "2000"}) as bench:
        for sequence in range(60):
            bench.produce(producer=(9, 0, sequence), commit=sequence != 59)
        bench.follow(0)
        await until(lambda: bench[0].log_end_offset == 60)
        log = bench[0].log
        assert len(log.segments) > 2
        producer = log.producers.get(9)
        assert producer is not None
        assert [b.last_offset for b in producer.batches] == list(range(60 - WINDOW_BATCHES, 60))
        # A snapshot at a roll tells of the batches below it, however many more came in the same answer.
        log.truncate_to(log.segments[1].base_offset)
        producer = log.producers.get(9)
        assert producer is not None and producer.batches[-1].last_offset == log.log_end_offset - 1


async def test_the_leaders_log_start_is_taken_over() -> None:
    async with following(topic={"segment.bytes": "500"}) as bench:
        for _ in range(20):
            bench.produce()
        bench.follow(0)
        await bench.until_equal(0)
        bench.led().log_start = 12
        bench.leader.changed()
        await until(lambda: bench[0].log_start_offset == 12)
        assert bench[0].log.log_start_offset == 12
        assert bench[0].log.segments[0].base_offset > 0
        # And is told to the leader.
        await until(
            lambda: any(a.log_start_offset == 12 for r in bench.leader.requests for t in r.topics for a in t.partitions)
        )


async def test_a_sync_that_the_topic_asks_for_comes_before_the_log_end() -> None:
    async with following(2, topic={"flush.messages": "1"}) as bench:
        bench.offload.hold("files")
        bench.produce(0)
        bench.follow(0, 1)
        await until(lambda: bench.offload.held("files") == 1)
        assert bench[0].log.log_end_offset == 1
        assert bench[0].log_end_offset == bench[0].high_watermark == 0
        bench.offload.release("files")
        await bench.until_equal(0)
        assert bench[0].log.recovery_point == 1
        offsets = [offset for r in bench.leader.requests for index, offset in listed(r) if index == 0]
        assert offsets == [0, 1]


async def test_a_sync_that_ends_after_the_role_did_counts_for_nothing() -> None:
    async with following(topic={"flush.messages": "1"}) as bench:
        bench.offload.hold("files")
        bench.produce(0)
        bench.follow(0)
        await until(lambda: bench.offload.held("files") == 1)
        bench.replicator.stop(bench[0])
        bench.offload.release("files")
        await until(lambda: not bench.replicator.fetchers)
        assert bench[0].log_end_offset == 0 and bench[0].log.recovery_point == 1


async def test_a_new_leader_epoch_goes_on_from_the_end_of_the_log() -> None:
    """The same leader, or another one; an answer to the epoch before counts no more."""
    async with following() as bench:
        bench.produce(records=3)
        bench.follow(0)
        await bench.until_equal(0)
        bench.follow(0, leader_epoch=1)
        bench.produce(records=2)
        await bench.until_equal(0)
        assert bench[0].log.epochs.entries == (EpochEntry(0, 0), EpochEntry(1, 3))
        other = LEADER._replace(id=3, epoch=33)
        bench.follow(0, leader_epoch=2, leader=other)
        bench.produce()
        await bench.until_equal(0)
        await until(lambda: [key[:2] for key in bench.replicator.fetchers] == [(3, 33)])


async def test_a_change_that_brings_no_new_epoch_restarts_nothing() -> None:
    async with following() as bench:
        bench.follow(0)
        await until(lambda: len(bench.leader.requests) > 2)
        fetchers = dict(bench.replicator.fetchers)
        bench.follow(0, leader=LEADER._replace(is_shutting_down=True))
        assert bench.replicator.fetchers == fetchers
        bench.produce()
        await bench.until_equal(0)
        assert sum(len(listed(request)) for request in bench.leader.requests) == 2


async def test_a_fetcher_without_partitions_ends_and_closes_its_session() -> None:
    """T227-27."""
    async with following(2) as bench:
        bench.follow(0, 1)
        await until(lambda: len(bench.leader.requests) > 1)
        for index in (0, 1):
            bench.replicator.stop(bench[index])
        await until(lambda: not bench.replicator.fetchers)
        await until(lambda: bench.leader.requests[-1].session_epoch == -1)
        assert bench.leader.requests[-1].session_id == bench.leader.session_id
        bench.follow(1, leader_epoch=1)
        bench.produce(1)
        await bench.until_equal(1)


async def test_a_leader_that_is_away_is_tried_again_and_again() -> None:
    """T227-27."""
    async with following() as bench:
        bench.leader.is_down = True
        bench.produce()
        bench.follow(0)
        await asyncio.sleep(0.1)
        assert bench.leader.connections == 0 and not bench.leader.requests
        bench.leader.is_down = False
        await bench.until_equal(0)
        bench.leader.is_down = True
        bench.produce()
        await asyncio.sleep(0.05)
        bench.leader.is_down = False
        await bench.until_equal(0)
        assert bench.leader.connections == 2
        assert bench.lines.errors == []


async def test_a_node_without_a_registration_asks_nobody() -> None:
    async with following() as bench:
        bench.broker_epoch = 0
        bench.produce()
        bench.follow(0)
        await asyncio.sleep(0.06)
        assert not bench.leader.requests
        bench.broker_epoch = 12
        await bench.until_equal(0)


async def test_a_session_that_the_leader_forgot_is_made_again_at_once() -> None:
    """T227-27."""
    async with following(2) as bench:
        bench.follow(0, 1)
        await until(lambda: len(bench.leader.requests) > 2)
        bench.leader.session_id += 100
        bench.produce(1)
        await bench.until_equal(1)
        assert [r.session_epoch for r in bench.leader.requests].count(0) == 2


@pytest.mark.parametrize("error", [75, 6, 3, 100, 103, 56, 999])
async def test_a_refusal_is_waited_out(error: int) -> None:
    """T227-27."""
    async with following(2) as bench:
        bench.led(0).error = error  # type: ignore[assignment]  # 999 is not known to anybody
        bench.produce(0)
        bench.produce(1)
        bench.follow(0, 1)
        await bench.until_equal(1)
        assert bench[0].log_end_offset == 0
        bench.led(0).error = ErrorCode.NONE
        await bench.until_equal(0)
        assert bench.failed_indexes == []


async def test_partitions_that_come_and_go_meanwhile_disturb_nobody() -> None:
    """Property of small steps: whatever is added and stopped between, who stays is replicated."""
    async with following(8, settings={"replica.fetch.wait.max.ms": "2"}) as bench:
        for step in range(60):
            index = (step * 5) % 7
            if step % 3 == 0:
                bench.replicator.stop(bench[index])
            else:
                bench.follow(index, leader_epoch=step)
            bench.follow(7)
            bench.produce(7)
            await asyncio.sleep(0.001 * (step % 3))
        await bench.until_equal(7)
        assert bench.failed_indexes == []
        assert isinstance(bench.led(7), LedLog)
