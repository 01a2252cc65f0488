"""Metadata, versions 0-13: who leads what, and how to reach them.

4 lets the client forbid auto-creation, 8 tells authorised operations, 10 names topics by id as well.

It is answered from the image, whose leader epochs never fall: so they do not on a connection either.
"""

from headrace.broker import forwarding
from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.core.acl import CLUSTER, Operation, Resource, topic
from headrace.core.cluster import NO_LEADER, Topic
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

NOT_ASKED = -(2**31)
NULL_NAMES_SINCE = 12
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
        topics = [_described(broker, request, found) for found in visible]
    else:
        denied: set[str] = set()
        if body.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
            denied = await _create_missing(broker, request)
        topics = [_answer(broker, request, asked, denied) for asked in body.topics]
    cluster_operations = NOT_ASKED
    if body.include_cluster_authorized_operations:
        cluster_operations = authorized(broker, request.principal, CLUSTER, CLUSTER_OPERATIONS)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=b.id, host=b.host, port=b.port, rack=b.rack) for b in image.brokers.values()
        ],
        cluster_id=image.cluster_id,
        controller_id=broker.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


def authorized(broker: Broker, principal: str, resource: Resource, operations: tuple[Operation, ...]) -> int:
    """The operations as a set of bits."""
    return sum(1 << operation for operation in operations if broker.is_allowed(principal, operation, resource))


async def _create_missing(broker: Broker, request: Request[MetadataRequest]) -> set[str]:
    """Returns the topics that are missing, and that this caller may not create."""
    principal = request.principal
    denied = set()
    for asked in request.body.topics or ():
        name = asked.name
        if name is None or name in broker.image.topics or not broker.allowed(principal, Operation.DESCRIBE, name):
            continue
        if broker.allowed_on_cluster(principal, Operation.CREATE) or broker.allowed(principal, Operation.CREATE, name):
            await forwarding.auto_create(broker, name)
        else:
            denied.add(name)
    return denied


def _answer(
    broker: Broker, request: Request[MetadataRequest], asked: MetadataRequestTopic, denied: set[str]
) -> MetadataResponseTopic:
    by_id = asked.name is None or (request.version >= 10 and asked.topic_id != ZERO_UUID)
    image = broker.image
    found = image.topics_by_id.get(asked.topic_id) if by_id else image.topics.get(asked.name or "")
    name = found.name if found is not None else asked.name
    if name is not None and not broker.allowed(request.principal, Operation.DESCRIBE, name):
        # Whoever asks by id must not learn the name.
        return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, request, asked)
    if found is None:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if name in denied else _missing(broker, by_id, asked.name)
        return _error(code, request, asked)
    return _described(broker, request, found)


def _missing(broker: Broker, by_id: bool, name: str | None) -> ErrorCode:
    if by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return broker.controller.name_error(name or "") or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _error(error: ErrorCode, request: Request[MetadataRequest], asked: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name="" if asked.name is None and request.version < NULL_NAMES_SINCE else asked.name,
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
        is_internal=False,
        partitions=[_partition(broker, found, index) for index in range(len(found.partitions))],
        topic_authorized_operations=operations,
    )


def offline_replicas(broker: Broker, found: Topic, index: int) -> list[int]:
    """Replicas whose nodes are not there, or have lost the disk that they were on."""
    replicas = found.partitions[index].replicas
    return [replica for replica in replicas if not broker.image.is_reachable(replica, found.id, index)]


def _partition(broker: Broker, found: Topic, index: int) -> MetadataResponsePartition:
    record = found.partitions[index]
    leader = broker.image.leader_of(record)
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=record.leader_epoch,
        replica_nodes=list(record.replicas),
        isr_nodes=record.isr_ids,
        offline_replicas=offline_replicas(broker, found, index),
    )
