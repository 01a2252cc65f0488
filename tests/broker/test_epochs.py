"""OffsetForLeaderEpoch: where each leadership ended, so that a client can tell what was cut."""

import pytest

from headrace.core.acl import Operation, Resource
from headrace.errors import ErrorCode
from headrace.wire.messages.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.support import TOPIC, Client, World, delete_records, serving, until


async def end_of(
    client: Client,
    epoch: int,
    *,
    current: int = -1,
    topic: str = TOPIC,
    partition: int = 0,
    replica_id: int = -1,
    version: int = 4,
) -> tuple[int, int, int]:
    """Error, epoch and end offset."""
    asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    topics = [OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    request = OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics)
    answer = await client.ask(request, OffsetForLeaderEpochResponse, version)
    (found,) = answer.topics[0].partitions
    assert found.partition == partition
    return found.error_code, found.leader_epoch, found.end_offset


async def leaderships(world: World, count: int) -> list[int]:
    """One record under each of so many leader epochs; the epochs."""
    epochs = []
    for life in range(count):
        async with world.started() as served:
            client = await served.client()
            if not life:
                await client.create_topic()
            broker = served.node.broker
            assert broker is not None
            epochs.append(broker.image.topics[TOPIC].partitions[0].leader_epoch)
            await client.produce()
    return epochs


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_every_version_tells_the_end_of_the_current_epoch(version: int) -> None:
    async with serving() as (_, client):
        assert await end_of(client, 0, version=version) == (0, 0, 0)
        await client.produce()
        assert await end_of(client, 0, version=version) == (0, 0, 1)
        assert await end_of(client, 1, version=version) == (0, -1, -1)
        assert await end_of(client, -1, version=version) == (0, -1, -1)


async def test_each_epoch_ends_where_the_next_begins() -> None:
    with World() as world:
        epochs = await leaderships(world, 3)
        async with world.started() as served:
            client = await served.client()
            for number, epoch in enumerate(epochs):
                assert await end_of(client, epoch) == (0, epoch, number + 1)
            assert (await end_of(client, epochs[-1] + 1))[2] == 3  # now: it has no record yet
            assert await end_of(client, 1_000) == (0, -1, -1)


async def test_an_epoch_without_records_is_answered_with_the_one_before() -> None:
    with World() as world:
        await leaderships(world, 1)
        async with world.started():
            pass
        async with world.started() as served:
            client = await served.client()
            assert await end_of(client, 1) == (0, 0, 1)


async def test_an_epoch_before_all_that_is_left_ends_where_the_log_begins() -> None:
    with World(settings={"log.segment.bytes": "80"}) as world:
        await leaderships(world, 3)
        async with world.started() as served:
            client = await served.client()
            assert await delete_records(client, 2) == [(0, 2)]
            assert await end_of(client, 0) == (0, 0, 2)


async def test_the_end_is_what_clients_may_see() -> None:
    async with serving(topic={"flush.messages": "1"}) as (served, client):
        served.world.offload.hold("files")
        unsynced = client.send()
        await until(lambda: served.world.offload.held("files"))
        other = await served.client()
        assert await end_of(other, 0) == (0, 0, 0)
        served.world.offload.release("files")
        await unsynced
        assert await end_of(other, 0) == (0, 0, 1)


async def test_refusals_have_their_codes() -> None:
    async with serving() as (_, client):
        assert await end_of(client, 0, current=1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        assert await end_of(client, 0, current=0) == (0, 0, 0)
        assert await end_of(client, 0, partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        assert await end_of(client, 0, topic="nobody") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        assert await end_of(client, 0, replica_id=99) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, -1)
        assert await end_of(client, 0, replica_id=1) == (0, 0, 0)
    with World() as world:
        (first,) = await leaderships(world, 1)
        async with world.started() as served:
            client = await served.client()
            assert await end_of(client, 0, current=first) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)


async def test_who_may_not_describe_learns_nothing() -> None:
    def is_allowed(_: str, operation: Operation, resource: Resource) -> bool:
        return operation is not Operation.DESCRIBE or resource.name != "secret"

    async with serving(is_allowed=is_allowed) as (_, client):
        before = await end_of(client, 0, topic="secret")
        await client.create_topic("secret")
        assert before == await end_of(client, 0, topic="secret") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1)
