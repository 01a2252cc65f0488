"""Batch jobs whose drivers say that they live: one whose driver falls silent holds nobody back."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.coordinators.commit_groups import Batch, CommitGroups, Outcome
from headrace.broker.coordinators.kept import Kept
from headrace.broker.coordinators.living_jobs import ROUND_MS, ROUNDS_MAX, LivingJobs
from headrace.core.commit_group import GIVEN_UP, Op
from headrace.core.transaction import State
from headrace.core.transactional_id import JOBS
from headrace.errors import ErrorCode
from headrace.wire.messages.commit_group import CommitGroupRequest, CommitGroupResponse
from tests.broker.batch_driver import SCOPE, Task
from tests.broker.trio import Scenario, Trio, play
from tests.broker.txn_owner import SETTINGS, Owner, committed_values, coordinator_of, make_ready, settled

JOB = "job-1"
SILENCE_S = (ROUNDS_MAX + 2) * ROUND_MS / 1000


def run(scenario: Scenario) -> None:
    async def main(trio: Trio) -> None:
        await make_ready(trio)
        await scenario(trio)

    play(main, SETTINGS, replicates=True)


async def asked(trio: Trio, op: Op, *tasks: Task, job: str = JOB, scope: str = JOBS) -> CommitGroupResponse:
    """Until there is an answer that stands."""
    request = CommitGroupRequest(
        op=op, scope=scope, query_id=job, batch_id=0, run_id=job, handles=[task.handle for task in tasks]
    )
    answers: list[CommitGroupResponse] = []

    async def ask() -> int:
        answers.append(await Owner(trio).ask(request, CommitGroupResponse))
        return answers[-1].error_code

    await settled(ask)
    return answers[-1]


async def written(trio: Trio, value: bytes, job: str = JOB) -> Task:
    return await Task(trio, 0, scope=JOBS, query=job, run=job).write(value, timeout_ms=900_000)


async def live(trio: Trio, seconds: float) -> None:
    """As a driver does."""
    for _ in range(int(seconds / 10)):
        assert not (await asked(trio, Op.ALIVE)).decided
        await asyncio.sleep(10)


async def state_of(trio: Trio, task: Task) -> State | None:
    """None when it is forgotten."""
    known = trio.broker(await coordinator_of(trio)).transactions.find(task.id)
    return known.transaction.state if isinstance(known, Kept) and known.transaction is not None else None


def test_a_job_whose_driver_falls_silent_is_given_up_and_cannot_be_committed_any_more() -> None:
    async def scenario(trio: Trio) -> None:
        assert not (await asked(trio, Op.ALIVE)).decided
        task = await written(trio, b"half")
        await live(trio, 120)
        assert await state_of(trio, task) is State.ONGOING
        await asyncio.sleep(SILENCE_S)
        assert await state_of(trio, task) in (State.COMPLETE_ABORT, None)
        assert (await asked(trio, Op.ALIVE)).decided
        answer = await asked(trio, Op.COMMIT, task)
        assert (answer.error_code, answer.decided, answer.last_run_id) == (0, True, GIVEN_UP)
        late = Task(trio, 0, 1, scope=JOBS, query=JOB, run=JOB)
        assert await settled(late.init) == ErrorCode.PRODUCER_FENCED
        assert await committed_values(trio) == []

    run(scenario)


def test_a_job_of_which_nobody_ever_said_that_it_lives_is_left_alone() -> None:
    async def scenario(trio: Trio) -> None:
        task = await written(trio, b"1")
        await asyncio.sleep(SILENCE_S)
        assert not (await asked(trio, Op.COMMIT, task)).decided
        assert await committed_values(trio) == [b"1"]

    run(scenario)


def test_a_coordinator_that_takes_over_gives_up_nobody_of_whom_it_has_not_heard() -> None:
    async def scenario(trio: Trio) -> None:
        task = await written(trio, b"1")
        await live(trio, 30)
        node = trio.world.nodes[await coordinator_of(trio) - 1]
        node.kill()
        await asyncio.sleep(SILENCE_S)  # in which the driver finds no coordinator
        await live(trio, 100)
        assert not (await asked(trio, Op.COMMIT, task)).decided
        assert await committed_values(trio) == [b"1"]

    run(scenario)


def test_a_job_that_is_committed_stays_so_when_nothing_is_heard_of_it_any_more() -> None:
    async def scenario(trio: Trio) -> None:
        task = await written(trio, b"1")
        await live(trio, 20)
        assert not (await asked(trio, Op.COMMIT, task)).decided
        await asyncio.sleep(SILENCE_S)
        answer = await asked(trio, Op.COMMIT, task)
        assert (answer.decided, answer.last_run_id) == (True, JOB)
        assert await committed_values(trio) == [b"1"]

    run(scenario)


def test_only_batch_jobs_are_kept_so() -> None:
    """A stream is started again: its batch must not be over."""

    async def scenario(trio: Trio) -> None:
        answer = await asked(trio, Op.ALIVE, scope=SCOPE)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message == "only drivers of batch jobs say that they live"

    run(scenario)


def test_a_node_that_stood_still_has_missed_one_round_however_long_that_was() -> None:
    jobs = LivingJobs()
    jobs.begin(0)
    jobs.heard(0, JOB)
    for _ in range(2):
        assert [jobs.silent() for _ in range(ROUNDS_MAX)] == [[]] * ROUNDS_MAX
        jobs.heard(0, JOB)
    for _ in range(ROUNDS_MAX):
        jobs.silent()
    assert jobs.silent() == jobs.silent() == [(0, JOB)]  # until it is over
    jobs.over(0, JOB)
    assert jobs.silent() == []


async def test_a_partition_that_takes_no_records_keeps_no_job_of_another_one_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = LivingJobs()
    for index in range(2):
        living.begin(index)
        for number in range(2):
            living.heard(index, f"{index}.{number}")
    asked_for: list[str] = []

    async def commit(_: CommitGroups, batch: Batch) -> Outcome:
        asked_for.append(batch.query)
        is_refusing = batch.query.startswith("0.")
        return Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE if is_refusing else ErrorCode.NONE)

    monkeypatch.setattr(CommitGroups, "commit", commit)
    nobody: Any = None
    queries: Any = SimpleNamespace(living=living)
    groups = CommitGroups(nobody, nobody, queries)
    for _ in range(ROUNDS_MAX + 1):
        await groups.give_up_silent_jobs()
    assert asked_for == ["0.0", "1.0", "1.1"]
    await groups.give_up_silent_jobs()
    assert asked_for[3:] == ["0.0"]


async def test_a_partition_that_takes_long_holds_up_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    living = LivingJobs()
    for index in range(2):
        living.begin(index)
        for number in range(2):
            living.heard(index, f"{index}.{number}")
    asked_for: list[str] = []
    others_are_over = asyncio.Event()

    async def commit(_: CommitGroups, batch: Batch) -> Outcome:
        asked_for.append(batch.query)
        if batch.query == "1.1":
            others_are_over.set()
        elif batch.query.startswith("0."):
            await others_are_over.wait()
        return Outcome(ErrorCode.NONE)

    monkeypatch.setattr(CommitGroups, "commit", commit)
    nobody: Any = None
    queries: Any = SimpleNamespace(living=living)
    groups = CommitGroups(nobody, nobody, queries)
    for _ in range(ROUNDS_MAX):
        living.silent()
    async with asyncio.timeout(20):
        await groups.give_up_silent_jobs()
    assert asked_for == ["0.0", "1.0", "1.1", "0.1"]
    assert living.silent() == []
