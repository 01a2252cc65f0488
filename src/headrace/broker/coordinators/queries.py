"""Spark queries as their coordinator knows them: which batch was committed last, and who is at work on which one.

What is begun for a batch that is over is aborted, for it would hold back whoever reads what is committed, and then
forgotten: each attempt has a transactional id of its own, and there may be thousands of them for each batch.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from headrace.broker.broker import Broker
from headrace.broker.coordinators.kept import Kept
from headrace.broker.coordinators.living_jobs import LivingJobs
from headrace.core import transaction
from headrace.core.commit_group import Decision, decision_tombstone, is_over, read_decision
from headrace.core.transaction import RESTING, Claim, State, Transaction
from headrace.core.transactional_id import Attempt, is_job, is_place
from headrace.errors import ErrorCode
from headrace.model import Buffer

if TYPE_CHECKING:
    from headrace.broker.coordinators.transactions import Change, Transactions

QUERIES_MAX: Final = 100_000
"""That one node remembers. One more is refused (44)."""
SLICE: Final = 200
"""Attempts that one turn of the loop aborts."""
SPENT_MAX: Final = 10_000
"""Producer ids of a query that are kept to be used again."""
JOB_KEPT_TIMES: Final = 3
"""A batch job is remembered for so many times as long as a transaction can last: its zombies are gone by then."""


class Query:
    __slots__ = ("asked_ms", "attempts", "is_job", "is_pending", "key", "last", "spent")

    def __init__(self, key: str) -> None:
        self.key = key
        self.is_job = is_job(key)
        """It has one batch, and never another."""
        self.asked_ms = 0
        """When somebody last wanted to know of it, or this leadership began."""
        self.last: Decision | None = None
        self.is_pending = False
        """A decision is in the log, and not committed."""
        self.attempts: dict[int, dict[Kept, None]] = {}
        """All that are known, by their batches."""
        self.spent: list[Claim] = []
        """Producer ids of attempts that are over and forgotten, with the last epoch that was in use."""

    def is_over(self, batch_id: int) -> bool:
        return is_over(self.last, batch_id)


class Queries:
    def __init__(self, broker: Broker, transactions: "Transactions") -> None:
        self._broker = broker
        self._transactions = transactions
        self._queries: dict[int, dict[str, Query]] = {}
        self._superseded: dict[Kept, None] = {}
        """Open, at batches that are over: they are about to be aborted."""
        self._finished: dict[Kept, None] = {}
        """At rest, at batches that are over: nobody needs them any more."""
        self.living = LivingJobs()
        self.superseded = 0

    def __len__(self) -> int:
        return sum(map(len, self._queries.values()))

    def __iter__(self) -> Iterator[tuple[int, Query]]:
        for index in self._transactions.log.led_indexes:
            for query in self._queries[index].values():
                yield index, query

    def find(self, index: int, name: str) -> Query | None:
        """For somebody who wants to know of it."""
        query = self._queries[index].get(name)
        if query is not None:
            query.asked_ms = self._broker.clock.wall_ms()
        return query

    def is_due(self, index: int, query: Query, now_ms: int) -> bool:
        """It has been remembered for long enough: for ever by default, unless it was a job."""
        last = query.last
        if (
            last is None
            or query.attempts
            or query.is_pending
            or self._queries.get(index, {}).get(query.key) is not query
        ):
            return False
        config = self._broker.config
        kept_ms = [config.commit_group_retention_ms] if config.commit_group_retention_ms >= 0 else []
        if query.is_job:
            kept_ms.append(JOB_KEPT_TIMES * config.transaction_max_timeout_ms)
        # The place of a checkpoint is written once, and its query asks for it for as long as it runs.
        heard_ms = max(last.decided_ms, query.asked_ms) if is_place(query.key) else last.decided_ms
        return bool(kept_ms) and heard_ms <= now_ms - min(kept_ms)

    def remember(self, index: int, query: Query) -> None:
        self._queries[index][query.key] = query

    # Leaderships.

    def begin(self, index: int) -> None:
        self._queries[index] = {}
        self.living.begin(index)

    def replay(self, index: int, key: Buffer | None, value: Buffer | None) -> None:
        read = read_decision(key, value)
        if read is None:
            return
        name, decision = read
        if decision is None:
            self._queries[index].pop(name, None)
        else:
            query = self._queries[index].setdefault(name, Query(name))
            query.last, query.asked_ms = decision, self._broker.clock.wall_ms()

    def ended(self, index: int) -> None:
        self.living.ended(index)
        for query in self._queries.pop(index, {}).values():
            for kept in (kept for attempts in query.attempts.values() for kept in attempts):
                self._superseded.pop(kept, None)
                self._finished.pop(kept, None)

    # Attempts.

    def refusal(self, index: int, attempt: Attempt, *, is_new: bool) -> ErrorCode:
        """Why an attempt may not begin, or go on."""
        query = self._queries[index].get(attempt.query)
        if query is None:
            return ErrorCode.POLICY_VIOLATION if is_new and len(self) >= QUERIES_MAX else ErrorCode.NONE
        if query.is_over(attempt.batch_id):
            return ErrorCode.PRODUCER_FENCED
        known = query.attempts.get(attempt.batch_id, {})
        attempts_max = self._broker.config.commit_group_max_attempts
        if is_new and len(known) >= attempts_max and sum(map(_is_open, known)) >= attempts_max:
            return ErrorCode.POLICY_VIOLATION
        return ErrorCode.NONE

    def opened(self, kept: Kept) -> None:
        """An id that was not known before."""
        attempt = kept.attempt
        if attempt is not None:
            query = self._queries[kept.index].setdefault(attempt.query, Query(attempt.query))
            query.attempts.setdefault(attempt.batch_id, {})[kept] = None

    def noted(self, kept: Kept) -> None:
        """Another state of it is in force."""
        attempt, known = kept.attempt, kept.transaction
        assert attempt is not None and known is not None
        self.opened(kept)
        self._finished.pop(kept, None)
        if self._queries[kept.index][attempt.query].is_over(attempt.batch_id):
            self._clear_away(kept, known)

    def dropped(self, kept: Kept) -> None:
        attempt = kept.attempt
        # A disk that fails just now has ended the leadership.
        query = None if attempt is None else self._queries.get(kept.index, {}).get(attempt.query)
        if attempt is None or query is None:
            return
        self._finished.pop(kept, None)
        attempts = query.attempts.get(attempt.batch_id, {})
        attempts.pop(kept, None)
        if not attempts:
            query.attempts.pop(attempt.batch_id, None)
        if not query.attempts and query.last is None and not query.is_pending:
            del self._queries[kept.index][query.key]

    def forgotten(self, kept: Kept) -> None:
        """As `dropped`, and the log says so. Whoever reads it knows nothing of the producer id, nor does anybody else,
        so that it can be given to another attempt of the query, for as long as this leadership lasts."""
        attempt, known = kept.attempt, kept.transaction
        self.dropped(kept)
        query = None if attempt is None else self._queries[kept.index].get(attempt.query)
        if attempt is None or query is None or known is None or not query.is_over(attempt.batch_id):
            return
        if not query.is_job and len(query.spent) < SPENT_MAX and known.epoch + 1 < transaction.EXHAUSTED_EPOCH:
            query.spent.append(Claim(known.producer_id, known.epoch))

    def take_spent(self, index: int, attempt: Attempt) -> Claim | None:
        query = self._queries[index].get(attempt.query)
        return query.spent.pop() if query is not None and query.spent else None

    def is_superseded(self, kept: Kept) -> bool:
        """Its batch is over: no time has to pass until it is aborted."""
        attempt = kept.attempt
        query = None if attempt is None else self._queries[kept.index].get(attempt.query)
        return attempt is not None and query is not None and query.is_over(attempt.batch_id)

    # What is left of batches that are over.

    def close(self, query: Query) -> None:
        """Its last batch is another one."""
        for batch_id in [batch_id for batch_id in query.attempts if query.is_over(batch_id)]:
            for kept in query.attempts[batch_id]:
                if kept.transaction is not None and not kept.is_pending:
                    self._clear_away(kept, kept.transaction)

    def _clear_away(self, kept: Kept, known: Transaction) -> None:
        if known.state is State.ONGOING:
            if not self._superseded:
                self._broker.loop.call_soon(self._abort_superseded)
            self._superseded[kept] = None
        elif known.state in RESTING:
            self._finished[kept] = None

    def _abort_superseded(self) -> None:
        """They hold back whoever reads what is committed. What the log does not take now the next sweep finds."""
        due = list(islice(self._superseded, SLICE))
        by_index: dict[int, list[Change]] = {}
        now_ms = self._broker.clock.wall_ms()
        for kept in due:
            del self._superseded[kept]
            known = kept.transaction
            if known is not None and known.state is State.ONGOING and not kept.is_pending:
                by_index.setdefault(kept.index, []).append((kept, transaction.fenced(known, now_ms)))
        for index, changes in by_index.items():
            if not self._transactions.decide_together(index, changes, _nobody_waits):
                self.superseded += len(changes)
        if self._superseded:
            self._broker.loop.call_soon(self._abort_superseded)

    def finished(self) -> list[Kept]:
        """Ids that nobody can use any more: to be forgotten."""
        return [kept for kept in self._finished if not kept.is_pending]

    def forget(self, index: int, queries: Sequence[Query]) -> ErrorCode:
        """Queries that have not been heard of for long, all of one partition."""

        def forgotten(error: ErrorCode) -> None:
            if not error:
                for query in queries:
                    query.is_pending, query.last = False, None
                    if not query.attempts:
                        self._queries[index].pop(query.key, None)

        refused = self._transactions.log.append(index, [decision_tombstone(query.key) for query in queries], forgotten)
        for query in queries:
            query.is_pending = not refused
        return refused


def _is_open(kept: Kept) -> bool:
    return kept.transaction is None or kept.transaction.state not in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


def _nobody_waits(_: ErrorCode) -> None:
    pass
