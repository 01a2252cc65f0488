"""Batches of a Spark query on three nodes: each is committed once and as a whole."""

import asyncio
from typing import Any

import pytest

from headrace.broker.coordinators import commit_groups, queries, state_log
from headrace.broker.coordinators.kept import Kept
from headrace.core.commit_group import Op
from headrace.core.transaction import State
from headrace.errors import ErrorCode
from headrace.wire.messages.commit_group import CommitGroupRequest, CommitGroupResponse
from tests.broker.batch_driver import (
    QUERY,
    RUN,
    SCOPE,
    Task,
    asked,
    committed,
    group_settled,
    last_committed,
    request_of,
    written,
)
from tests.broker.trio import Scenario, Trio, play
from tests.broker.txn_owner import (
    SETTINGS,
    Owner,
    committed_values,
    coordinator_of,
    first_of,
    kept_at,
    make_ready,
    other_nodes,
    settled,
    until_in_state,
)


def run(scenario: Scenario, settings: dict[str, str] | None = None, partitions: int = 1) -> None:
    async def main(trio: Trio) -> None:
        await make_ready(trio, partitions)
        await scenario(trio)

    play(main, {**SETTINGS, **(settings or {})}, replicates=True)


def test_the_tasks_of_a_batch_become_readable_together_and_the_batch_is_the_last_one() -> None:
    async def scenario(trio: Trio) -> None:
        assert await last_committed(trio) == -1
        tasks = [await written(trio, 0, b"%d" % task, task=task) for task in range(3)]
        assert not await committed(trio, 0, *tasks)
        assert await last_committed(trio) == 0
        assert sorted(await committed_values(trio)) == [b"0", b"1", b"2"]
        later = await written(trio, 7, b"3")
        assert not await committed(trio, 7, later)
        assert (await last_committed(trio), sorted(await committed_values(trio))) == (7, [b"0", b"1", b"2", b"3"])
        assert (await group_settled(trio, Op.QUERY)).last_run_id == RUN

    run(scenario)


def test_of_two_drivers_one_wins_and_the_others_data_is_never_visible() -> None:
    """Tcg-1."""

    async def scenario(trio: Trio) -> None:
        ours = [await written(trio, 5, b"ours", task=task) for task in range(2)]
        theirs = [await written(trio, 5, b"theirs", task=task, run="run-2") for task in range(2)]
        first, second = await asyncio.gather(
            group_settled(trio, Op.COMMIT, 5, ours), group_settled(trio, Op.COMMIT, 5, theirs, "run-2")
        )
        assert (first.error_code, second.error_code) == (0, 0)
        assert [first.decided, second.decided].count(True) == 1
        winner = b"theirs" if first.decided else b"ours"
        assert first.last_run_id == second.last_run_id == ("run-2" if first.decided else RUN)
        assert await committed_values(trio) == [winner] * 2
        for task in ours if first.decided else theirs:
            await until_in_state(trio, State.COMPLETE_ABORT, task.id)

    run(scenario)


def test_an_attempt_that_was_not_named_is_aborted_and_holds_back_nobody() -> None:
    """Well before its time is over: committed_values waits until nothing is undecided."""

    async def scenario(trio: Trio) -> None:
        loser = await written(trio, 4, b"loser", number=0, timeout_ms=900_000)
        older = await written(trio, 2, b"older", timeout_ms=900_000)
        newer = await written(trio, 5, b"newer", timeout_ms=900_000)
        winner = await written(trio, 4, b"winner", number=1)
        assert not await committed(trio, 4, winner)
        for task in (loser, older):
            await until_in_state(trio, State.COMPLETE_ABORT, task.id)
        assert await loser.produce([b"late"]) == ErrorCode.INVALID_PRODUCER_EPOCH
        kept = kept_at(trio, await coordinator_of(trio), newer.id)
        assert kept.transaction is not None and kept.transaction.state is State.ONGOING
        assert not await committed(trio, 5, newer)
        assert await committed_values(trio) == [b"newer", b"winner"]
        assert trio.broker(await coordinator_of(trio)).transactions.queries.superseded == 2

    run(scenario)


def test_a_batch_of_which_one_attempt_timed_out_is_refused_and_nothing_of_it_is_visible() -> None:
    """Tcg-3, when the sweeper has been there."""

    async def scenario(trio: Trio) -> None:
        good = await written(trio, 0, b"good", task=0, timeout_ms=600_000)
        slow = await written(trio, 0, b"slow", task=1, timeout_ms=2_000)
        await until_in_state(trio, State.COMPLETE_ABORT, slow.id)
        answer = await group_settled(trio, Op.COMMIT, 0, [good, slow])
        assert (answer.error_code, answer.bad_handles) == (ErrorCode.INVALID_TXN_STATE, [slow.id])
        assert answer.error_message is not None and answer.last_committed == -1
        kept = kept_at(trio, await coordinator_of(trio), good.id)
        assert kept.transaction is not None and kept.transaction.state is State.ONGOING
        assert await last_committed(trio) == -1
        assert (await group_settled(trio, Op.ABORT, 0, [good, slow])).error_code == 0
        assert await committed_values(trio) == []
        again = [await written(trio, 0, b"again", task=task, run="run-2", number=task) for task in range(2)]
        assert not await committed(trio, 0, *again, run="run-2")
        assert await committed_values(trio) == [b"again"] * 2

    run(scenario)


def test_an_attempt_whose_time_is_over_is_refused_before_the_sweeper_comes() -> None:
    """Tcg-3."""

    async def scenario(trio: Trio) -> None:
        slow = await written(trio, 0, b"slow", timeout_ms=2_000)
        await asyncio.sleep(2.5)
        kept = kept_at(trio, await coordinator_of(trio), slow.id)
        assert kept.transaction is not None and kept.transaction.state is State.ONGOING
        answer = await group_settled(trio, Op.COMMIT, 0, [slow])
        assert (answer.error_code, answer.bad_handles) == (ErrorCode.INVALID_TXN_STATE, [slow.id])

    run(scenario, {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "600000"})


def test_attempts_with_another_epoch_or_unknown_or_with_nothing_written_are_in_the_way() -> None:
    async def scenario(trio: Trio) -> None:
        good, fenced = await written(trio, 0, b"1", task=0), await written(trio, 0, b"2", task=1)
        empty, unknown = Task(trio, 0, 2), Task(trio, 0, 3)
        assert await settled(empty.init) == 0
        taken = Task(trio, 0, 1)
        assert await settled(taken.init) == 0
        answer = await group_settled(trio, Op.COMMIT, 0, [good, fenced, empty, unknown])
        assert answer.error_code == ErrorCode.INVALID_TXN_STATE
        assert answer.bad_handles == [fenced.id, empty.id, unknown.id]
        assert not await committed(trio, 0, good)
        assert await committed_values(trio) == [b"1"]

    run(scenario)


def test_a_zombie_of_a_batch_that_is_over_can_begin_nothing() -> None:
    """Tcg-4, whether it is known, forgotten, or was never there."""

    async def scenario(trio: Trio) -> None:
        early = Task(trio, 3, 1)
        assert await settled(early.init) == 0
        winner = await written(trio, 3, b"1")
        assert not await committed(trio, 3, winner)
        for version, code in ((5, ErrorCode.PRODUCER_FENCED), (3, ErrorCode.INVALID_PRODUCER_EPOCH)):
            for batch_id in (0, 3):
                assert await Task(trio, batch_id, 9).init(version=version) == code
        assert await early.add(0) == {0: ErrorCode.PRODUCER_FENCED}
        assert await early.init(given=early.claim) == ErrorCode.PRODUCER_FENCED
        transactions = trio.broker(await coordinator_of(trio)).transactions
        await trio.until(lambda: transactions.find(early.id) is None and transactions.find(winner.id) is None)
        assert await early.add(0) == {0: ErrorCode.PRODUCER_FENCED}
        assert await early.init() == ErrorCode.PRODUCER_FENCED
        assert await winner.init() == ErrorCode.PRODUCER_FENCED
        assert await early.produce([b"late"]) != 0
        assert len(transactions) == 0
        assert await committed(trio, 3, winner)
        assert await committed_values(trio) == [b"1"]

    run(scenario)


def test_producer_ids_of_a_query_are_used_again_and_whoever_had_them_is_fenced() -> None:
    """Each partition remembers every producer id for a day: there may be thousands of attempts in a minute."""

    async def scenario(trio: Trio) -> None:
        transactions = trio.broker(await coordinator_of(trio)).transactions
        first = await written(trio, 0, b"0")
        loser = await written(trio, 0, b"loser", number=1)
        assert not await committed(trio, 0, first)
        producer_ids = {first.claim.producer_id, loser.claim.producer_id}
        for batch_id in range(1, 4):
            await trio.until(lambda: len(transactions) == 0)
            task, idle = Task(trio, batch_id, 0), Task(trio, batch_id, 1)
            assert await settled(idle.init) == 0
            await task.write(b"%d" % batch_id)
            assert {task.claim.producer_id, idle.claim.producer_id} == producer_ids
            for zombie in (first, loser):
                assert await zombie.produce([b"late"]) in (
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    ErrorCode.TRANSACTION_ABORTABLE,
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                )
                assert await zombie.add(0) == {0: ErrorCode.PRODUCER_FENCED}
            assert not await committed(trio, batch_id, task)
        assert await committed_values(trio) == [b"0", b"1", b"2", b"3"]
        trio.world.nodes[await coordinator_of(trio) - 1].kill()
        after = await written(trio, 4, b"4")
        assert not await committed(trio, 4, after)
        assert await committed_values(trio) == [b"0", b"1", b"2", b"3", b"4"]

    run(scenario)


def test_what_is_forgotten_of_a_batch_is_forgotten_by_the_next_coordinator_too() -> None:
    async def scenario(trio: Trio) -> None:
        winner = await written(trio, 3, b"1")
        assert not await committed(trio, 3, winner)
        node_id = await coordinator_of(trio)
        await trio.until(lambda: trio.broker(node_id).transactions.find(winner.id) is None)
        trio.world.nodes[node_id - 1].kill()
        transactions = trio.broker(await coordinator_of(trio)).transactions
        assert len(transactions) == 0
        assert await last_committed(trio) == 3
        assert await settled(Task(trio, 3, 9).init) == ErrorCode.PRODUCER_FENCED

    run(scenario)


def test_an_abort_after_the_decision_changes_nothing() -> None:
    """Tcg-6."""

    async def scenario(trio: Trio) -> None:
        tasks = [await written(trio, 2, b"%d" % task, task=task) for task in range(2)]
        assert not await committed(trio, 2, *tasks)
        for batch_id in (2, 1):
            named = tasks if batch_id == 2 else []
            answer = await group_settled(trio, Op.ABORT, batch_id, named)
            assert (answer.error_code, answer.decided, answer.last_committed) == (0, True, 2)
        assert sorted(await committed_values(trio)) == [b"0", b"1"]
        assert await committed(trio, 2, *tasks)

    run(scenario)


def test_an_abort_before_any_decision_ends_the_attempts_and_the_batch_can_be_tried_again() -> None:
    async def scenario(trio: Trio) -> None:
        tasks = [await written(trio, 2, b"first", task=task) for task in range(2)]
        strange = Task(trio, 2, 7)
        answer = await group_settled(trio, Op.ABORT, 2, [*tasks, strange])
        assert (answer.error_code, answer.decided, answer.last_committed) == (0, False, -1)
        for task in tasks:
            await until_in_state(trio, State.COMPLETE_ABORT, task.id)
            assert await task.end(commit=False) == ErrorCode.PRODUCER_FENCED
        assert (await group_settled(trio, Op.ABORT, 2, tasks)).error_code == 0
        assert (await group_settled(trio, Op.COMMIT, 2, tasks)).error_code == ErrorCode.INVALID_TXN_STATE
        again = await written(trio, 2, b"second", run="run-2")
        assert not await committed(trio, 2, again, run="run-2")
        assert await committed_values(trio) == [b"second"]

    run(scenario)


def test_tasks_without_rows_and_batches_without_rows() -> None:
    """Tcg-8: who wrote nothing is not named, and a batch of which nobody is named is committed too."""

    async def scenario(trio: Trio) -> None:
        idle, busy = Task(trio, 0, 0), await written(trio, 0, b"1", task=1)
        assert await settled(idle.init) == 0
        assert not await committed(trio, 0, busy)
        assert not await committed(trio, 1)
        assert await committed(trio, 1)
        assert await last_committed(trio) == 1
        trio.world.nodes[await coordinator_of(trio) - 1].kill()
        assert await last_committed(trio) == 1
        assert await settled(Task(trio, 1, 0).init) == ErrorCode.PRODUCER_FENCED
        assert await committed_values(trio) == [b"1"]

    run(scenario)


def test_ids_of_a_query_are_with_one_coordinator_whatever_their_batch() -> None:
    """Tcg-7, with as many coordinators as there are nodes."""

    async def scenario(trio: Trio) -> None:
        tasks = [await written(trio, batch_id, b"%d" % batch_id) for batch_id in range(3)]
        places = {
            trio.broker(node.node_id).transactions.log.index_of(task.id) for node in trio.world.nodes for task in tasks
        }
        assert len(places) == 1

    run(scenario)


def test_an_attempt_cannot_commit_by_itself_but_may_give_up() -> None:
    async def scenario(trio: Trio) -> None:
        task = await written(trio, 0, b"1")
        assert await task.end(commit=True) == ErrorCode.INVALID_TXN_STATE
        assert await task.end(commit=False) == 0
        assert await committed_values(trio) == []
        odd = Owner(trio, f"hr1:{SCOPE}:{QUERY}:latest:0:run:0")
        assert await settled(odd.init) == 0
        assert await settled(lambda: first_of(odd.add(0))) == 0
        assert await odd.end(commit=True) == 0, "an ordinary id, for all its looks"

    run(scenario)


def test_queries_know_nothing_of_each_other() -> None:
    async def scenario(trio: Trio) -> None:
        task = await written(trio, 3, b"1")
        assert not await committed(trio, 3, task)
        for scope, query in (("other", QUERY), (SCOPE, "query-2")):
            answer = await Owner(trio).ask(
                CommitGroupRequest(op=Op.QUERY, scope=scope, query_id=query), CommitGroupResponse
            )
            assert (answer.error_code, answer.last_committed) == (0, -1)

    run(scenario)


def test_a_request_that_makes_no_sense_is_refused_with_a_sentence() -> None:
    async def scenario(trio: Trio) -> None:
        task = await written(trio, 3, b"1")
        wrong: list[dict[str, Any]] = [
            {"scope": ""},
            {"scope": "a scope"},
            {"query_id": "a:b"},
            {"query_id": ""},
            {"run_id": ""},
            {"batch_id": -1},
            {"batch_id": 4},
            {"op": 3},
            {"query_id": "query-2"},
        ]
        for fields in wrong:
            request = request_of(Op.COMMIT, 3, [task])
            for name, value in fields.items():
                setattr(request, name, value)
            answer = await Owner(trio).ask(request, CommitGroupResponse)
            assert answer.error_code == ErrorCode.INVALID_REQUEST and answer.error_message, fields
        twice = await asked(trio, Op.COMMIT, 3, [task, task])
        assert twice.error_code == ErrorCode.INVALID_REQUEST
        node_id = await coordinator_of(trio)
        for other in other_nodes(node_id):
            assert (await asked(trio, Op.QUERY, at=other)).error_code == ErrorCode.NOT_COORDINATOR
        assert not await committed(trio, 3, task)

    run(scenario)


def test_there_is_a_bound_for_the_open_attempts_of_a_batch_and_one_for_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(trio: Trio) -> None:
        first, second = await written(trio, 0, b"1", task=0), await written(trio, 0, b"2", task=1)
        third = Task(trio, 0, 2)
        assert await third.init() == ErrorCode.POLICY_VIOLATION
        assert await settled(Task(trio, 1, 0).init) == 0
        assert await second.end(commit=False) == 0
        await until_in_state(trio, State.COMPLETE_ABORT, second.id)
        assert await settled(third.init) == 0
        assert not await committed(trio, 0, first)
        monkeypatch.setattr(queries, "QUERIES_MAX", 1)
        monkeypatch.setattr(commit_groups, "QUERIES_MAX", 1)
        assert await Owner(trio, f"hr1:{SCOPE}:query-2:0:0:run:0").init() == ErrorCode.POLICY_VIOLATION
        other = CommitGroupRequest(op=Op.COMMIT, scope=SCOPE, query_id="query-2", batch_id=0, run_id=RUN)
        refused = await Owner(trio).ask(other, CommitGroupResponse)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert "set commit.group.retention.ms" in (refused.error_message or "")

    run(scenario, {"commit.group.max.attempts": "2"})


def test_what_happened_to_an_attempt_while_a_large_batch_was_written_out_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows are made in slices; all of them are looked at again in the step in which they are written."""
    monkeypatch.setattr(commit_groups, "SLICE", 2)

    async def scenario(trio: Trio) -> None:
        tasks = [await written(trio, 0, b"%d" % task, task=task) for task in range(5)]
        transactions = trio.broker(await coordinator_of(trio)).transactions
        rows = transactions.groups._rows
        calls = 0

        def then_something_happens(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            made = rows(*args)
            if calls == 1:
                first = transactions.find(tasks[0].id)
                assert isinstance(first, Kept)
                transactions.fence(first)
            return made

        monkeypatch.setattr(transactions.groups, "_rows", then_something_happens)
        answer = await group_settled(trio, Op.COMMIT, 0, tasks)
        assert (answer.error_code, answer.bad_handles) == (ErrorCode.INVALID_TXN_STATE, [tasks[0].id])
        again = await written(trio, 0, b"0", task=0, number=1)
        assert not await committed(trio, 0, again, *tasks[1:])
        assert calls > 3
        assert sorted(await committed_values(trio)) == [b"%d" % task for task in range(5)]

    run(scenario)


def test_a_decision_is_compressed_if_it_is_large_and_refused_if_it_could_not_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Few tasks may write many partitions each, so that it does not matter how many records there are."""

    async def scenario(trio: Trio) -> None:
        tasks = [await written(trio, 0, b"%d" % number, task=number) for number in range(5)]
        monkeypatch.setattr(state_log, "COMPRESSED_BYTES_MIN", 300)
        with monkeypatch.context() as for_now:
            for_now.setattr(state_log, "DECOMPRESSED_BYTES_MAX", 500)
            refused = await asked(trio, Op.COMMIT, 0, tasks)
            assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert "too large for one record batch: use fewer tasks" in (refused.error_message or "")
        with monkeypatch.context() as for_now:
            for_now.setattr(state_log, "BATCH_BYTES_MAX", 500)  # less than the decision is as it is
            assert not await committed(trio, 0, *tasks)
        assert sorted(await committed_values(trio)) == [b"%d" % number for number in range(5)]
        trio.world.nodes[await coordinator_of(trio) - 1].kill()
        assert await last_committed(trio) == 0

    run(scenario)
