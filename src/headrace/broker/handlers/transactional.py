"""What the requests of transactional producers have in common."""

from headrace.broker.broker import Broker
from headrace.core.acl import Operation, Resource, ResourceType
from headrace.core.internal_topics import INTERNAL_TOPICS
from headrace.core.transaction import TopicPartition
from headrace.errors import ErrorCode


def may_use(broker: Broker, principal: str, operation: Operation, transactional_id: str) -> bool:
    return broker.is_allowed(principal, operation, Resource(ResourceType.TRANSACTIONAL_ID, transactional_id))


def epoch_error(error: ErrorCode, version: int, fenced_since: int) -> ErrorCode:
    """Clients from before 90 existed know a fenced producer as 47."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def unwritable(broker: Broker, principal: str, partition: TopicPartition) -> ErrorCode:
    """Why a client cannot write to the partition, wherever it is led."""
    name, index = partition
    if name in INTERNAL_TOPICS or not broker.allowed(principal, Operation.WRITE, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = broker.image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
