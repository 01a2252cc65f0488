"""The embedded broker, as other projects use it."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from urllib.request import urlopen

import pytest

from headrace.node_config import NotStarted
from headrace.testing import Cluster
from tests.servers.process import lists_itself


def answers(cluster: Cluster) -> bool:
    return lists_itself(int(cluster.bootstrap.rpartition(":")[2]))


def our_threads() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate() if thread.name.startswith("headrace")}


def test_a_sync_cluster_answers_and_then_it_is_gone() -> None:
    before = our_threads()
    with Cluster() as cluster:
        bootstrap = cluster.bootstrap
        assert answers(cluster)
        with urlopen(cluster.metrics_url, timeout=30) as page:
            assert page.status == 200
    assert not lists_itself(int(bootstrap.rpartition(":")[2]))
    assert our_threads() <= before


async def test_an_async_cluster_runs_on_the_loop_of_its_caller() -> None:
    threads = {thread.name for thread in threading.enumerate()}
    async with Cluster() as cluster:
        assert await asyncio.to_thread(answers, cluster)
        assert "headrace-testing" not in {thread.name for thread in threading.enumerate()} - threads


def test_a_cluster_that_ends_says_nothing() -> None:
    """In a process of its own, where nobody keeps what a test prints."""
    code = "from headrace.testing import Cluster\nfor _ in range(2):\n    with Cluster(brokers=2): pass"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_several_clusters_live_side_by_side() -> None:
    with Cluster() as one, Cluster() as other:
        assert one.bootstrap != other.bootstrap
        assert answers(one) and answers(other)


def test_a_cluster_may_run_again() -> None:
    cluster = Cluster()
    for _ in range(2):
        with cluster:
            assert answers(cluster)


def test_nothing_is_written_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Cluster() as cluster:
        assert answers(cluster)
        assert not list(tmp_path.iterdir())


def test_settings_that_are_wrong_raise_and_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = our_threads()
    with pytest.raises(NotStarted, match=r"num\.partitions"), Cluster({"num.partitions": "none"}):
        pass
    assert not list(tmp_path.iterdir())
    assert our_threads() <= before


def test_a_cluster_that_does_not_run_has_no_address() -> None:
    with pytest.raises(RuntimeError, match="does not run"):
        _ = Cluster().bootstrap


def test_the_fixture_is_a_running_cluster(headrace_cluster: Cluster) -> None:
    assert answers(headrace_cluster)


def test_the_plug_in_costs_other_projects_nothing() -> None:
    code = "import sys, headrace.testing.pytest_plugin; print(*(m for m in sys.modules if m.startswith('headrace')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["headrace", "headrace.testing", "headrace.testing.pytest_plugin"]
