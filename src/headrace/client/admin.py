"""`Admin`: topics, settings, and what a cluster looks like."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from headrace.client.cluster import Cluster, group_by_topic
from headrace.client.descriptions import (
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    ConfigSource,
    CreatedTopic,
    Elected,
    ElectionType,
    LogDirDescription,
    LogDirPartition,
    NewTopic,
    PartitionDescription,
    Resource,
    ResourceType,
    TopicDescription,
)
from headrace.client.errors import topic_error
from headrace.client.group_admin import GroupAdmin
from headrace.client.offsets import delete_records
from headrace.client.outside import Outside
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.elections import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from headrace.wire.messages.inspection import InspectRequest, InspectResponse
from headrace.wire.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult
from headrace.wire.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from headrace.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.wire.struct import Message

M = TypeVar("M", bound=Message)

ADMIN_MS_MAX = 30_000
SEEN_MS_MAX = 5_000
"""How long a call that made a topic waits until every node has heard of it; it is made in any case."""
SEEN_AGAIN_S = 0.01
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
SET, DELETE = 0, 1
"""Of IncrementalAlterConfigs."""


class Admin:
    """An async context manager. What no broker answers is asked again for `timeout_ms`. Of several topics or
    settings, the first that a broker refuses raises KafkaError; the others of the same call may be done."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "headrace",
        timeout_ms: int = ADMIN_MS_MAX,
        outside: Outside | None = None,
    ) -> None:
        self._cluster = Cluster(bootstrap, client_id, outside or Outside(), creates_topics=False)
        self._timeout_ms = timeout_ms
        self.groups = GroupAdmin(self._cluster, timeout_ms)
        """Consumer groups."""

    async def __aenter__(self) -> "Admin":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._cluster.close()

    async def reach(self, timeout_ms: int) -> None:
        """Until a broker answers. NotReachable when none does in that time."""
        await self._cluster.reach(timeout_ms)

    @property
    def trouble(self) -> str | None:
        """What is in the way of a call that is being tried again."""
        return self._cluster.trouble

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> list[CreatedTopic]:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
                )
                for topic in topics
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        answer = await self._ask(request, CreateTopicsResponse)
        for topic in answer.topics:
            _check(topic.error_code, topic.error_message, f"topic {topic.name!r} was not created")
        if not validate_only:
            await self._seen_by_all([topic.name for topic in answer.topics])
        return [
            CreatedTopic(topic.name, topic.topic_id, topic.num_partitions, topic.replication_factor)
            for topic in answer.topics
        ]

    async def _seen_by_all(self, names: list[str]) -> None:
        """One node decides, the others hear of it a moment later: whichever is asked next shall know these topics."""
        topics = [MetadataRequestTopic(name=name) for name in names]
        question = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        try:
            async with asyncio.timeout(SEEN_MS_MAX / 1000):
                await self._cluster.refresh_patiently(SEEN_MS_MAX)
                for node_id in sorted(self._cluster.brokers):
                    await self._seen_by(node_id, question)
        except (KafkaError, TimeoutError):
            return  # a node that is away hears of it when it is back

    async def _seen_by(self, node_id: int, question: MetadataRequest) -> None:
        while True:
            answer = await self._cluster.ask(question, MetadataResponse, SEEN_MS_MAX, node_id)
            if all(topic.error_code != UNKNOWN for topic in answer.topics):
                return
            await asyncio.sleep(SEEN_AGAIN_S)

    async def delete_topics(self, names: Iterable[str]) -> None:
        wanted = list(names)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in wanted], topic_names=wanted, timeout_ms=self._timeout_ms
        )
        answer = await self._ask(request, DeleteTopicsResponse)
        for topic in answer.responses:
            _check_topic(
                topic.error_code, topic.error_message, topic.name or "", f"topic {topic.name!r} was not deleted"
            )

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Names, sorted."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = await self._ask(request, MetadataResponse)
        return sorted(
            topic.name for topic in answer.topics if topic.name is not None and (internal or not topic.is_internal)
        )

    async def describe_topics(self, names: Iterable[str]) -> list[TopicDescription]:
        """In the order asked."""
        wanted = list(names)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in wanted], allow_auto_topic_creation=False
        )
        answer = await self._ask(request, MetadataResponse)
        found = {topic.name: topic for topic in answer.topics}
        for name in wanted:
            code = found[name].error_code if name in found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            _check_topic(code, None, name, f"topic {name!r} cannot be described")
        return [_topic(name, found[name]) for name in wanted]

    async def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """How many partitions each topic is to have from now on, in all."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count) for name, count in counts.items()],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        answer = await self._ask(request, CreatePartitionsResponse)
        for topic in answer.results:
            _check_topic(
                topic.error_code, topic.error_message, topic.name, f"topic {topic.name!r} got no more partitions"
            )

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Removes what is before these offsets (-1: everything). Returns where the partitions begin then."""
        return await delete_records(self._cluster, before, self._timeout_ms)

    async def describe_configs(
        self, resources: Iterable[Resource], *, documentation: bool = False
    ) -> dict[Resource, list[ConfigEntry]]:
        described: dict[Resource, list[ConfigEntry]] = {}
        for node_id, group in _by_node(resources).items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=resource.type, resource_name=resource.name)
                    for resource in group
                ],
                include_documentation=documentation,
            )
            answer = await self._ask(request, DescribeConfigsResponse, node_id)
            for result in answer.results:
                resource = Resource(ResourceType(result.resource_type), result.resource_name)
                _check_resource(result.error_code, result.error_message, resource, f"{resource} cannot be described")
                described[resource] = [_config(entry) for entry in result.configs]
        return described

    async def alter_configs(
        self,
        resource: Resource,
        *,
        set: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Changes these settings and leaves others alone; a deleted one falls back to its default."""
        changes = [
            *[IncrementalAlterableConfig(name=name, config_operation=SET, value=v) for name, v in (set or {}).items()],
            *[IncrementalAlterableConfig(name=name, config_operation=DELETE, value=None) for name in delete],
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=resource.type, resource_name=resource.name, configs=changes
                )
            ],
            validate_only=validate_only,
        )
        node_id = next(iter(_by_node([resource])))
        answer = await self._ask(request, IncrementalAlterConfigsResponse, node_id)
        for result in answer.responses:
            _check_resource(
                result.error_code, result.error_message, resource, f"the settings of {resource} were not changed"
            )

    async def describe_cluster(self) -> ClusterDescription:
        answer = await self._ask(DescribeClusterRequest(), DescribeClusterResponse)
        _check(answer.error_code, answer.error_message, "the cluster cannot be described")
        brokers = [BrokerDescription(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers]
        return ClusterDescription(answer.cluster_id, answer.controller_id, sorted(brokers))

    async def elect_leaders(
        self, kind: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> list[Elected]:
        """One outcome for each partition. None asks for all; then those that need no election are left out."""
        asked = None if partitions is None else group_by_topic(list(partitions))
        request = ElectLeadersRequest(
            election_type=kind,
            topic_partitions=None
            if asked is None
            else [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in asked.items()],
            timeout_ms=self._timeout_ms,
        )
        answer = await self._ask(request, ElectLeadersResponse)
        _check(answer.error_code, None, "no leader was elected")
        return [
            Elected(topic.topic, result.partition_id, KafkaError(result.error_code).code, result.error_message)
            for topic in answer.replica_election_results
            for result in topic.partition_result
        ]

    async def inspect(
        self, kind: str, node_id: int, args: Iterable[str] = (), *, timeout_ms: int | None = None
    ) -> dict[str, Any]:
        """What a node of Headrace knows of itself: "failed", "sessions", "guard", "replicas", "tier" or others."""
        request = InspectRequest(kind=kind, args=list(args))
        answer = await self._cluster.ask(request, InspectResponse, timeout_ms or self._timeout_ms, node_id)
        _check(answer.error_code, None, f"node {node_id} does not tell of {kind}")
        found = json.loads(answer.body)
        assert isinstance(found, dict)
        return found

    async def describe_log_dirs(self) -> list[LogDirDescription]:
        """Of all brokers."""
        await self._cluster.refresh_patiently(self._timeout_ms)
        described = []
        for node_id in sorted(self._cluster.brokers):
            answer = await self._ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, node_id)
            _check(answer.error_code, None, f"the log directories of broker {node_id} cannot be described")
            described += [_log_dir(node_id, result) for result in answer.results]
        return described

    async def _ask(self, request: Message, answer: type[M], node_id: int | None = None) -> M:
        """Of any broker, or of that one."""
        return await self._cluster.ask(request, answer, self._timeout_ms, node_id)


def _check(code: int, message: str | None, otherwise: str) -> None:
    if code:
        raise KafkaError(code, f"{otherwise}: {message}" if message else otherwise)


def _check_topic(code: int, message: str | None, topic: str, otherwise: str) -> None:
    if code:
        raise topic_error(code, topic, f"{otherwise}: {message}" if message else otherwise)


def _check_resource(code: int, message: str | None, resource: Resource, otherwise: str) -> None:
    if resource.type == ResourceType.TOPIC:
        _check_topic(code, message, resource.name, otherwise)
    else:
        _check(code, message, otherwise)


def _by_node(resources: Iterable[Resource]) -> dict[int | None, list[Resource]]:
    """A broker's settings are known to that broker; a topic's to all."""
    grouped: dict[int | None, list[Resource]] = {}
    for resource in resources:
        node_id = int(resource.name) if resource.type == ResourceType.BROKER and resource.name else None
        grouped.setdefault(node_id, []).append(resource)
    return grouped


def _topic(name: str, told: MetadataResponseTopic) -> TopicDescription:
    partitions = [
        PartitionDescription(
            partition.partition_index,
            None if partition.leader_id < 0 else partition.leader_id,
            partition.leader_epoch,
            partition.replica_nodes,
            partition.isr_nodes,
            partition.offline_replicas,
        )
        for partition in sorted(told.partitions, key=lambda partition: partition.partition_index)
    ]
    return TopicDescription(name, told.topic_id, told.is_internal, partitions)


def _config(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    known = entry.config_source in ConfigSource.__members__.values()
    source = ConfigSource(entry.config_source) if known else ConfigSource.UNKNOWN
    return ConfigEntry(entry.name, entry.value, source, entry.read_only, entry.is_sensitive, entry.documentation)


def _log_dir(node_id: int, result: DescribeLogDirsResult) -> LogDirDescription:
    error = KafkaError(result.error_code).code.name if result.error_code else None
    partitions = [
        LogDirPartition(topic.name, partition.partition_index, partition.partition_size, partition.offset_lag)
        for topic in result.topics
        for partition in topic.partitions
    ]
    return LogDirDescription(node_id, result.log_dir, error, result.total_bytes, result.usable_bytes, partitions)
