"""InitProducerId, versions 0-5: a new producer id for idempotent producers; for transactional ones the id that their
transactional id has, under an epoch that fences whoever used it before.

3 may name the id and epoch that a producer has: without a transactional id it still gets a new one. 4 knows that a
fenced producer has an error of its own (90 instead of 47).
"""

from headrace.broker.broker import Broker
from headrace.broker.coordinators.transactions import NOBODY, TRANSACTIONAL_ID_BYTES_MAX
from headrace.broker.handlers.transactional import epoch_error, may_use
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.transaction import Claim
from headrace.errors import ErrorCode
from headrace.wire.messages.coordinators import InitProducerIdRequest, InitProducerIdResponse

FENCED_SINCE = 4


def handle(broker: Broker, request: Request[InitProducerIdRequest]) -> None:
    body, version = request.body, request.version

    def answer(error: ErrorCode, got: Claim) -> None:
        request.reply(
            InitProducerIdResponse(
                error_code=epoch_error(error, version, FENCED_SINCE),
                producer_id=got.producer_id,
                producer_epoch=got.epoch,
            )
        )

    def given(producer_id: int | None) -> None:
        if producer_id is None:
            answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NOBODY)
        else:
            answer(ErrorCode.NONE, Claim(producer_id, 0))

    refused = _refusal(broker, request)
    if refused:
        answer(refused, NOBODY)
    elif body.transactional_id is None:
        broker.transactions.with_producer_id(given)
    else:
        claim = None if body.producer_id == NOBODY.producer_id else Claim(body.producer_id, body.producer_epoch)
        broker.transactions.init(body.transactional_id, claim, body.transaction_timeout_ms, answer)


def _refusal(broker: Broker, request: Request[InitProducerIdRequest]) -> ErrorCode:
    body, transactional_id = request.body, request.body.transactional_id
    if (body.producer_id == -1) != (body.producer_epoch == -1) or transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if transactional_id is None:
        return _refusal_of_idempotent(broker, request.principal)
    if not may_use(broker, request.principal, Operation.WRITE, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if len(transactional_id.encode()) > TRANSACTIONAL_ID_BYTES_MAX:
        return ErrorCode.INVALID_REQUEST
    if not 0 < body.transaction_timeout_ms <= broker.config.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def _refusal_of_idempotent(broker: Broker, principal: str) -> ErrorCode:
    if broker.allowed_on_cluster(principal, Operation.IDEMPOTENT_WRITE):
        return ErrorCode.NONE
    # Who may write to some topic may do so as an idempotent producer.
    if any(broker.allowed(principal, Operation.WRITE, name) for name in broker.image.topics):
        return ErrorCode.NONE
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
