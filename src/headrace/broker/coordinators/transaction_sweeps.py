"""What a transaction coordinator does on its own: ends transactions whose time is over, forgets ids that fell silent.

Both look at a slice of the ids in each turn of the loop.
"""

import asyncio
from typing import Final

from headrace.broker.broker import Broker
from headrace.broker.coordinators.kept import Kept
from headrace.broker.coordinators.queries import Query
from headrace.broker_config import BrokerConfig
from headrace.core.transaction import State, Transaction
from headrace.core.transaction_log import tombstone_of
from headrace.core.transactional_id import Attempt
from headrace.errors import ErrorCode

SLICE: Final = 500
"""Ids that one turn looks at, and tombstones in one batch."""


async def abort_timed_out(broker: Broker) -> None:
    """Whose end cannot be written now is looked at again by the next sweep."""
    transactions = broker.transactions
    open_ones = list(transactions.ongoing)
    for at in range(0, len(open_ones), SLICE):
        now_ms = broker.clock.monotonic_ms()
        for kept in open_ones[at : at + SLICE]:
            if kept in transactions.ongoing and (kept.deadline_ms < now_ms or transactions.queries.is_superseded(kept)):
                transactions.fence(kept)
        await asyncio.sleep(0)


async def forget_expired(broker: Broker) -> None:
    transactions = broker.transactions
    every = list(transactions)
    for at in range(0, len(every), SLICE):
        now_ms = broker.clock.wall_ms()
        by_index: dict[int, list[Kept]] = {}
        for kept in every[at : at + SLICE]:
            known = kept.transaction
            if (
                known is not None
                and not kept.is_pending
                and known.is_expired(now_ms, _kept_ms(broker.config, kept.attempt, known))
                and transactions.find(kept.transactional_id) is kept
            ):
                by_index.setdefault(kept.index, []).append(kept)
        for index, expired in by_index.items():
            _forget(broker, index, expired)
        await asyncio.sleep(0)


async def forget_finished(broker: Broker) -> None:
    """Attempts at batches of queries that are over: there may be thousands for each batch."""
    transactions = broker.transactions
    finished = transactions.queries.finished()
    for at in range(0, len(finished), SLICE):
        by_index: dict[int, list[Kept]] = {}
        for kept in finished[at : at + SLICE]:
            if not kept.is_pending and transactions.find(kept.transactional_id) is kept:
                by_index.setdefault(kept.index, []).append(kept)
        for index, kepts in by_index.items():
            _forget(broker, index, kepts)
        await asyncio.sleep(0)


async def forget_queries(broker: Broker) -> None:
    """Jobs that were done a while ago, and queries if somebody has said for how long they are to be remembered."""
    queries = broker.transactions.queries
    every = list(queries)
    for at in range(0, len(every), SLICE):
        now_ms = broker.clock.wall_ms()
        by_index: dict[int, list[Query]] = {}
        for index, query in every[at : at + SLICE]:
            if queries.is_due(index, query, now_ms):
                by_index.setdefault(index, []).append(query)
        for index, due in by_index.items():
            queries.forget(index, due)
        await asyncio.sleep(0)


def _kept_ms(config: BrokerConfig, attempt: Attempt | None, known: Transaction) -> int:
    """Attempts that were aborted are never taken up again. A query that fails and is started again, and again, leaves
    as many as it has tasks each time: kept for days they would leave no room for anybody else's."""
    kept_ms = config.transactional_id_expiration_ms
    if attempt is None or known.state is not State.COMPLETE_ABORT:
        return kept_ms
    return min(kept_ms, config.transaction_max_timeout_ms)


def _forget(broker: Broker, index: int, expired: list[Kept]) -> ErrorCode:
    return broker.transactions.forget(index, expired, [tombstone_of(kept.transactional_id) for kept in expired])
