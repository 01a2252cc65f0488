"""Drivers and tasks of a Spark query without opinions of their own, on three nodes in virtual time."""

from collections.abc import Sequence

from headrace.core.commit_group import Op
from headrace.core.transactional_id import attempt_id
from headrace.wire.messages.commit_group import CommitGroupRequest, CommitGroupResponse, GroupHandle
from tests.broker.trio import Trio
from tests.broker.txn_owner import Owner, first_of, settled

SCOPE, QUERY = "jobs", "query-1"
RUN = "run-1"


class Task(Owner):
    """One attempt at one task."""

    def __init__(
        self,
        trio: Trio,
        batch_id: int,
        task: int = 0,
        *,
        run: str = RUN,
        number: int = 0,
        scope: str = SCOPE,
        query: str = QUERY,
    ) -> None:
        super().__init__(trio, attempt_id(scope, query, batch_id, task, run, number))
        self.batch_id = batch_id

    @property
    def handle(self) -> GroupHandle:
        return GroupHandle(
            transactional_id=self.id, producer_id=self.claim.producer_id, producer_epoch=self.claim.epoch
        )

    async def write(self, *values: bytes, partition: int = 0, timeout_ms: int = 60_000) -> "Task":
        """Everything that a task does: it leaves its transaction open."""
        assert await settled(lambda: self.init(timeout_ms=timeout_ms)) == 0
        assert await settled(lambda: first_of(self.add(partition))) == 0
        assert await settled(lambda: self.produce(values, partition)) == 0
        return self


async def written(
    trio: Trio, batch_id: int, *values: bytes, task: int = 0, run: str = RUN, number: int = 0, timeout_ms: int = 60_000
) -> Task:
    return await Task(trio, batch_id, task, run=run, number=number).write(*values, timeout_ms=timeout_ms)


def request_of(op: Op, batch_id: int = -1, tasks: Sequence[Task] = (), run: str = RUN) -> CommitGroupRequest:
    handles = [task.handle for task in tasks]
    return CommitGroupRequest(op=op, scope=SCOPE, query_id=QUERY, batch_id=batch_id, run_id=run, handles=handles)


async def asked(
    trio: Trio, op: Op, batch_id: int = -1, tasks: Sequence[Task] = (), run: str = RUN, at: int | None = None
) -> CommitGroupResponse:
    """Once."""
    return await Owner(trio).ask(request_of(op, batch_id, tasks, run), CommitGroupResponse, at=at)


async def group_settled(
    trio: Trio, op: Op, batch_id: int = -1, tasks: Sequence[Task] = (), run: str = RUN
) -> CommitGroupResponse:
    """Asked again while it is too early to tell, as a client does."""
    answers: list[CommitGroupResponse] = []

    async def ask() -> int:
        answers.append(await asked(trio, op, batch_id, tasks, run))
        return answers[-1].error_code

    await settled(ask)
    return answers[-1]


async def committed(trio: Trio, batch_id: int, *tasks: Task, run: str = RUN) -> bool:
    """Whether it had been decided before."""
    answer = await group_settled(trio, Op.COMMIT, batch_id, tasks, run)
    assert answer.error_code == 0, answer
    assert answer.last_committed >= batch_id
    return answer.decided


async def last_committed(trio: Trio) -> int:
    answer = await group_settled(trio, Op.QUERY)
    assert answer.error_code == 0
    return answer.last_committed
