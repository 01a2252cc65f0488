"""The examples do what they say, each with a cluster of its own and with three brokers."""

import subprocess
import sys
from pathlib import Path

import pytest

from examples import assigned_readers, change_capture, journaled_task, kv_store
from headrace.testing import Cluster

EXAMPLES = Path(kv_store.__file__).parent
COPIES = {"default.replication.factor": "3", "min.insync.replicas": "2"}


async def test_a_paused_master_of_the_key_value_store_comes_back_and_writes_nothing() -> None:
    async with Cluster(COPIES, brokers=3) as cluster:
        data = await kv_store.story(cluster.bootstrap)
    assert data == {"colour": "blue", "shape": "round", "size": "small"}


async def test_a_standby_of_the_change_capture_goes_on_where_the_other_stopped() -> None:
    async with Cluster(COPIES, brokers=3) as cluster:
        assert len(await change_capture.story(cluster.bootstrap)) == 1_000


async def test_of_two_readers_of_a_partition_one_is_served() -> None:
    async with Cluster(COPIES, brokers=3) as cluster:
        found = await assigned_readers.story(cluster.bootstrap)
    by = [result.split()[2] for result in found[1]]
    assert by == sorted(by) and set(by) == {"anna", "ben"}
    assert {result.split()[2] for result in found[0]} == {"anna"}


async def test_a_task_that_was_restarted_elsewhere_journals_no_more() -> None:
    async with Cluster(COPIES, brokers=3) as cluster:
        states = await journaled_task.story(cluster.bootstrap)
    by = [state.by for state in states]
    assert by == sorted(by) and set(by) == {"anna", "ben"}


async def test_stories_that_begin_with_new_topics_say_so_where_these_are_there_already() -> None:
    async with Cluster() as cluster:
        await assigned_readers.create_topics(cluster.bootstrap)
        await journaled_task.create_journal(cluster.bootstrap)
        with pytest.raises(SystemExit, match="delete work and results first"):
            await assigned_readers.story(cluster.bootstrap)
        with pytest.raises(SystemExit, match="delete journal first"):
            await journaled_task.story(cluster.bootstrap)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_each_example_runs_by_itself(path: Path) -> None:
    run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and not run.stderr, run.stderr
