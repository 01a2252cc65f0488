"""Drivers and tasks of a query, against a whole broker in this process."""

import asyncio
import gc
import pickle
import random
from typing import Any

import pytest

from headrace.client import BatchRefused, CommitGroups, Fenced, Handle, Outside, Producer, TransactionFailed
from headrace.client.commit_group import transactional_id
from headrace.errors import ErrorCode, KafkaError
from headrace.testing import Cluster
from tests.client.fake import FakeBroker, FakeCluster
from tests.client.lossy import LossyNetwork
from tests.client.test_transactions import SETTINGS, all_decided, committed, made

SCOPE, QUERY = "jobs", "query-1"


def task_of(
    cluster: Cluster, batch_id: int, task: int = 0, *, run: str = "run-1", number: int = 0, **options: Any
) -> Producer:
    name = transactional_id(SCOPE, QUERY, batch_id, task, run, number)
    return Producer(cluster.bootstrap, transactional_id=name, linger_ms=0, **options)


async def written(cluster: Cluster, batch_id: int, *values: bytes, **who: Any) -> Handle:
    async with task_of(cluster, batch_id, **who) as producer:
        await producer.begin()
        for value in values:
            producer.send("t", value)
        handle = await producer.handle()
    assert handle is not None
    return handle


async def test_a_task_leaves_its_transaction_open_and_the_driver_commits_all_of_them_once() -> None:
    async with Cluster(settings=SETTINGS) as cluster, CommitGroups(cluster.bootstrap) as groups:
        await made(cluster)
        assert await groups.is_offered()
        assert await groups.last_committed(SCOPE, QUERY) == -1
        handles = [await written(cluster, 0, b"%d" % task, task=task) for task in range(3)]
        assert await committed(cluster.bootstrap) == []
        assert pickle.loads(pickle.dumps(handles)) == handles
        decided = await groups.commit(SCOPE, QUERY, 0, "run-1", handles)
        assert decided == (False, 0, "run-1")
        assert await groups.commit(SCOPE, QUERY, 0, "run-2", []) == (True, 0, "run-1")
        assert await groups.last_committed(SCOPE, QUERY) == 0
        await all_decided(cluster.bootstrap)
        assert await committed(cluster.bootstrap) == [b"0", b"1", b"2"]


async def test_a_task_without_rows_has_no_handle_and_one_that_fails_has_none_either() -> None:
    async with Cluster(settings=SETTINGS) as cluster, CommitGroups(cluster.bootstrap) as groups:
        await made(cluster)
        async with task_of(cluster, 0, 0) as idle:
            await idle.begin()
            assert await idle.handle() is None
            with pytest.raises(RuntimeError, match="handed over"):
                await idle.handle()
        async with task_of(cluster, 0, 1) as failing:
            await failing.begin()
            failing.send("t", b"good")
            with pytest.raises(KafkaError):
                await failing.send("t", b"bad", partition=17)
            with pytest.raises(TransactionFailed):
                await failing.handle()
        await all_decided(cluster.bootstrap)
        assert await groups.commit(SCOPE, QUERY, 0, "run-1", []) == (False, 0, "run-1")
        assert await committed(cluster.bootstrap) == []


async def test_a_lost_record_is_told_by_the_transaction_and_nobody_has_to_ask_its_future() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with Cluster(settings=SETTINGS) as cluster:
        await made(cluster)
        async with task_of(cluster, 0, 0) as task:
            await task.begin()
            task.send("t", b"bad", partition=17)
            with pytest.raises(TransactionFailed):
                await task.handle()
    gc.collect()
    assert complaints == []


async def test_a_batch_with_an_attempt_that_was_taken_over_is_refused_by_name() -> None:
    async with Cluster(settings=SETTINGS) as cluster, CommitGroups(cluster.bootstrap) as groups:
        await made(cluster)
        handles = [await written(cluster, 0, b"%d" % task, task=task) for task in range(2)]
        async with task_of(cluster, 0, 1) as zombie:
            await zombie.init()
        with pytest.raises(
            BatchRefused, match=r"batch 0 of query query-1 was not committed: 1 of the attempts"
        ) as raised:
            await groups.commit(SCOPE, QUERY, 0, "run-1", handles)
        assert raised.value.bad_handles == (handles[1].transactional_id,)
        assert not (await groups.abort(SCOPE, QUERY, 0, "run-1", handles)).already
        await all_decided(cluster.bootstrap)
        assert await committed(cluster.bootstrap) == []
        assert await groups.last_committed(SCOPE, QUERY) == -1


async def test_a_late_task_hears_that_its_batch_is_committed() -> None:
    async with Cluster(settings=SETTINGS) as cluster, CommitGroups(cluster.bootstrap) as groups:
        await made(cluster)
        async with task_of(cluster, 4, 0) as early, task_of(cluster, 4, 1) as late:
            await early.begin()
            await early.send("t", b"early")
            await groups.commit(SCOPE, QUERY, 4, "run-1", [])
            with pytest.raises(Fenced, match="batch 4 is committed already"):
                await late.begin()
            await all_decided(cluster.bootstrap)
            with pytest.raises(KafkaError):
                await early.send("t", b"more")
        assert (await groups.abort(SCOPE, QUERY, 4, "run-1", [])).already
        assert await committed(cluster.bootstrap) == []


async def test_a_request_that_makes_no_sense_is_not_tried_again() -> None:
    async with Cluster(settings=SETTINGS) as cluster, CommitGroups(cluster.bootstrap) as groups:
        with pytest.raises(KafkaError, match="'a b' cannot be a scope") as raised:
            await groups.last_committed("a b", QUERY)
        assert raised.value.code is ErrorCode.INVALID_REQUEST


async def test_a_cluster_that_cannot_do_this_is_known_as_such() -> None:
    kafka = FakeBroker(FakeCluster(), versions_max={18_201: -1})
    async with kafka, CommitGroups(kafka.bootstrap) as groups:
        assert not await groups.is_offered()


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_lost_on_the_way_every_batch_is_there_once(seed: int) -> None:
    """Two drivers of one query, each of which believes that it is the only one."""
    async with Cluster(settings=SETTINGS) as cluster:
        await made(cluster)
        chance = random.Random(seed)
        wins: dict[int, str] = {}

        async def drive(run: str) -> None:
            outside = Outside(network=LossyNetwork(lambda: chance.random() < 0.05))
            async with CommitGroups(cluster.bootstrap, outside=outside) as groups:
                for batch_id in range(8):
                    handles = [
                        await written(cluster, batch_id, b"%d.%d" % (batch_id, task), task=task, run=run)
                        for task in range(2)
                        if await groups.last_committed(SCOPE, QUERY) < batch_id
                    ]
                    if len(handles) == 2:
                        decided = await groups.commit(SCOPE, QUERY, batch_id, run, handles)
                        if not decided.already:
                            assert wins.setdefault(batch_id, run) == run

        async def patiently(run: str) -> None:
            while True:
                try:
                    await drive(run)
                    return
                except Fenced:  # the other one has committed the batch meanwhile
                    await asyncio.sleep(0)

        await asyncio.gather(patiently("run-1"), patiently("run-2"))
        await all_decided(cluster.bootstrap)
        assert await committed(cluster.bootstrap) == sorted(b"%d.%d" % (n, task) for n in range(8) for task in range(2))
