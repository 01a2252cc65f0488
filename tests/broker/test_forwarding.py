"""Requests that only the controller decides on, asked of other nodes."""

import asyncio

from headrace.broker.forwarding import CLIENT_ID
from headrace.errors import ErrorCode
from headrace.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.elections import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.broker.asking import TOPIC
from tests.broker.trio import Trio, play


def others(trio: Trio) -> list[int]:
    return [node_id for node_id in (1, 2, 3) if node_id != trio.controller_id]


def new_topic(name: str = TOPIC) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=3, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=5_000)


def test_topics_are_made_changed_and_deleted_at_any_node() -> None:
    async def scenario(trio: Trio) -> None:
        client = await trio.client(others(trio)[0])
        created = await client.ask(new_topic(), CreateTopicsResponse)
        assert created.topics[0].error_code == 0 and created.topics[0].num_partitions == 2
        again = await client.ask(new_topic(), CreateTopicsResponse)
        assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        grown = await client.ask(
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=TOPIC, count=3, assignments=None)],
                timeout_ms=5_000,
                validate_only=False,
            ),
            CreatePartitionsResponse,
        )
        assert grown.results[0].error_code == 0
        setting = IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="1000")
        altered = await client.ask(
            IncrementalAlterConfigsRequest(
                resources=[IncrementalAlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[setting])],
                validate_only=False,
            ),
            IncrementalAlterConfigsResponse,
        )
        assert altered.responses[0].error_code == 0
        images = [trio.broker(node_id).image for node_id in (1, 2, 3)]
        await trio.until(lambda: all(image.topics[TOPIC].config.retention_ms == 1000 for image in images))
        assert all(len(image.topics[TOPIC].partitions) == 3 for image in images)
        await client.delete_topic()
        await trio.until(lambda: not any(image.topics for image in images))

    play(scenario)


def test_a_request_is_forwarded_once_only() -> None:
    async def scenario(trio: Trio) -> None:
        client = await trio.client(others(trio)[0], CLIENT_ID)
        answer = await client.ask(new_topic(), CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER

    play(scenario)


def test_metadata_name_the_real_controller_and_create_topics_through_it() -> None:
    async def scenario(trio: Trio) -> None:
        client = await trio.client(others(trio)[1])
        answer = await client.ask(
            MetadataRequest(topics=[MetadataRequestTopic(name="made")], allow_auto_topic_creation=True),
            MetadataResponse,
        )
        assert answer.controller_id == trio.controller_id
        assert sorted(broker.node_id for broker in answer.brokers) == [1, 2, 3]
        assert answer.topics[0].error_code == 0 and len(answer.topics[0].partitions) == 1

    play(scenario)


def test_what_the_controller_did_not_answer_is_not_known() -> None:
    async def scenario(trio: Trio) -> None:
        node_id, controller_id = others(trio)[0], trio.controller_id
        client = await trio.client(node_id)
        await client.ask(new_topic("before"), CreateTopicsResponse)
        trio.world.network.cut(f"node{controller_id}", f"node{node_id}")
        answer = await client.ask(new_topic(), CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        await trio.until(lambda: TOPIC in trio.broker(node_id).image.topics)

    play(scenario)


def test_what_was_sent_to_a_controller_is_not_decided_anew_by_the_next_one() -> None:
    """It was done, and would be refused as done already."""

    async def scenario(trio: Trio) -> None:
        (node_id,), controller_id = [n for n in (1, 2) if n != trio.controller_id], trio.controller_id
        client = await trio.client(node_id)
        await client.ask(new_topic("before"), CreateTopicsResponse)
        trio.world.network.cut(f"node{controller_id}", f"node{node_id}")
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        asked = asyncio.create_task(
            client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), CreateTopicsResponse)
        )
        await trio.until(lambda: TOPIC in trio.broker(node_id).image.topics)
        trio.world.nodes[controller_id - 1].pause()
        answer = await asked
        assert trio.broker(node_id).controller.is_controller
        assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT

    play(scenario, nodes=2)


def test_a_request_outlives_its_controller() -> None:
    async def scenario(trio: Trio) -> None:
        node_id, controller_id = others(trio)[0], trio.controller_id
        client = await trio.client(node_id)
        trio.world.nodes[controller_id - 1].kill()
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=2, assignments=[], configs=[])
        answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
        assert answer.topics[0].error_code in (0, ErrorCode.REQUEST_TIMED_OUT)
        await trio.until(lambda: TOPIC in trio.broker(node_id).image.topics or answer.topics[0].error_code == 7)

    play(scenario)


def test_leaders_are_elected_at_any_node_and_every_partition_is_answered() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3])
        client = await trio.client(others(trio)[0])
        named = [TopicPartitions(topic=TOPIC, partitions=[0, 7]), TopicPartitions(topic="nothing", partitions=[0])]
        request = ElectLeadersRequest(election_type=0, topic_partitions=named, timeout_ms=5_000)
        answer = await client.ask(request, ElectLeadersResponse)
        codes = {
            (topic.topic, result.partition_id): result.error_code
            for topic in answer.replica_election_results
            for result in topic.partition_result
        }
        assert codes == {
            (TOPIC, 0): ErrorCode.ELECTION_NOT_NEEDED,
            (TOPIC, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        everything = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5_000)
        assert (await client.ask(everything, ElectLeadersResponse)).replica_election_results == []
        odd = ElectLeadersRequest(election_type=7, topic_partitions=None, timeout_ms=5_000)
        assert (await client.ask(odd, ElectLeadersResponse)).error_code == ErrorCode.INVALID_REQUEST

    play(scenario)
