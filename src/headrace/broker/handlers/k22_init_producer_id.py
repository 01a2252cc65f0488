"""InitProducerId, versions 0-5: a new producer id for idempotent producers. Transactional ids get 15: none exist yet.

3 may name the id and epoch that a producer had; without a transactional id it still gets a new one.
"""

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.core.acl import Operation, Resource, ResourceType
from headrace.errors import ErrorCode
from headrace.wire.messages.coordinators import InitProducerIdRequest, InitProducerIdResponse


async def handle(broker: Broker, request: Request[InitProducerIdRequest]) -> InitProducerIdResponse:
    error = _error(broker, request)
    if error:
        return InitProducerIdResponse(error_code=error)
    producer_id = await broker.controller.producer_ids.next()
    if producer_id is None:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _error(broker: Broker, request: Request[InitProducerIdRequest]) -> ErrorCode:
    body = request.body
    if (body.producer_id == -1) != (body.producer_epoch == -1) or body.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if body.transactional_id is not None:
        resource = Resource(ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        if not broker.is_allowed(request.principal, Operation.WRITE, resource):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if broker.allowed_on_cluster(request.principal, Operation.IDEMPOTENT_WRITE):
        return ErrorCode.NONE
    # Who may write to some topic may do so as an idempotent producer.
    if any(broker.allowed(request.principal, Operation.WRITE, name) for name in broker.image.topics):
        return ErrorCode.NONE
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
