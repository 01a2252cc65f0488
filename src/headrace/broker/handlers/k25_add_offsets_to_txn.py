"""AddOffsetsToTxn, versions 0-4: the offsets of a group that a producer is about to commit belong to its transaction.

2 knows that a fenced producer has an error of its own (90 instead of 47), 3 flexible.
"""

from headrace.broker.broker import Broker
from headrace.broker.handlers.transactional import epoch_error, may_use
from headrace.broker.requests import Request
from headrace.core.acl import Operation, Resource, ResourceType
from headrace.core.transaction import Claim
from headrace.errors import ErrorCode
from headrace.wire.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FENCED_SINCE = 2


def handle(broker: Broker, request: Request[AddOffsetsToTxnRequest]) -> None:
    body, version = request.body, request.version

    def answer(error: ErrorCode) -> None:
        request.reply(AddOffsetsToTxnResponse(error_code=epoch_error(error, version, FENCED_SINCE)))

    refused = _refusal(broker, request.principal, body)
    if refused:
        answer(refused)
        return
    claim = Claim(body.producer_id, body.producer_epoch)
    broker.transactions.add_offsets(body.transactional_id, claim, body.group_id, answer)


def _refusal(broker: Broker, principal: str, body: AddOffsetsToTxnRequest) -> ErrorCode:
    if not body.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not may_use(broker, principal, Operation.WRITE, body.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not broker.is_allowed(principal, Operation.READ, Resource(ResourceType.GROUP, body.group_id)):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE
