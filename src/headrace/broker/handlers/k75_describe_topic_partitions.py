"""DescribeTopicPartitions, version 0: topics in order of names, a page of partitions at a time.

Gaps: eligible leader replicas are not kept; their lists are empty.
"""

from collections.abc import Iterator

from headrace.broker.broker import Broker
from headrace.broker.handlers.k03_metadata import TOPIC_OPERATIONS, authorized
from headrace.broker.requests import Request
from headrace.core.acl import Operation, topic
from headrace.core.cluster import NO_LEADER, Topic
from headrace.core.internal_topics import INTERNAL_TOPICS
from headrace.errors import ErrorCode
from headrace.wire.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

PAGE_MAX = 2_000
"""Partitions in one answer, whatever the client asks for."""


async def handle(broker: Broker, request: Request[DescribeTopicPartitionsRequest]) -> DescribeTopicPartitionsResponse:
    body = request.body
    cursor = body.cursor
    if cursor is not None and cursor.partition_index < 0:
        refused = [_error(asked.name, ErrorCode.INVALID_REQUEST) for asked in body.topics]
        return DescribeTopicPartitionsResponse(topics=refused)
    room = min(max(body.response_partition_limit, 1), PAGE_MAX)
    topics = []
    for name in _names(broker, request):
        found = _found(broker, request, name)
        if isinstance(found, ErrorCode):
            topics.append(_error(name, found))
            continue
        if room == 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=0)
            )
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        last = min(len(found.partitions), first + room)
        topics.append(_described(broker, request, found, range(first, last)))
        room -= max(last - first, 0)
        if last < len(found.partitions):
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=last)
            )
    return DescribeTopicPartitionsResponse(topics=topics)


def _names(broker: Broker, request: Request[DescribeTopicPartitionsRequest]) -> Iterator[str]:
    """From the cursor on; without topics in the request, all that the client may see."""
    asked = {named.name for named in request.body.topics}
    cursor = request.body.cursor
    for name in sorted(asked or broker.image.topics):
        if cursor is not None and name < cursor.topic_name:
            continue
        if asked or broker.allowed(request.principal, Operation.DESCRIBE, name):
            yield name


def _found(broker: Broker, request: Request[DescribeTopicPartitionsRequest], name: str) -> Topic | ErrorCode:
    if not broker.allowed(request.principal, Operation.DESCRIBE, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = broker.image.topics.get(name)
    if known is not None:
        return known
    return broker.controller.name_error(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _error(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name, partitions=[])


def _described(
    broker: Broker, request: Request[DescribeTopicPartitionsRequest], found: Topic, indexes: range
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=found.name,
        topic_id=found.id,
        is_internal=found.name in INTERNAL_TOPICS,
        partitions=[_partition(broker, found, index) for index in indexes],
        topic_authorized_operations=authorized(broker, request.principal, topic(found.name), TOPIC_OPERATIONS),
    )


def _partition(broker: Broker, found: Topic, index: int) -> DescribeTopicPartitionsResponsePartition:
    record = found.partitions[index]
    leader, offline_replicas = broker.leader_and_offline(found, index)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=record.leader_epoch,
        replica_nodes=list(record.replicas),
        isr_nodes=record.isr_ids,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=offline_replicas,
    )
