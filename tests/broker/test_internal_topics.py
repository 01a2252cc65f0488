"""The topics that the cluster keeps for itself: made on demand, on as many nodes as there are, and nobody else's."""

import pytest

from headrace.core.internal_topics import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from headrace.errors import ErrorCode
from headrace.wire.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.broker.grouped import Group, comes_to, coordinator_of
from tests.broker.trio import Trio, play

FEW = {"offsets.topic.num.partitions": "6", "transaction.state.log.num.partitions": "6"}


async def made(trio: Trio, at: int, key_type: int) -> None:
    client = await trio.client(at)
    asked = FindCoordinatorRequest(coordinator_keys=["x"], key_type=key_type)

    async def error() -> int:
        return (await client.ask(asked, FindCoordinatorResponse)).coordinators[0].error_code

    await comes_to(0, error)


@pytest.mark.parametrize(("key_type", "name"), [(0, CONSUMER_OFFSETS), (1, TRANSACTION_STATE)])
def test_a_node_that_is_asked_has_the_controller_make_the_topic_on_three_nodes(key_type: int, name: str) -> None:
    async def scenario(trio: Trio) -> None:
        await made(trio, 1 + trio.controller_id % 3, key_type)
        topic = trio.broker(1).image.topics[name]
        assert len(topic.partitions) == 6
        assert {tuple(sorted(record.replicas)) for record in topic.partitions} == {(1, 2, 3)}
        assert {record.leader for record in topic.partitions} == {1, 2, 3}
        assert topic.config.cleanup_policy == ("compact",) and topic.config.segment_bytes == 100 << 20
        assert topic.config.min_insync_replicas == (1 if name == CONSUMER_OFFSETS else 2)

    play(scenario, FEW, replicates=True)


def test_clients_see_them_as_internal_and_neither_write_nor_change_them() -> None:
    async def scenario(trio: Trio) -> None:
        refused = ErrorCode.INVALID_TOPIC_EXCEPTION
        client = await trio.client(1)
        new = CreatableTopic(name=CONSUMER_OFFSETS, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        created = await client.ask(CreateTopicsRequest(topics=[new], timeout_ms=1_000), CreateTopicsResponse)
        assert created.topics[0].error_code == refused
        await made(trio, 1, 0)
        await made(trio, 1, 1)
        everything = await client.ask(MetadataRequest(topics=None), MetadataResponse, 9)
        assert {topic.name for topic in everything.topics if topic.is_internal} == INTERNAL_TOPICS
        assert (await client.produce(topic=CONSUMER_OFFSETS)).error_code == refused
        states = [DeleteTopicState(name=CONSUMER_OFFSETS)]
        gone = await client.ask(DeleteTopicsRequest(topics=states, timeout_ms=1_000), DeleteTopicsResponse)
        assert gone.responses[0].error_code == refused
        more = CreatePartitionsTopic(name=CONSUMER_OFFSETS, count=9, assignments=None)
        grown = await client.ask(
            CreatePartitionsRequest(topics=[more], timeout_ms=1_000, validate_only=False), CreatePartitionsResponse
        )
        assert grown.results[0].error_code == refused

    play(scenario, FEW, nodes=1)


def test_asking_for_its_metadata_makes_it_as_it_must_be() -> None:
    async def scenario(trio: Trio) -> None:
        client = await trio.client(1)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=CONSUMER_OFFSETS)], allow_auto_topic_creation=True)
        await client.ask(asked, MetadataResponse, 9)
        await trio.until(lambda: CONSUMER_OFFSETS in trio.broker(1).image.topics)
        assert len(trio.broker(1).image.topics[CONSUMER_OFFSETS].partitions) == 6

    play(scenario, FEW, nodes=1)


def test_a_cluster_that_grows_keeps_its_offsets_on_more_nodes() -> None:
    async def scenario(trio: Trio) -> None:
        for node in trio.world.nodes[1:]:
            node.kill()
        await trio.until(lambda: len(trio.broker(1).image.brokers) == 1)
        await trio.until(lambda: trio.broker(1).controller.is_controller)
        await trio.topic([1])
        group = Group(trio)
        assert await group.commit({0: 5}) == [0]

        def replicas() -> list[tuple[int, ...]]:
            return [tuple(sorted(r.replicas)) for r in trio.broker(1).image.topics[CONSUMER_OFFSETS].partitions]

        assert replicas() == [(1,)] * 6
        for node in trio.world.nodes[1:]:
            node.start()
        await trio.until(lambda: replicas() == [(1, 2, 3)] * 6)
        image = trio.broker(1).image
        records = image.topics[CONSUMER_OFFSETS].partitions
        assert sorted(record.replicas[0] for record in records) == [1, 1, 2, 2, 3, 3]
        await trio.until(lambda: all(len(r.isr) == 3 for r in image.topics[CONSUMER_OFFSETS].partitions))
        assert await group.commit({0: 6}) == [0]
        trio.world.nodes[0].kill()
        assert await coordinator_of(trio) != 1
        again = Group(trio)
        assert await again.committed(0) == [(0, 6)]

    play(scenario, FEW, replicates=True)
