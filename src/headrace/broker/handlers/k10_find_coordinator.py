"""FindCoordinator, versions 0-5: which node keeps a group or a transaction. The one that leads its partition.

4 asks for many keys at once. Key types: 0 a group, 1 a transactional id.
"""

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.core.acl import Operation, Resource, ResourceType
from headrace.core.cluster import RegisteredBroker
from headrace.core.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE, coordinating_partition
from headrace.errors import ErrorCode
from headrace.wire.messages.coordinators import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

BATCHED_SINCE = 4
KEY_TYPES = {
    0: (ResourceType.GROUP, CONSUMER_OFFSETS, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    1: (ResourceType.TRANSACTIONAL_ID, TRANSACTION_STATE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
MESSAGES = {
    ErrorCode.INVALID_REQUEST: "There is no coordinator for keys of this type",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available",
}


def handle(broker: Broker, request: Request[FindCoordinatorRequest]) -> None:
    body = request.body
    if request.version < BATCHED_SINCE:
        (found,) = _find(broker, request, [body.key])
        request.reply(
            FindCoordinatorResponse(
                error_code=found.error_code,
                error_message=found.error_message,
                node_id=found.node_id,
                host=found.host,
                port=found.port,
            )
        )
    else:
        request.reply(FindCoordinatorResponse(coordinators=_find(broker, request, body.coordinator_keys)))


def _find(broker: Broker, request: Request[FindCoordinatorRequest], keys: list[str]) -> list[Coordinator]:
    kind = KEY_TYPES.get(request.body.key_type)
    if kind is None:
        return [_refused(key, ErrorCode.INVALID_REQUEST) for key in keys]
    resource_type, topic, refused = kind
    answers = []
    for key in keys:
        if not broker.is_allowed(request.principal, Operation.DESCRIBE, Resource(resource_type, key)):
            answers.append(_refused(key, refused))
            continue
        node = coordinator_of(broker, topic, key)
        if node is None:
            answers.append(_refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            answers.append(Coordinator(key=key, node_id=node.id, host=node.host, port=node.port))
    return answers


def coordinator_of(broker: Broker, topic: str, key: str) -> RegisteredBroker | None:
    """None: nobody is at this moment. The first to ask has the topic made."""
    known = broker.image.topics.get(topic)
    if known is None:
        broker.internal_topics.create(topic)
        return None
    index = coordinating_partition(topic, key, len(known.partitions))
    return broker.image.brokers.get(known.partitions[index].leader)


def _refused(key: str, error: ErrorCode) -> Coordinator:
    return Coordinator(key=key, error_code=error, error_message=MESSAGES.get(error))
