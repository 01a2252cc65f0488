"""ListTransactions, versions 0-2: the transactional ids that this node coordinates, by state and producer id.

1 also by how long a transaction takes already, 2 by a regular expression for the whole id.
"""

import asyncio

from headrace.broker.broker import Broker
from headrace.broker.handlers.transactional import may_use
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.regex import InvalidPattern, Pattern
from headrace.core.transaction import STATES, State, Transaction
from headrace.errors import ErrorCode
from headrace.wire.messages.transactions import ListedTransaction, ListTransactionsRequest, ListTransactionsResponse

SLICE = 2_000
"""Ids that are looked at in one turn of the loop; with a pattern their characters."""


async def handle(broker: Broker, request: Request[ListTransactionsRequest]) -> ListTransactionsResponse:
    transactions, body = broker.transactions, request.body
    if transactions.log.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        pattern = Pattern(body.transactional_id_pattern) if body.transactional_id_pattern else None
    except InvalidPattern:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    states = {STATES[name] for name in body.state_filters if name in STATES}
    unknown = [name for name in body.state_filters if name not in STATES]
    wanted = _Wanted(body, states, broker.clock.wall_ms())
    listed = []
    work = 0
    for kept in list(transactions):
        known, transactional_id = kept.transaction, kept.transactional_id
        work += 1 if pattern is None else 1 + len(transactional_id)
        if work > SLICE:
            work = 0
            await asyncio.sleep(0)
        if known is None or not wanted.has(known) or (pattern is not None and not pattern.matches(transactional_id)):
            continue
        if may_use(broker, request.principal, Operation.DESCRIBE, transactional_id):
            listed.append(
                ListedTransaction(
                    transactional_id=transactional_id,
                    producer_id=known.producer_id,
                    transaction_state=known.state.label,
                )
            )
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)


class _Wanted:
    def __init__(self, body: ListTransactionsRequest, states: set[State], now_ms: int) -> None:
        self._states = states if body.state_filters else None
        self._producer_ids = set(body.producer_id_filters)
        self._duration_ms = body.duration_filter
        self._now_ms = now_ms

    def has(self, known: Transaction) -> bool:
        if self._states is not None and known.state not in self._states:
            return False
        if self._producer_ids and known.producer_id not in self._producer_ids:
            return False
        return self._duration_ms < 0 or self._now_ms - known.started_ms > self._duration_ms
