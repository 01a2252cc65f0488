"""EndTxn, versions 0-5: a producer's transaction is committed or aborted. The answer leaves as soon as that is certain,
which is before all partitions know it.

2 knows that a fenced producer has an error of its own (90 instead of 47), 3 flexible. 5 is decoded and not advertised:
without the feature behind it the producer keeps its epoch, and is told so.
"""

from headrace.broker.broker import Broker
from headrace.broker.handlers.transactional import epoch_error, may_use
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.transaction import Claim
from headrace.errors import ErrorCode
from headrace.wire.messages.transactions import EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2


def handle(broker: Broker, request: Request[EndTxnRequest]) -> None:
    body, version = request.body, request.version
    claim = Claim(body.producer_id, body.producer_epoch)

    def answer(error: ErrorCode) -> None:
        if error:
            request.reply(EndTxnResponse(error_code=epoch_error(error, version, FENCED_SINCE)))
        else:
            request.reply(EndTxnResponse(producer_id=claim.producer_id, producer_epoch=claim.epoch))

    if not body.transactional_id:
        answer(ErrorCode.INVALID_REQUEST)
    elif not may_use(broker, request.principal, Operation.WRITE, body.transactional_id):
        answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    else:
        broker.transactions.end(body.transactional_id, claim, body.committed, answer)
