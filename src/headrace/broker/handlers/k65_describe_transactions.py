"""DescribeTransactions, version 0: transactional ids that this node coordinates, and what is open or about to end."""

import asyncio

from headrace.broker.broker import Broker
from headrace.broker.coordinators.kept import Kept
from headrace.broker.handlers.transactional import may_use
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.transaction import Transaction
from headrace.errors import ErrorCode
from headrace.wire.messages.transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

SLICE = 1_000
"""Ids that are looked at in one turn of the loop."""


async def handle(broker: Broker, request: Request[DescribeTransactionsRequest]) -> DescribeTransactionsResponse:
    asked, described = request.body.transactional_ids, []
    for at in range(0, len(asked), SLICE):
        described += [_described(broker, request.principal, one) for one in asked[at : at + SLICE]]
        await asyncio.sleep(0)
    return DescribeTransactionsResponse(transaction_states=described)


def _described(broker: Broker, principal: str, transactional_id: str) -> DescribedTransaction:
    found: Kept | ErrorCode | None
    if not transactional_id:
        found = ErrorCode.INVALID_REQUEST
    elif not may_use(broker, principal, Operation.DESCRIBE, transactional_id):
        found = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    else:
        found = broker.transactions.find(transactional_id)
    if isinstance(found, ErrorCode):
        return DescribedTransaction(transactional_id=transactional_id, error_code=found)
    if found is None or found.transaction is None:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return DescribedTransaction(transactional_id=transactional_id, error_code=error)
    known = found.transaction
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=known.state.label,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=_topics(broker, principal, found, known),
    )


def _topics(broker: Broker, principal: str, kept: Kept, known: Transaction) -> list[DescribedTransactionTopic]:
    """Of one that is about to end: those that do not know it yet. Without topics that the caller may not see."""
    partitions = known.partitions if kept.ending is None else kept.ending.remaining
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        if broker.allowed(principal, Operation.DESCRIBE, topic):
            by_topic.setdefault(topic, []).append(index)
    return [DescribedTransactionTopic(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()]
