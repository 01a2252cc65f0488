"""Batches of Spark queries, each committed once and as a whole, whatever became of tasks, drivers and coordinators.

Every attempt at a task writes in a transaction of its own, and nobody ends it. A driver names the attempts that are to
count: one batch of records in the log says that this was the last batch of the query, and that all of these are about
to be committed. So the log holds all of it or nothing, and whoever reads it next comes to the same end. From then on
the batch is over: what else was begun for it is aborted, and nothing is begun any more. Whoever asks again hears that
it was decided.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.broker.broker import Broker
from headrace.broker.coordinators.kept import Kept
from headrace.broker.coordinators.queries import QUERIES_MAX, Queries, Query
from headrace.broker.coordinators.state_log import Entry
from headrace.core import transaction
from headrace.core.commit_group import GIVEN_UP, Decision, Handle, decision_entry, is_committable
from headrace.core.transaction import Transaction
from headrace.core.transaction_log import entry_of
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.coordinators.transactions import Change, Transactions

log = logging.getLogger(__name__)

ANSWER_S_MAX: Final = 10.0
"""A driver that waited so long for its decision to be committed hears 15, and asks again: 51 until it is."""
JOB_BATCH: Final = 0
"""The only one of a batch job."""
SLICE: Final = 200
"""Attempts that one turn of the loop looks at and writes out."""


@dataclass(frozen=True, slots=True)
class Outcome:
    error: ErrorCode
    decided: bool = False
    """Before, by whomever."""
    last: Decision | None = None
    bad: tuple[str, ...] = ()
    """Attempts that are in the way of a commit."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a driver asks for."""

    query: str
    batch_id: int
    run_id: str
    handles: Sequence[Handle]


class Row(NamedTuple):
    """An attempt that is about to be committed."""

    kept: Kept
    known: Transaction
    decided: Transaction
    entry: Entry


class CommitGroups:
    def __init__(self, broker: Broker, transactions: "Transactions", queries: Queries) -> None:
        self._broker = broker
        self._transactions = transactions
        self._queries = queries
        self.committed = self.repeated = self.refused = 0

    # Requests. All raise nothing: what is in the way is a code.

    def last(self, name: str) -> Outcome:
        index = self._transactions.place_of(name)
        if isinstance(index, ErrorCode):
            return Outcome(index)
        query = self._queries.find(index, name)
        return self._from_memory(Outcome(ErrorCode.NONE, last=None if query is None else query.last))

    def alive(self, job: str) -> Outcome:
        """The driver of a batch job lets it be known that it lives, and goes on with that until it is told that the job
        is over."""
        index = self._transactions.place_of(job)
        if isinstance(index, ErrorCode):
            return Outcome(index)
        query = self._queries.find(index, job)
        if query is not None and query.is_over(JOB_BATCH):
            return Outcome(ErrorCode.NONE, decided=True, last=query.last)
        self._queries.living.heard(index, job)
        return self._from_memory(Outcome(ErrorCode.NONE))

    async def commit(self, asked: Batch) -> Outcome:
        """The attempts' records become readable, all of them, or nothing changes. It may be asked again."""
        written_out: dict[Kept, Row] = {}
        for at in range(0, len(asked.handles) - SLICE, SLICE):
            found = self._undecided(asked)
            if isinstance(found, Outcome):
                return found
            self._rows(found[0], asked.handles[at : at + SLICE], written_out)
            await asyncio.sleep(0)
        # Everything is looked at in this one step of the loop, so that it holds when it is written.
        found = self._undecided(asked)
        if isinstance(found, Outcome):
            return found
        index, query = found
        rows = self._rows(index, asked.handles, written_out)
        if not isinstance(rows, list):
            self.refused += 1
            return self._from_memory(Outcome(ErrorCode.INVALID_TXN_STATE, last=query.last, bad=rows))
        decision = Decision(
            batch_id=asked.batch_id,
            run_id=asked.run_id,
            decided_ms=self._broker.clock.wall_ms(),
            winners=tuple(claim for _, claim in asked.handles),
        )
        return await self._decide(index, query, decision, rows)

    async def abort(self, asked: Batch) -> Outcome:
        """The attempts are aborted that are still as the driver knew them. A decision is never undone."""
        for at in range(0, max(len(asked.handles), 1), SLICE):
            found = self._undecided(asked)
            if isinstance(found, Outcome):
                return found
            index, query = found
            changes: list[Change] = []
            known = self._transactions.at(index)
            now_ms = self._broker.clock.wall_ms()
            for transactional_id, claim in asked.handles[at : at + SLICE]:
                kept = known.get(transactional_id)
                if kept is None or kept.transaction is None or not is_committable(kept.transaction, claim):
                    continue
                if kept.is_pending:
                    return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS, last=query.last)
                changes.append((kept, transaction.fenced(kept.transaction, now_ms)))
            if changes:
                error = await self._write(index, changes)
                if error:
                    return Outcome(error)
        return self.last(asked.query)

    async def give_up_silent_jobs(self) -> None:
        """It is decided that nothing of them is ever read, as drivers do that abort: so a driver that lives after all
        cannot commit a part of its job."""
        silent: dict[int, list[str]] = {}
        for index, job in self._queries.living.silent():
            silent.setdefault(index, []).append(job)
        await asyncio.gather(*(self._give_up(index, jobs) for index, jobs in silent.items()))

    async def _give_up(self, index: int, jobs: Sequence[str]) -> None:
        """Of one partition, which holds up no other one."""
        for job in jobs:
            outcome = await self.commit(Batch(job, JOB_BATCH, GIVEN_UP, ()))
            if outcome.error:
                return  # all that are left are tried again in the next round
            self._queries.living.over(index, job)
            if not outcome.decided:
                log.warning("the driver of job %r has not been heard of for long: the job is given up", job)

    def _from_memory(self, told: Outcome) -> Outcome:
        """That something is not open, or not known, or the last: a node that coordinates by now may know of more. What
        is over needs no lease, for it stays so."""
        return told if self._broker.controller.lease_valid() else Outcome(ErrorCode.NOT_COORDINATOR)

    # Decisions.

    def _undecided(self, asked: Batch) -> tuple[int, Query] | Outcome:
        """The query, if something may be decided for this batch of it now; else the answer."""
        index = self._transactions.place_of(asked.query)
        if isinstance(index, ErrorCode):
            return Outcome(index)
        query = self._queries.find(index, asked.query)
        if query is None:
            if len(self._queries) >= QUERIES_MAX:
                return self._from_memory(Outcome(ErrorCode.POLICY_VIOLATION))
            query = Query(asked.query)
        if query.is_over(asked.batch_id):
            self.repeated += 1
            return Outcome(ErrorCode.NONE, decided=True, last=query.last)
        if query.is_pending:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS, last=query.last)
        return index, query

    def _rows(self, index: int, handles: Sequence[Handle], written_out: dict[Kept, Row]) -> list[Row] | tuple[str, ...]:
        """What is written of the attempts if they are committed; or those that are in the way of it. What was written
        out before counts if nothing has happened to it."""
        rows: list[Row] = []
        bad: list[str] = []
        kept_by_id = self._transactions.at(index)
        clock = self._broker.clock
        now_ms, wall_ms = clock.monotonic_ms(), clock.wall_ms()
        for transactional_id, claim in handles:
            kept = kept_by_id.get(transactional_id)
            known = None if kept is None else kept.transaction
            if (
                kept is None
                or known is None
                or kept.is_pending
                or kept.deadline_ms < now_ms
                or not is_committable(known, claim)
            ):
                bad.append(transactional_id)
                continue
            row = written_out.get(kept)
            if row is None or row.known is not known:
                decided = transaction.ended(known, True, wall_ms)
                assert isinstance(decided, Transaction)
                row = written_out[kept] = Row(kept, known, decided, entry_of(transactional_id, decided))
            rows.append(row)
        return tuple(bad) if bad else rows

    async def _decide(self, index: int, query: Query, decision: Decision, rows: list[Row]) -> Outcome:
        def in_force() -> None:
            query.last, query.is_pending = replace(decision, winners=()), False
            self.committed += 1
            self._queries.close(query)

        def is_written() -> None:
            self._queries.remember(index, query)
            query.is_pending = True

        changes = [(row.kept, row.decided) for row in rows]
        entries: list[Entry] = [decision_entry(query.key, decision), *(row.entry for row in rows)]
        error = await self._write(index, changes, entries, is_written, in_force)
        return Outcome(error, last=query.last)

    async def _write(
        self,
        index: int,
        changes: "list[Change]",
        entries: list[Entry] | None = None,
        is_written: Callable[[], None] = lambda: None,
        in_force: Callable[[], None] = lambda: None,
    ) -> ErrorCode:
        """Until it is committed. What is in the log stays there, also when the caller has waited long enough."""
        settled: asyncio.Future[ErrorCode] = self._broker.loop.create_future()

        def then(error: ErrorCode) -> None:
            if not error:
                in_force()
            if not settled.done():
                settled.set_result(error)

        refused = self._transactions.decide_together(index, changes, then, entries)
        if refused:
            return refused
        is_written()
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await settled
        except TimeoutError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
