"""The coordinator dies, or is cut off, around the decision on a batch: what comes of it is what the log says."""

import asyncio
from collections.abc import Callable

import pytest

from headrace.broker.coordinators import transactions as coordinator
from headrace.core.commit_group import Op
from headrace.core.transaction import Claim, State
from headrace.core.transactional_id import query_key
from headrace.errors import ErrorCode
from headrace.wire.messages.commit_group import CommitGroupResponse
from tests.broker.asking import TOPIC
from tests.broker.batch_driver import (
    QUERY,
    RUN,
    SCOPE,
    Task,
    asked,
    committed,
    group_settled,
    last_committed,
    written,
)
from tests.broker.dying import COMMITTED, HOWS, WRITTEN, begins, die_in
from tests.broker.trio import Scenario, Trio, play
from tests.broker.txn_owner import (
    SETTINGS,
    alone,
    committed_values,
    coordinator_of,
    first_of,
    is_coordinating,
    make_ready,
    no_marker_leaves,
    other_nodes,
    settled,
    until_in_state,
)


def run(scenario: Scenario, settings: dict[str, str] | None = None) -> None:
    async def main(trio: Trio) -> None:
        await make_ready(trio)
        await scenario(trio)

    play(main, {**SETTINGS, **(settings or {})}, replicates=True)


def is_decided(trio: Trio, node_id: int) -> Callable[[], bool]:
    def holds() -> bool:
        query = trio.broker(node_id).transactions.queries.find(0, query_key(SCOPE, QUERY))
        return query is not None and query.last is not None

    return holds


@pytest.mark.parametrize("rival_first", [False, True])
@pytest.mark.parametrize("how", HOWS)
def test_it_dies_when_a_batch_is_decided(how: str, rival_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tcg-2, whether or not another driver is the first to ask its successor."""

    async def scenario(trio: Trio) -> None:
        ours = [await written(trio, 5, b"ours", task=task) for task in range(3)]
        theirs = [await written(trio, 5, b"theirs", task=task, run="run-2") for task in range(3)]
        node_id = await coordinator_of(trio)
        no_marker_leaves(trio, node_id, monkeypatch)
        await die_in(trio, how, begins(lambda: asked(trio, Op.COMMIT, 5, ours)), is_decided(trio, node_id))
        expected = b"theirs" if how == WRITTEN and rival_first else b"ours"
        if rival_first:
            assert await committed(trio, 5, *theirs, run="run-2") == (how != WRITTEN)
        assert await committed(trio, 5, *ours) == (how != WRITTEN or rival_first)
        assert await committed(trio, 5, *theirs, run="run-2")
        assert await last_committed(trio) == 5
        assert await committed_values(trio) == [expected] * 3

    run(scenario)


def test_it_dies_when_some_markers_are_written_and_some_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tcg-2."""

    async def scenario(trio: Trio) -> None:
        tasks = [await written(trio, 5, b"%d" % task, task=task) for task in range(3)]
        loser = await written(trio, 5, b"loser", task=0, number=9, timeout_ms=900_000)
        node_id = await coordinator_of(trio)
        markers = trio.broker(node_id).transactions.markers
        send, begun = markers.send, 0

        def send_one(ending: object) -> None:
            nonlocal begun
            begun += 1
            if begun == 1:
                send(ending)  # type: ignore[arg-type]  # passed on as it came

        monkeypatch.setattr(markers, "send", send_one)
        assert (await asked(trio, Op.COMMIT, 5, tasks)).error_code == 0
        await until_in_state(trio, State.COMPLETE_COMMIT, tasks[0].id)
        trio.world.nodes[node_id - 1].kill()
        assert sorted(await committed_values(trio)) == [b"0", b"1", b"2"]
        await until_in_state(trio, State.COMPLETE_ABORT, loser.id)
        assert await committed(trio, 5, *tasks)

    run(scenario)


@pytest.mark.parametrize("how", HOWS)
def test_it_dies_before_the_others_of_a_decided_batch_are_aborted(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one finds the decision in the log, and does it: nobody waits until their time is over."""

    async def scenario(trio: Trio) -> None:
        loser = await written(trio, 4, b"loser", number=1, timeout_ms=900_000)
        winner = await written(trio, 5, b"winner")
        node_id = await coordinator_of(trio)
        monkeypatch.setattr(trio.broker(node_id).transactions.queries, "close", lambda _: None)
        await die_in(trio, how, begins(lambda: asked(trio, Op.COMMIT, 5, [winner])), is_decided(trio, node_id))
        assert await committed(trio, 5, winner) == (how != WRITTEN)
        await until_in_state(trio, State.COMPLETE_ABORT, loser.id)
        assert await committed_values(trio) == [b"winner"]

    run(scenario)


@pytest.mark.parametrize("abort", [False, True])
def test_a_decision_that_is_written_and_not_committed_has_no_second_outcome(abort: bool) -> None:
    """Tcg-9: the append times out, and whoever asks again ends in the first one's result."""

    async def scenario(trio: Trio) -> None:
        ours = [await written(trio, 5, b"ours", task=task) for task in range(2)]
        theirs = [await written(trio, 5, b"theirs", task=task, run="run-2") for task in range(2)]
        node_id = await coordinator_of(trio)
        alone(trio, node_id)
        query = trio.broker(node_id).transactions.queries.find(0, query_key(SCOPE, QUERY))
        assert query is not None
        first = asyncio.ensure_future(asked(trio, Op.COMMIT, 5, ours, at=node_id))
        await trio.until(lambda: query.is_pending)
        for op, tasks in ((Op.COMMIT, theirs), (Op.COMMIT, ours), (Op.ABORT, ours)):
            other = await asked(trio, op, 5, tasks, "run-2", at=node_id)
            assert other.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        told = await asked(trio, Op.QUERY, at=node_id)
        assert (told.error_code, told.last_committed) == (0, -1), "what is not committed is not told"
        assert (await first).error_code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
        trio.world.network.heal_all()
        if abort:
            await group_settled(trio, Op.ABORT, 5, ours)
            again = await group_settled(trio, Op.COMMIT, 5, ours)
        else:
            again = await group_settled(trio, Op.COMMIT, 5, theirs, "run-2")
        last = await group_settled(trio, Op.QUERY)
        values = await committed_values(trio)
        if again.error_code:  # the leadership went elsewhere before it was committed, and the abort came first
            assert (abort, last.last_committed, values) == (True, -1, [])
        else:
            assert last.last_committed == 5
            assert values == [b"ours" if last.last_run_id == RUN else b"theirs"] * 2

    run(scenario)


def test_a_decision_that_is_committed_late_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tcg-9: the driver has heard 15, and asks again."""
    monkeypatch.setattr("headrace.broker.coordinators.commit_groups.ANSWER_S_MAX", 0.5)

    async def scenario(trio: Trio) -> None:
        task, rival = await written(trio, 5, b"ours"), await written(trio, 5, b"theirs", run="run-2")
        node_id = await coordinator_of(trio)
        alone(trio, node_id)
        answer = await asked(trio, Op.COMMIT, 5, [task], at=node_id)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        trio.world.network.heal_all()
        assert is_coordinating(trio, node_id)
        assert await committed(trio, 5, rival, run="run-2")
        assert await committed(trio, 5, task)
        assert await committed_values(trio) == [b"ours"]

    run(scenario)


def test_one_that_was_paused_decides_nothing_when_it_wakes() -> None:
    async def scenario(trio: Trio) -> None:
        ours, theirs = await written(trio, 5, b"ours"), await written(trio, 5, b"theirs", run="run-2")
        old = trio.world.nodes[await coordinator_of(trio) - 1]
        old.pause()
        await trio.until(lambda: any(is_coordinating(trio, other) for other in other_nodes(old.node_id)))
        assert not await committed(trio, 5, theirs, run="run-2")
        old.resume()
        late = await asked(trio, Op.COMMIT, 5, [ours], at=old.node_id)
        assert late.error_code in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )
        assert await committed(trio, 5, ours)
        assert await committed_values(trio) == [b"theirs"]

    run(scenario)


@pytest.mark.parametrize(("how", "count"), [(COMMITTED, 10_000), (WRITTEN, 1_500)])
def test_thousands_of_tasks_are_one_batch(how: str, count: int) -> None:
    """Tcg-5: all of them are committed, or none; and nothing is left of them afterwards."""

    async def scenario(trio: Trio) -> None:
        node_id = await coordinator_of(trio)
        tasks = [Task(trio, 5, number, number=number) for number in range(count)]
        await _open_all(trio, node_id, tasks)
        answers: list[CommitGroupResponse] = []

        async def ask() -> None:
            answers.append(await asked(trio, Op.COMMIT, 5, tasks))

        if how == WRITTEN:
            await die_in(trio, how, begins(ask), is_decided(trio, node_id))
            assert await last_committed(trio) == -1
            assert not await committed(trio, 5, *tasks)
        else:
            await ask()
            assert (answers[0].error_code, answers[0].decided) == (0, False)
            trio.world.nodes[node_id - 1].kill()
            assert await committed(trio, 5, *tasks)
        transactions = trio.broker(await coordinator_of(trio)).transactions
        await trio.until(lambda: len(transactions) == 0, within_s=300)
        assert await committed_values(trio) == []
        assert await settled(Task(trio, 5, 1).init) == ErrorCode.PRODUCER_FENCED

    run(scenario)


async def _open_all(trio: Trio, node_id: int, tasks: list[Task]) -> None:
    """Without the wire: a producer for each would take its time."""
    transactions = trio.broker(node_id).transactions
    left = len(tasks)

    def opened(error: ErrorCode) -> None:
        nonlocal left
        assert not error
        left -= 1

    def begun(task: Task) -> coordinator.ThenClaim:
        def then(error: ErrorCode, claim: Claim) -> None:
            assert not error
            task.claim = claim
            transactions.add_partitions(task.id, claim, frozenset({(TOPIC, 0)}), opened)

        return then

    waiting = list(tasks)
    while waiting:
        now, waiting = waiting[:500], waiting[500:]
        for task in now:
            transactions.init(task.id, None, 600_000, begun(task))
        await _until_left(trio, lambda: left, len(waiting))


async def _until_left(trio: Trio, left: Callable[[], int], count: int) -> None:
    await trio.until(lambda: left() == count)


def test_a_coordinator_that_was_cut_off_refuses_no_batch_of_which_another_one_knows() -> None:
    """Its lease is over: what it does not know of may be open elsewhere."""

    async def scenario(trio: Trio) -> None:
        assert not await committed(trio, 4, await written(trio, 4, b"first"))
        old = await coordinator_of(trio)
        alone(trio, old)
        trio.store(old).unavailable = True
        await trio.until(lambda: any(is_coordinating(trio, other) for other in other_nodes(old)))
        assert is_coordinating(trio, old) and not trio.broker(old).controller.lease_valid()
        task = Task(trio, 5)
        task.at = next(other for other in other_nodes(old) if is_coordinating(trio, other))
        assert await settled(lambda: task.init(timeout_ms=600_000)) == 0
        assert await settled(lambda: first_of(task.add(0))) == 0
        for op in (Op.COMMIT, Op.ABORT):
            assert (await asked(trio, op, 5, [task], at=old)).error_code == ErrorCode.NOT_COORDINATOR
        known = await asked(trio, Op.COMMIT, 4, [], at=old)
        assert (known.error_code, known.decided) == (0, True)
        assert (await asked(trio, Op.COMMIT, 5, [task], at=task.at)).error_code == 0
        assert (await asked(trio, Op.QUERY, at=task.at)).last_committed == 5
        assert (await asked(trio, Op.QUERY, at=old)).error_code == ErrorCode.NOT_COORDINATOR

    run(scenario)
