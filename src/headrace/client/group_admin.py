"""Consumer groups as an administrator sees them: who is in them, and how far they have read."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from headrace.client.cluster import Cluster, group_by_topic
from headrace.client.coordinators import Coordinators, KeyType
from headrace.client.errors import NotReachable
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from headrace.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

R = TypeVar("R")

CONSUMER = "consumer"
"""The protocol type whose assignments name partitions."""
NAMED_TOPICS_VERSION_MAX = 7
"""Later versions of OffsetFetch ask for several groups, later ones of OffsetCommit name topics by id."""
COMMIT_VERSION_MAX = 9

MOVED = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


class GroupListing(NamedTuple):
    group: str
    state: str
    protocol_type: str
    """"consumer", "connect", or empty for offsets that were committed without a group's ever having members."""


class GroupMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]
    """Empty also for members of other protocols than "consumer"."""


class GroupDescription(NamedTuple):
    group: str
    state: str
    protocol_type: str
    assignor: str
    members: list[GroupMember]


class Committed(NamedTuple):
    offset: int
    metadata: str


class GroupAdmin:
    """What it asks is asked again while coordinators move, for `timeout_ms`."""

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)
        self._timeout_ms = timeout_ms

    async def list(self) -> list[GroupListing]:
        """Of all brokers, by name."""
        await self._cluster.refresh_patiently(self._timeout_ms)
        answers = await asyncio.gather(*(self._listed_by(node_id) for node_id in sorted(self._cluster.brokers)))
        return sorted({listing.group: listing for answer in answers for listing in answer}.values())

    async def _listed_by(self, node_id: int) -> "Sequence[GroupListing]":
        async def ask() -> list[GroupListing]:
            answer = await self._cluster.ask(ListGroupsRequest(), ListGroupsResponse, self._timeout_ms, node_id)
            if answer.error_code:
                raise KafkaError(answer.error_code, f"broker {node_id} does not list its groups")
            return [GroupListing(group.group_id, group.group_state, group.protocol_type) for group in answer.groups]

        return await self._again(None, ask)

    async def describe(self, group: str) -> GroupDescription:
        """A group that does not exist is Dead and has no members."""

        async def ask() -> GroupDescription:
            answer = await self._coordinators.ask(
                KeyType.GROUP, group, DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse
            )
            (told,) = answer.groups
            if told.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return GroupDescription(group, "Dead", "", "", [])
            if told.error_code:
                raise KafkaError(told.error_code, told.error_message or f"group {group!r} cannot be described")
            return _description(told)

        return await self._again(group, ask)

    async def offsets(self, group: str) -> dict[TopicPartition, Committed]:
        """All that it has committed, in order."""

        async def ask() -> dict[TopicPartition, Committed]:
            answer = await self._coordinators.ask(
                KeyType.GROUP,
                group,
                OffsetFetchRequest(group_id=group, topics=None),
                OffsetFetchResponse,
                NAMED_TOPICS_VERSION_MAX,
            )
            if answer.error_code:
                raise KafkaError(answer.error_code, f"the offsets of group {group!r} cannot be told")
            return {
                TopicPartition(topic.name, told.partition_index): Committed(told.committed_offset, told.metadata or "")
                for topic in sorted(answer.topics, key=lambda topic: topic.name)
                for told in sorted(topic.partitions, key=lambda told: told.partition_index)
                if told.committed_offset >= 0
            }

        return await self._again(group, ask)

    async def alter_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Only of a group without members: whoever reads keeps its own place."""
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offsets[TopicPartition(topic, index)],
                            committed_metadata="",
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in group_by_topic(list(offsets)).items()
            ],
        )

        async def ask() -> None:
            answer = await self._coordinators.ask(
                KeyType.GROUP, group, request, OffsetCommitResponse, COMMIT_VERSION_MAX
            )
            for topic in answer.topics:
                for told in topic.partitions:
                    if told.error_code:
                        raise _not_altered(told.error_code, group, TopicPartition(topic.name, told.partition_index))

        await self._again(group, ask)

    async def delete(self, group: str) -> None:
        """With all of its offsets. Only a group without members can be deleted."""

        async def ask() -> None:
            answer = await self._coordinators.ask(
                KeyType.GROUP, group, DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse
            )
            (told,) = answer.results
            if told.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                raise KafkaError(told.error_code, f"group {group!r} does not exist")
            if told.error_code == ErrorCode.NON_EMPTY_GROUP:
                raise KafkaError(told.error_code, f"group {group!r} has members: stop them first")
            if told.error_code:
                raise KafkaError(told.error_code, f"group {group!r} was not deleted")

        await self._again(group, ask)

    async def _again(self, group: str | None, ask: Callable[[], Awaitable[R]]) -> R:
        """What is asked here may be asked twice."""
        with self._cluster.tries(self._timeout_ms) as tries:
            while True:
                try:
                    return await tries.attempt(ask(), "the coordinator of the group did not answer")
                except NotReachable as error:
                    await tries.again(error)
                except KafkaError as error:
                    if error.code not in MOVED:
                        raise
                    await tries.again(error.message)
                if group is not None:
                    self._coordinators.forget(KeyType.GROUP, group)


def _not_altered(code: int, group: str, partition: TopicPartition) -> KafkaError:
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
        return KafkaError(code, f"group {group!r} has members: stop them first")
    return KafkaError(code, f"the offset of group {group!r} in {partition} was not changed")


def _description(told: DescribedGroup) -> GroupDescription:
    names_partitions = told.protocol_type == CONSUMER
    return GroupDescription(
        told.group_id,
        told.group_state,
        told.protocol_type,
        told.protocol_data,
        sorted(_member(member, names_partitions) for member in told.members),
    )


def _member(member: DescribedGroupMember, names_partitions: bool) -> GroupMember:
    assigned = assigned_partitions(member.member_assignment) if names_partitions else []
    return GroupMember(member.member_id, member.group_instance_id, member.client_id, member.client_host, assigned)


def assigned_partitions(assignment: bytes) -> list[TopicPartition]:
    """From the bytes that consumers give each other; none if they are of another kind."""
    try:
        return sorted(_read_assignment(assignment))
    except (struct.error, UnicodeDecodeError):
        return []


def _read_assignment(data: bytes) -> Iterable[TopicPartition]:
    """A version, and an array of a topic's name with an array of partitions; what follows is the assignor's."""
    if not data:
        return
    (topics,) = _INT32.unpack_from(data, 2)
    at = 6
    for _ in range(topics):
        (length,) = _INT16.unpack_from(data, at)
        at += 2
        name = data[at : at + length].decode()
        at += length
        (count,) = _INT32.unpack_from(data, at)
        at += 4
        for _ in range(count):
            yield TopicPartition(name, _INT32.unpack_from(data, at)[0])
            at += 4
