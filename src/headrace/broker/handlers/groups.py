"""What the handlers of groups share."""

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.core.acl import Operation, Resource, ResourceType
from headrace.core.cluster import Topic
from headrace.errors import ErrorCode
from headrace.model import ZERO_UUID
from headrace.wire.struct import Message


def is_allowed(broker: Broker, request: Request[Message], operation: Operation, group_id: str) -> bool:
    return broker.is_allowed(request.principal, operation, Resource(ResourceType.GROUP, group_id))


def refused(broker: Broker, request: Request[Message], operation: Operation, group_id: str) -> ErrorCode:
    """What members are told before anybody looks at their group."""
    if not is_allowed(broker, request, operation, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE if group_id else ErrorCode.INVALID_GROUP_ID


def topic_named(broker: Broker, name: str, topic_id: bytes) -> Topic | None:
    """By name, or by id where the request says one."""
    if topic_id != ZERO_UUID:
        return broker.image.topics_by_id.get(topic_id)
    return broker.image.topics.get(name)
