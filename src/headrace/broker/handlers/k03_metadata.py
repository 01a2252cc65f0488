"""Metadata, versions 0-13: who leads what, and how to reach them.

4 lets the client forbid auto-creation, 8 tells authorised operations, 10 tells ids of topics, 12 asks by them.

It is answered from the image, whose leader epochs never fall: so they do not on a connection either.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.broker import forwarding
from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.controller.pacing import Pace
from headrace.core.acl import CLUSTER, Operation, Resource, topic
from headrace.core.cluster import NO_LEADER, Topic
from headrace.core.internal_topics import INTERNAL_TOPICS
from headrace.errors import ErrorCode
from headrace.model import ZERO_UUID
from headrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T = TypeVar("T")

NOT_ASKED = -(2**31)
IDS_SINCE = 12
"""Versions 10 and 11 have the fields, but no client may use them so."""
TOPIC_US, PARTITION_US = 20, 3
TOPIC_OPERATIONS = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


async def handle(broker: Broker, request: Request[MetadataRequest]) -> MetadataResponse:
    body = request.body
    image = broker.image
    if body.topics is None or (request.version == 0 and not body.topics):
        visible = [t for t in image.topics.values() if broker.allowed(request.principal, Operation.DESCRIBE, t.name)]
        topics = await _each(visible, lambda found: _described(broker, request, found))
    elif request.version < IDS_SINCE and any(
        asked.name is None or asked.topic_id != ZERO_UUID for asked in body.topics
    ):
        topics = [_error(ErrorCode.INVALID_REQUEST, request, asked) for asked in body.topics]
    else:
        # Who names a topic many times gets it once: answers are much larger than requests.
        distinct = list({(asked.name, asked.topic_id): asked for asked in body.topics}.values())
        not_created: dict[str, ErrorCode] = {}
        if body.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
            not_created = await _create_missing(broker, request, distinct)
        known = [found for asked in distinct if (found := _find(broker, asked)) is not None]
        await broker.absences.await_election(known)
        topics = await _each(distinct, lambda asked: _answer(broker, request, asked, not_created))
    cluster_operations = NOT_ASKED
    if body.include_cluster_authorized_operations:
        cluster_operations = authorized(broker, request.principal, CLUSTER, CLUSTER_OPERATIONS)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=one.id, host=one.host, port=one.port, rack=one.rack)
            for one in broker.absences.listed()
        ],
        cluster_id=image.cluster_id,
        controller_id=broker.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


async def _each(items: Sequence[T], answer: Callable[[T], MetadataResponseTopic]) -> list[MetadataResponseTopic]:
    answers, pace = [], Pace()
    for item in items:
        answered = answer(item)
        answers.append(answered)
        await pace.spend(TOPIC_US + PARTITION_US * len(answered.partitions))
    return answers


def authorized(broker: Broker, principal: str, resource: Resource, operations: tuple[Operation, ...]) -> int:
    """The operations as a set of bits."""
    return sum(1 << operation for operation in operations if broker.is_allowed(principal, operation, resource))


async def _create_missing(
    broker: Broker, request: Request[MetadataRequest], topics: Sequence[MetadataRequestTopic]
) -> dict[str, ErrorCode]:
    """Returns why topics are still missing, of those that it will not help to ask for again."""
    principal = request.principal
    not_created: dict[str, ErrorCode] = {}
    for asked in topics:
        name = asked.name
        if name is None or name in broker.image.topics or not broker.allowed(principal, Operation.DESCRIBE, name):
            continue
        if name in INTERNAL_TOPICS:
            broker.internal_topics.create(name)
            continue
        if broker.allowed_on_cluster(principal, Operation.CREATE) or broker.allowed(principal, Operation.CREATE, name):
            error = await forwarding.auto_create(broker, name)
            if error and error is not ErrorCode.REQUEST_TIMED_OUT:
                not_created[name] = error
        else:
            not_created[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return not_created


def _answer(
    broker: Broker, request: Request[MetadataRequest], asked: MetadataRequestTopic, not_created: dict[str, ErrorCode]
) -> MetadataResponseTopic:
    by_id = asked.name is None or asked.topic_id != ZERO_UUID
    found = _find(broker, asked)
    name = found.name if found is not None else asked.name
    if name is not None and not broker.allowed(request.principal, Operation.DESCRIBE, name):
        # Whoever asks by id must not learn the name.
        return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, request, asked)
    if found is None:
        return _error(not_created.get(name or "") or _missing(broker, by_id, asked.name), request, asked)
    return _described(broker, request, found)


def _find(broker: Broker, asked: MetadataRequestTopic) -> Topic | None:
    image = broker.image
    if asked.name is None or asked.topic_id != ZERO_UUID:
        return image.topics_by_id.get(asked.topic_id)
    return image.topics.get(asked.name)


def _missing(broker: Broker, by_id: bool, name: str | None) -> ErrorCode:
    if by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return broker.controller.name_error(name or "") or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _error(error: ErrorCode, request: Request[MetadataRequest], asked: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name="" if asked.name is None and request.version < IDS_SINCE else asked.name,
        topic_id=asked.topic_id,
        is_internal=False,
        partitions=[],
        topic_authorized_operations=NOT_ASKED,
    )


def _described(broker: Broker, request: Request[MetadataRequest], found: Topic) -> MetadataResponseTopic:
    operations = NOT_ASKED
    if request.body.include_topic_authorized_operations:
        operations = authorized(broker, request.principal, topic(found.name), TOPIC_OPERATIONS)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=found.name,
        topic_id=found.id,
        is_internal=found.name in INTERNAL_TOPICS,
        partitions=[_partition(broker, found, index) for index in range(len(found.partitions))],
        topic_authorized_operations=operations,
    )


def _partition(broker: Broker, found: Topic, index: int) -> MetadataResponsePartition:
    record = found.partitions[index]
    leader, offline_replicas = broker.leader_and_offline(found, index)
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=record.leader_epoch,
        replica_nodes=list(record.replicas),
        isr_nodes=record.isr_ids,
        offline_replicas=offline_replicas,
    )
