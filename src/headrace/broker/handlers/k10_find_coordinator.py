"""FindCoordinator, versions 0-5: which node keeps a group or a transaction. None does yet: 15 for every key.

4 asks for many keys at once. Key types: 0 a group, 1 a transactional id.
"""

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.core.acl import Operation, Resource, ResourceType
from headrace.errors import ErrorCode
from headrace.wire.messages.coordinators import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

BATCHED_SINCE = 4
KEY_TYPES = {
    0: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    1: (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
MESSAGES = {
    ErrorCode.INVALID_REQUEST: "There is no coordinator for keys of this type",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "This version keeps neither groups nor transactions",
}


async def handle(broker: Broker, request: Request[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    body = request.body
    if request.version < BATCHED_SINCE:
        error = _error(broker, request, body.key)
        return FindCoordinatorResponse(error_code=error, error_message=MESSAGES.get(error))
    found = [(key, _error(broker, request, key)) for key in body.coordinator_keys]
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, error_code=error, error_message=MESSAGES.get(error)) for key, error in found]
    )


def _error(broker: Broker, request: Request[FindCoordinatorRequest], key: str) -> ErrorCode:
    kind = KEY_TYPES.get(request.body.key_type)
    if kind is None:
        return ErrorCode.INVALID_REQUEST
    resource_type, refused = kind
    if not broker.is_allowed(request.principal, Operation.DESCRIBE, Resource(resource_type, key)):
        return refused
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
