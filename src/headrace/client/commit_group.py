"""`CommitGroups`: the transactions of all tasks of one batch of a query are committed together, and once.

Each attempt at a task writes with a producer of its own, whose transactional id says whose it is, and hands its
transaction over (`Producer.handle`). Whoever drives the batch commits the handles that are to count. All may be asked
again and again, also by another driver: a batch that is committed stays so, and its rivals are never read.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators, KeyType
from headrace.client.errors import NotReachable, TimedOut
from headrace.client.outside import Outside
from headrace.client.transactions import ELSEWHERE, Handle
from headrace.core.commit_group import NO_BATCH, Op
from headrace.core.transactional_id import JOBS, query_key
from headrace.core.transactional_id import attempt_id as transactional_id
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.errors import ProtocolError
from headrace.wire.messages.commit_group import CommitGroupRequest, CommitGroupResponse, GroupHandle

__all__ = ["NO_BATCH", "BatchRefused", "CommitGroups", "Decided", "Handle", "Last", "transactional_id"]


class Decided(NamedTuple):
    already: bool
    """The batch had been committed before: by whomever, and be it by this very call, whose answer was lost."""
    last_committed: int
    run_id: str | None
    """Which run committed that one."""


class Last(NamedTuple):
    """Of the batches of a query."""

    batch_id: int
    """NO_BATCH when there is none."""
    run_id: str | None
    """Which run committed it."""


class BatchRefused(KafkaError):
    """Nothing of the batch was committed: attempts of it have timed out, or belong to somebody else."""

    def __init__(self, message: str, bad_handles: Sequence[str]) -> None:
        super().__init__(ErrorCode.INVALID_TXN_STATE, message)
        self.bad_handles = tuple(bad_handles)


class CommitGroups:
    """An async context manager."""

    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_ms: int = 120_000,
        client_id: str = "headrace",
        outside: Outside | None = None,
    ) -> None:
        """`timeout_ms`: how long each call tries, through elections of coordinators."""
        self._cluster = Cluster(bootstrap, client_id, outside or Outside(), creates_topics=False)
        self._coordinators = Coordinators(self._cluster)
        self._timeout_ms = timeout_ms

    async def __aenter__(self) -> "CommitGroups":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._cluster.close()

    async def is_offered(self) -> bool:
        """Whether the cluster can do this at all: Apache Kafka cannot."""
        with self._cluster.tries(self._timeout_ms) as tries:
            while True:
                try:
                    peer = await tries.attempt(self._cluster.any_peer(), "no broker answered")
                    peer.version_of(CommitGroupRequest)
                    return True
                except ProtocolError:
                    return False
                except NotReachable as error:
                    await tries.again(error)

    async def last_committed(self, scope: str, query_id: str) -> int:
        """The last batch of the query; -1 when there is none."""
        return (await self.last(scope, query_id)).batch_id

    async def last(self, scope: str, query_id: str) -> Last:
        request = CommitGroupRequest(op=Op.QUERY, scope=scope, query_id=query_id)
        answer = await self._ask(request, f"the last batch of query {query_id} was not told")
        return Last(answer.last_committed, answer.last_run_id)

    async def alive(self, job: str) -> bool:
        """Says that the driver of a batch job lives, from which on brokers give the job up if they hear nothing of it
        for a minute. Whether the job is over."""
        request = CommitGroupRequest(op=Op.ALIVE, scope=JOBS, query_id=job)
        return (await self._ask(request, f"that the driver of job {job} lives was not told")).decided

    async def commit(self, scope: str, query_id: str, batch_id: int, run_id: str, handles: Sequence[Handle]) -> Decided:
        """All of them become readable, and everything else that was written for the batch never does.

        BatchRefused: nothing was committed. TimedOut: it is not known; commit it again.
        """
        request = _request(Op.COMMIT, scope, query_id, batch_id, run_id, handles)
        return _decided(await self._ask(request, f"batch {batch_id} of query {query_id} was not committed"))

    async def abort(self, scope: str, query_id: str, batch_id: int, run_id: str, handles: Sequence[Handle]) -> Decided:
        """Nothing of them is ever read; unless the batch is committed, which is never undone (`already`)."""
        request = _request(Op.ABORT, scope, query_id, batch_id, run_id, handles)
        return _decided(await self._ask(request, f"batch {batch_id} of query {query_id} was not aborted"))

    async def _ask(self, request: CommitGroupRequest, what: str) -> CommitGroupResponse:
        key = query_key(request.scope, request.query_id)
        with self._cluster.tries(self._timeout_ms) as tries:
            while True:
                try:
                    answer = await tries.attempt(
                        self._coordinators.ask(KeyType.TRANSACTION, key, request, CommitGroupResponse), what
                    )
                    if not answer.error_code:
                        return answer
                    error = _error_of(answer, what)
                except TimedOut:
                    raise
                except NotReachable as lost:
                    await tries.again(f"{what}: {lost}")
                    continue
                except KafkaError as failed:
                    error = failed
                if error.code in ELSEWHERE:
                    self._coordinators.forget(KeyType.TRANSACTION, key)
                if not error.retriable:
                    raise error
                await tries.again(f"{what}: {error}")


def _request(
    op: Op, scope: str, query_id: str, batch_id: int, run_id: str, handles: Sequence[Handle]
) -> CommitGroupRequest:
    return CommitGroupRequest(
        op=op,
        scope=scope,
        query_id=query_id,
        batch_id=batch_id,
        run_id=run_id,
        handles=[
            GroupHandle(transactional_id=one.transactional_id, producer_id=one.producer_id, producer_epoch=one.epoch)
            for one in handles
        ],
    )


def _decided(answer: CommitGroupResponse) -> Decided:
    return Decided(answer.decided, answer.last_committed, answer.last_run_id)


def _error_of(answer: CommitGroupResponse, what: str) -> KafkaError:
    reason = answer.error_message
    if answer.error_code == ErrorCode.INVALID_TXN_STATE:
        return BatchRefused(f"{what}: {reason or 'attempts of it are not open any more'}", answer.bad_handles)
    return KafkaError(answer.error_code, what if reason is None else f"{what}: {reason}")
