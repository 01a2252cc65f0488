"""ListOffsets: every sentinel, version and refusal, and lookups by time against the records themselves."""

import random

import pytest

from headrace.core.acl import Operation, Resource
from headrace.errors import ErrorCode
from headrace.wire.compression import Codec
from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.broker.support import DEBUG_REPLICA, NOW_MS, TOPIC, Client, World, delete_records, records_of, serving
from tests.net.loops import on_both_loops

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, PENDING_UPLOAD: 11}
VERSIONS = range(1, 12)
NOT_FOUND = (0, -1, -1, -1)


def asked(timestamp: int, partition: int = 0, epoch: int = -1) -> ListOffsetsPartition:
    return ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)


def told(answer: ListOffsetsPartitionResponse) -> tuple[int, int, int, int]:
    return answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch


async def look_up(client: Client, timestamp: int, version: int = 11, replica_id: int = -1) -> tuple[int, int, int, int]:
    """Error, timestamp, offset, leader epoch."""
    (answer,) = await client.list_offsets(asked(timestamp), version=version, replica_id=replica_id)
    return told(answer)


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_sentinel_is_known_from_its_version_on(version: int) -> None:
    async with serving() as (_, client):
        await client.produce(records_of([b"a", b"b"], timestamps=[NOW_MS + 5, NOW_MS]))
        epoch = 0 if version >= 4 else -1
        expected = {
            LATEST: (0, -1, 2, epoch),
            EARLIEST: (0, -1, 0, epoch),
            MAX_TIMESTAMP: (0, NOW_MS + 5, 0, epoch),
            EARLIEST_LOCAL: (0, -1, 0, epoch),
            LATEST_TIERED: NOT_FOUND,
            PENDING_UPLOAD: NOT_FOUND,
        }
        for sentinel, since in SINCE.items():
            answer = await look_up(client, sentinel, version)
            if version >= since:
                assert answer == expected[sentinel], sentinel
            else:
                assert answer == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1), sentinel


@pytest.mark.parametrize("timestamp", [-7, -100, -(2**63)])
async def test_other_negative_times_mean_nothing(timestamp: int) -> None:
    async with serving() as (_, client):
        assert await look_up(client, timestamp) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)


@on_both_loops
async def test_an_empty_log_has_an_end_and_no_times() -> None:
    async with serving() as (_, client):
        assert await look_up(client, LATEST) == (0, -1, 0, 0)
        assert await look_up(client, EARLIEST) == (0, -1, 0, 0)
        assert await look_up(client, MAX_TIMESTAMP) == NOT_FOUND
        assert await look_up(client, 0) == NOT_FOUND


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_time_finds_the_first_record_at_or_after_it(codec: Codec) -> None:
    """Against the records themselves: times that rise and fall, several batches and segments."""
    rng = random.Random(3)
    times = [NOW_MS + rng.randrange(-500, 500) for _ in range(120)]
    async with serving(topic={"segment.bytes": "1500", "index.interval.bytes": "200"}) as (_, client):
        for first in range(0, 120, 6):
            batch = times[first : first + 6]
            await client.produce(records_of([b"%d" % n for n in range(6)], timestamps=batch, codec=codec))
        for wanted in [0, min(times), max(times), max(times) + 1, *range(NOW_MS - 505, NOW_MS + 505, 37)]:
            expected = next(((0, t, n, 0) for n, t in enumerate(times) if t >= wanted), NOT_FOUND)
            assert await look_up(client, wanted) == expected
        newest = max(times)
        assert await look_up(client, MAX_TIMESTAMP) == (0, newest, times.index(newest), 0)


async def test_deleted_records_are_not_found_by_time() -> None:
    async with serving() as (_, client):
        await client.produce(records_of([b"a", b"b", b"c"], timestamps=[NOW_MS, NOW_MS + 1, NOW_MS + 2]))
        await delete_records(client, 2)
        assert await look_up(client, EARLIEST) == (0, -1, 2, 0)
        assert await look_up(client, NOW_MS) == (0, NOW_MS + 2, 2, 0)
        await delete_records(client, 3)
        assert await look_up(client, EARLIEST) == (0, -1, 3, 0)
        assert await look_up(client, NOW_MS) == NOT_FOUND
        assert await look_up(client, MAX_TIMESTAMP) == NOT_FOUND


async def test_each_record_is_told_with_the_epoch_that_wrote_it() -> None:
    with World() as world:
        for life in range(3):
            async with world.started() as served:
                client = await served.client()
                if not life:
                    await client.create_topic()
                await client.produce(records_of(timestamps=[NOW_MS + life]))
        async with world.started() as served:
            client = await served.client()
            epochs = [(await look_up(client, NOW_MS + life))[3] for life in range(3)]
            assert epochs == sorted(set(epochs))
            assert (await look_up(client, EARLIEST))[3] == epochs[0]
            assert (await look_up(client, MAX_TIMESTAMP))[2:] == (2, epochs[2])
            assert (await look_up(client, LATEST))[3] > epochs[2]


async def test_epochs_of_other_leaders_are_turned_away_from_version_4_on() -> None:
    with World() as world:
        async with world.started() as served:
            await (await served.client()).create_topic()
        async with world.started() as served:
            client = await served.client()
            current = (await look_up(client, LATEST))[3]
            assert current >= 1
            for epoch, code in [(current - 1, 74), (current, 0), (current + 1, 75), (-1, 0)]:
                (answer,) = await client.list_offsets(asked(LATEST, epoch=epoch))
                assert answer.error_code == code
            (answer,) = await client.list_offsets(asked(LATEST, epoch=current - 1), version=3)
            assert answer.error_code == 0


async def test_partitions_are_answered_one_by_one() -> None:
    async with serving(partitions=2) as (_, client):
        await client.produce(partition=1)
        answers = await client.list_offsets(asked(LATEST, 1), asked(LATEST, 9), asked(LATEST, 0), asked(LATEST, -1))
        assert [(a.partition_index, a.error_code, a.offset) for a in answers] == [
            (1, 0, 1),
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (0, 0, 0),
            (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ]
        (answer,) = await client.list_offsets(asked(LATEST), topic="nobody")
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_time_that_no_version_knows_is_refused_before_the_partition_is_looked_for() -> None:
    async with serving() as (_, client):
        answers = await client.list_offsets(asked(-9, 7), asked(-4, 8), version=7)
        assert [a.error_code for a in answers] == [ErrorCode.UNSUPPORTED_VERSION] * 2


async def test_a_partition_asked_for_twice_is_refused_both_times_and_others_are_not() -> None:
    async with serving(partitions=2) as (_, client):
        answers = await client.list_offsets(asked(LATEST), asked(EARLIEST), asked(LATEST, 1))
        assert [a.error_code for a in answers] == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, 0]
        # Also when it is spread over two mentions of its topic.
        topics = [ListOffsetsTopic(name=TOPIC, partitions=[asked(LATEST)]) for _ in range(2)]
        both = await client.ask(ListOffsetsRequest(topics=topics), ListOffsetsResponse, 5)
        assert [t.partitions[0].error_code for t in both.topics] == [ErrorCode.INVALID_REQUEST] * 2


async def test_readers_of_committed_records_see_the_same_end_without_transactions() -> None:
    async with serving() as (_, client):
        await client.produce()
        topics = [ListOffsetsTopic(name=TOPIC, partitions=[asked(LATEST)])]
        answer = await client.ask(ListOffsetsRequest(isolation_level=1, topics=topics), ListOffsetsResponse, 5)
        assert answer.topics[0].partitions[0].offset == 1


async def test_only_registered_nodes_may_name_themselves_as_one() -> None:
    def is_allowed(_: str, operation: Operation, __: Resource) -> bool:
        return operation is not Operation.CLUSTER_ACTION

    async with serving() as (_, client):
        refused = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, -1, -1)
        assert await look_up(client, LATEST, replica_id=99) == refused
        assert await look_up(client, LATEST, replica_id=1) == (0, -1, 0, 0)
        assert await look_up(client, LATEST, replica_id=DEBUG_REPLICA) == (0, -1, 0, 0)
    async with serving(is_allowed=is_allowed) as (_, client):
        assert await look_up(client, LATEST, replica_id=1) == refused
        assert await look_up(client, LATEST) == (0, -1, 0, 0)


async def test_who_may_not_describe_a_topic_learns_nothing() -> None:
    def is_allowed(_: str, operation: Operation, resource: Resource) -> bool:
        return operation is not Operation.DESCRIBE or resource.name != "secret"

    async with serving(is_allowed=is_allowed) as (_, client):
        before = await client.list_offsets(asked(LATEST), topic="secret")
        await client.create_topic("secret")
        after = await client.list_offsets(asked(LATEST), topic="secret")
        assert [told(a) for a in before] == [told(a) for a in after] == [(29, -1, -1, -1)]
