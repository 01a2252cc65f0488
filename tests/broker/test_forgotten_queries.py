"""What a coordinator forgets of Spark queries, and when."""

import asyncio
from functools import partial

import pytest

from headrace.broker.coordinators.kept import Kept
from headrace.broker.coordinators.queries import JOB_KEPT_TIMES
from headrace.core.commit_group import Op
from headrace.core.transactional_id import JOBS, PLACES
from headrace.wire.messages.commit_group import CommitGroupRequest, CommitGroupResponse
from tests.broker.batch_driver import QUERY, SCOPE, Task, committed, last_committed, written
from tests.broker.trio import Scenario, Trio, play
from tests.broker.txn_owner import SETTINGS, Owner, coordinator_of, first_of, make_ready, settled

LASTS_S_MAX = 20
"""Of a transaction."""


def run(scenario: Scenario, settings: dict[str, str]) -> None:
    async def main(trio: Trio) -> None:
        await make_ready(trio)
        await scenario(trio)

    often = {"transaction.remove.expired.transaction.cleanup.interval.ms": "1000"}
    play(main, {**SETTINGS, **often, **settings}, replicates=True)


@pytest.mark.parametrize("retention_ms", [-1, 20_000])
def test_the_last_batch_is_remembered_for_ever_unless_somebody_says_for_how_long(retention_ms: int) -> None:
    async def scenario(trio: Trio) -> None:
        task = await written(trio, 3, b"1")
        assert not await committed(trio, 3, task)
        await asyncio.sleep(15)
        assert await last_committed(trio) == 3
        await asyncio.sleep(15)
        expected = 3 if retention_ms < 0 else -1
        assert await last_committed(trio) == expected
        trio.world.nodes[await coordinator_of(trio) - 1].kill()
        assert await last_committed(trio) == expected

    run(scenario, {"commit.group.retention.ms": str(retention_ms)})


async def do_job(trio: Trio, job: str) -> None:
    task = await Task(trio, 0, scope=JOBS, query=job).write(b"1", timeout_ms=1_000)
    request = CommitGroupRequest(op=Op.COMMIT, scope=JOBS, query_id=job, batch_id=0, run_id=job, handles=[task.handle])
    assert (await Owner(trio).ask(request, CommitGroupResponse)).error_code == 0


async def queries_at_coordinator(trio: Trio) -> dict[str, int]:
    """With how many producer ids they have left over."""
    transactions = trio.broker(await coordinator_of(trio)).transactions
    await trio.until(lambda: len(transactions) == 0)
    return {query.key: len(query.spent) for _, query in transactions.queries}


def test_a_batch_job_is_forgotten_when_none_of_its_tasks_can_be_left_and_a_query_is_not() -> None:
    """There may be thousands of jobs in a day, each under an id of its own."""

    async def scenario(trio: Trio) -> None:
        for job in ("job-1", "job-2"):
            await do_job(trio, job)
        assert not await committed(trio, 0, await written(trio, 0, b"2", timeout_ms=1_000))
        jobs = {f"hr1:{JOBS}:job-1": 0, f"hr1:{JOBS}:job-2": 0}
        assert await queries_at_coordinator(trio) == {**jobs, f"hr1:{SCOPE}:{QUERY}": 1}
        await asyncio.sleep(JOB_KEPT_TIMES * LASTS_S_MAX + 5)
        assert await queries_at_coordinator(trio) == {f"hr1:{SCOPE}:{QUERY}": 1}
        trio.world.nodes[await coordinator_of(trio) - 1].kill()
        assert await queries_at_coordinator(trio) == {f"hr1:{SCOPE}:{QUERY}": 0}

    run(scenario, {"transaction.max.timeout.ms": str(LASTS_S_MAX * 1_000)})


def test_aborted_attempts_of_a_query_that_fails_again_and_again_are_forgotten_soon() -> None:
    """Each start of it leaves one for each task, under ids that nobody ever uses again."""

    async def scenario(trio: Trio) -> None:
        transactions = trio.broker(await coordinator_of(trio)).transactions
        waiting, ordinary = Task(trio, 7, 1), Owner(trio)
        for owner in (waiting, ordinary):
            assert await settled(partial(owner.init, timeout_ms=10_000)) == 0
        assert await settled(lambda: first_of(ordinary.add(0))) == 0
        assert await settled(lambda: ordinary.end(commit=False)) == 0
        for run_id in ("run-1", "run-2"):
            failed = await written(trio, 7, b"1", run=run_id, timeout_ms=1_000)
            assert await settled(partial(failed.end, commit=False)) == 0
        assert len(transactions) == 4
        await trio.until(lambda: len(transactions) == 2)
        assert isinstance(transactions.find(ordinary.id), Kept)
        assert await settled(lambda: first_of(waiting.add(0))) == 0  # it had only begun late
        assert not await committed(trio, 7, waiting)

    run(scenario, {"transaction.max.timeout.ms": str(LASTS_S_MAX * 1_000)})


def test_the_place_of_a_checkpoint_is_remembered_while_somebody_asks_for_it_and_not_much_longer() -> None:
    """It is written once, when its query begins, and a query may run for years."""

    async def asked(trio: Trio, query: str) -> bool:
        """Whether it was known. If not it is now."""
        request = CommitGroupRequest(op=Op.COMMIT, scope=PLACES, query_id=query, batch_id=0, run_id="place")
        answer = await Owner(trio).ask(request, CommitGroupResponse)
        assert answer.error_code == 0
        return answer.decided

    async def scenario(trio: Trio) -> None:
        for query in ("runs on", "has ended"):
            assert not await asked(trio, query)
        for _ in range(3):
            await asyncio.sleep(15)
            assert await asked(trio, "runs on")
        assert await queries_at_coordinator(trio) == {f"hr1:{PLACES}:runs on": 0}
        await asyncio.sleep(15)
        trio.world.nodes[await coordinator_of(trio) - 1].kill()
        await coordinator_of(trio)
        await asyncio.sleep(15)
        assert await asked(trio, "runs on")
        await asyncio.sleep(25)
        assert not await asked(trio, "runs on")

    run(scenario, {"commit.group.retention.ms": "20000"})
