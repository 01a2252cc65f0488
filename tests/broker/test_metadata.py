"""Metadata: every version, topics that come into being by being asked for, and what denied callers may learn."""

import pytest

from headrace.core.acl import Operation, Resource, ResourceType
from headrace.errors import ErrorCode
from headrace.wire.messages.metadata import (
    OPERATIONS_UNASKED,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.broker.support import TOPIC, Client, serving
from tests.net.loops import on_both_loops

VERSIONS = range(14)
NO_AUTO_CREATION = {"auto.create.topics.enable": "false"}


async def ask(client: Client, *names: str, version: int = 13, create: bool = True) -> list[MetadataResponseTopic]:
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
    return (await client.ask(request, MetadataResponse, version)).topics


async def ask_by_id(client: Client, topic_id: bytes, version: int = 13) -> MetadataResponseTopic:
    topics = [MetadataRequestTopic(name=None, topic_id=topic_id)]
    (topic,) = (await client.ask(MetadataRequest(topics=topics), MetadataResponse, version)).topics
    return topic


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_tells_who_leads_what_and_where(version: int) -> None:
    async with serving({"broker.rack": "attic"}, partitions=2) as (served, client):
        asked = [MetadataRequestTopic(name=TOPIC)]
        answer = await client.ask(MetadataRequest(topics=asked), MetadataResponse, version)
        (broker,) = answer.brokers
        assert f"{broker.host}:{broker.port}" == served.node.address
        assert (broker.node_id, broker.rack) == (1, "attic" if version >= 1 else None)
        own = served.node.broker
        assert own is not None
        assert answer.cluster_id == (own.image.cluster_id if version >= 2 else None)
        assert answer.controller_id == (1 if version >= 1 else -1)
        (topic,) = answer.topics
        assert (topic.error_code, topic.name, topic.is_internal) == (0, TOPIC, False)
        assert topic.topic_id == (own.image.topics[TOPIC].id if version >= 10 else bytes(16))
        assert [p.partition_index for p in topic.partitions] == [0, 1]
        for partition in topic.partitions:
            assert (partition.error_code, partition.leader_id) == (0, 1)
            assert partition.leader_epoch == (0 if version >= 7 else -1)
            assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_topics_are_asked_for_by_null_and_in_version_0_by_none(version: int) -> None:
    async with serving() as (_, client):
        await client.create_topic("another")
        everything = MetadataRequest(topics=None if version else [])
        answer = await client.ask(everything, MetadataResponse, version)
        assert sorted(topic.name or "" for topic in answer.topics) == ["another", TOPIC]
        if version:
            answer = await client.ask(MetadataRequest(topics=[]), MetadataResponse, version)
            assert answer.topics == []
            assert len(answer.brokers) == 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_unknown_topic_comes_into_being_when_it_is_asked_for(version: int) -> None:
    async with serving({"num.partitions": "3"}) as (_, client):
        (topic,) = await ask(client, "fresh", version=version)
        assert (topic.error_code, len(topic.partitions)) == (0, 3)
        assert (await client.produce(topic="fresh", partition=2)).error_code == 0


async def test_a_topic_does_not_come_into_being_where_the_client_or_the_broker_forbids_it() -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    async with serving() as (_, client):
        for version in range(4, 14):
            (topic,) = await ask(client, "fresh", version=version, create=False)
            assert (topic.error_code, topic.name, topic.partitions) == (unknown, "fresh", [])
    async with serving(NO_AUTO_CREATION) as (_, client):
        (topic,) = await ask(client, "fresh")
        assert topic.error_code == unknown


@on_both_loops
async def test_the_same_unknown_topic_asked_for_by_many_at_once_is_created_once() -> None:
    async with serving() as (served, _):
        clients = [await served.client() for _ in range(5)]
        request = MetadataRequest(topics=[MetadataRequestTopic(name="fresh"), MetadataRequestTopic(name="fresh")])
        asked = [client.peer.send(request, MetadataResponse, 12) for client in clients for _ in range(3)]
        answers = [await future for future in asked]
        ids = {topic.topic_id for answer in answers for topic in answer.topics}
        assert {topic.error_code for answer in answers for topic in answer.topics} == {0}
        assert len(ids) == 1


@pytest.mark.parametrize("name", ["", ".", "..", "white space", "a" * 250, "ümlaut"])
@pytest.mark.parametrize("settings", [{}, NO_AUTO_CREATION])
async def test_names_that_no_topic_can_have_are_invalid(name: str, settings: dict[str, str]) -> None:
    async with serving(settings) as (_, client):
        (topic,) = await ask(client, name)
        assert (topic.error_code, topic.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, name)
        assert (await client.produce()).error_code == 0


@pytest.mark.parametrize("version", [10, 11])
async def test_versions_that_tell_ids_but_cannot_ask_by_them_refuse_the_whole_request(version: int) -> None:
    async with serving() as (_, client):
        topic_id = await client.create_topic("named")
        asked = [MetadataRequestTopic(name="named"), MetadataRequestTopic(name=None, topic_id=topic_id)]
        answer = await client.ask(MetadataRequest(topics=asked), MetadataResponse, version)
        assert [(topic.error_code, topic.name) for topic in answer.topics] == [
            (ErrorCode.INVALID_REQUEST, "named"),
            (ErrorCode.INVALID_REQUEST, ""),
        ]


async def test_a_topic_named_many_times_is_told_once() -> None:
    async with serving() as (_, client):
        topic_id = await client.create_topic("named", partitions=3)
        asked = [MetadataRequestTopic(name="named"), MetadataRequestTopic(name=None, topic_id=topic_id)] * 100
        answer = await client.ask(MetadataRequest(topics=asked), MetadataResponse, 13)
        assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("named", 3)] * 2


async def test_a_topic_that_cannot_be_created_says_why() -> None:
    async with serving({"default.replication.factor": "3"}) as (_, client):
        await client.create_topic("a.b")
        topics = await ask(client, "a_b", "c")
        assert {topic.name: topic.error_code for topic in topics} == {
            "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "c": ErrorCode.INVALID_REPLICATION_FACTOR,
        }
    async with serving(NO_AUTO_CREATION) as (_, client):
        await client.create_topic("a.b")
        (topic,) = await ask(client, "a_b")
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [12, 13])
async def test_topics_can_be_asked_for_by_id(version: int) -> None:
    async with serving() as (_, client):
        topic_id = await client.create_topic("named")
        found = await ask_by_id(client, topic_id, version)
        assert (found.error_code, found.name, found.topic_id) == (0, "named", topic_id)
        missing = await ask_by_id(client, b"?" * 16, version)
        assert (missing.error_code, missing.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, b"?" * 16)
        assert missing.name is None
        nothing = await ask_by_id(client, bytes(16), version)
        assert nothing.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_authorised_operations_are_told_when_they_are_asked_for() -> None:
    def is_allowed(_: str, operation: Operation, resource: Resource) -> bool:
        if resource.type is ResourceType.CLUSTER:
            return operation in (Operation.CREATE, Operation.DESCRIBE, Operation.ALTER_CONFIGS)
        return operation in (Operation.READ, Operation.DESCRIBE)

    async with serving(is_allowed=is_allowed) as (_, client):
        for version in range(8, 14):
            request = MetadataRequest(
                topics=None,
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=version <= 10,
            )
            answer = await client.ask(request, MetadataResponse, version)
            assert answer.topics[0].topic_authorized_operations == 1 << 3 | 1 << 8
            told = answer.cluster_authorized_operations
            assert told == (1 << 5 | 1 << 8 | 1 << 11 if version <= 10 else OPERATIONS_UNASKED)
        answer = await client.ask(MetadataRequest(topics=None), MetadataResponse, 8)
        assert answer.topics[0].topic_authorized_operations == OPERATIONS_UNASKED
        assert answer.cluster_authorized_operations == OPERATIONS_UNASKED


async def test_what_may_not_be_described_is_left_out_or_refused_whether_it_exists_or_not() -> None:
    def is_allowed(_: str, operation: Operation, resource: Resource) -> bool:
        return operation is not Operation.DESCRIBE or "secret" not in resource.name

    async with serving(is_allowed=is_allowed) as (served, client):
        topic_id = await client.create_topic("secret")
        answer = await client.ask(MetadataRequest(topics=None), MetadataResponse)
        assert [topic.name for topic in answer.topics] == [TOPIC]
        topics = await ask(client, "secret", "secret-and-missing", TOPIC)
        assert [(t.name, t.error_code, len(t.partitions)) for t in topics] == [
            ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0),
            ("secret-and-missing", ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0),
            (TOPIC, 0, 1),
        ]
        by_id = await ask_by_id(client, topic_id)
        assert (by_id.error_code, by_id.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        assert served.node.broker is not None
        assert "secret-and-missing" not in served.node.broker.image.topics


@pytest.mark.parametrize("resource_type", [ResourceType.CLUSTER, ResourceType.TOPIC])
async def test_either_permission_to_create_is_enough(resource_type: ResourceType) -> None:
    def is_allowed(_: str, operation: Operation, resource: Resource) -> bool:
        return operation is not Operation.CREATE or resource.type is resource_type or resource.name == TOPIC

    async with serving(is_allowed=is_allowed) as (_, client):
        (topic,) = await ask(client, "fresh")
        assert topic.error_code == 0


async def test_who_may_not_create_is_told_so_about_missing_topics_only() -> None:
    def is_allowed(_: str, operation: Operation, resource: Resource) -> bool:
        return operation is not Operation.CREATE or resource.name == TOPIC

    async with serving(is_allowed=is_allowed) as (_, client):
        topics = await ask(client, "fresh", TOPIC)
        assert [t.error_code for t in topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0]
        (topic,) = await ask(client, "fresh", create=False)
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_deleted_topic_is_gone_and_its_name_gets_another_id() -> None:
    async with serving() as (_, client):
        (before,) = await ask(client, TOPIC)
        await client.delete_topic()
        (gone,) = await ask(client, TOPIC, create=False)
        assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await ask_by_id(client, before.topic_id)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        (after,) = await ask(client, TOPIC)
        assert after.error_code == 0
        assert after.topic_id != before.topic_id
