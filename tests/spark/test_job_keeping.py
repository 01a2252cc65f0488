"""Batch jobs of which brokers hear while their driver lives, and which they give up when it is dead."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import WriterCommitMessage

from headrace.broker.coordinators import living_jobs
from headrace.client import CommitGroups
from headrace.errors import KafkaError
from headrace.spark import job_keeper, job_keeping
from headrace.spark.data_source import HeadraceDataSource
from headrace.spark.sink import JobSink
from headrace.testing import Cluster
from tests.spark.filling import make_topic
from tests.spark.sink_stage import SETTINGS, VALUE, Spark, batches, pickled, readable, spark, wrote

__all__ = ["spark"]
ROUND_S = 0.2
NOBODY = 0x3FFFFFFF
"""No process has such an id."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """That gives a driver up which is silent for two seconds."""
    monkeypatch.setattr(living_jobs, "ROUND_MS", int(ROUND_S * 1_000))
    monkeypatch.setattr(living_jobs, "ROUNDS_MAX", 10)
    with Cluster(settings=SETTINGS) as running:
        make_topic(running.bootstrap, "t")
        yield running


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    """In the place of Spark's, whose life is the driver's."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


class Keeper:
    """In a thread, and in a hurry."""

    def __init__(self, cluster: Cluster, job: str, sign: Path) -> None:
        self._sign = sign
        sign.touch()
        place = (cluster.bootstrap, job, str(sign), str(os.getpid()))
        self._thread = threading.Thread(target=job_keeper.main, args=place)
        self._thread.start()

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._sign.unlink(missing_ok=True)
        self._thread.join(60)
        assert not self.runs


@pytest.fixture
def keep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[Cluster, str], Keeper]]:
    monkeypatch.setattr(job_keeper, "QUIET_S", 0.0)
    monkeypatch.setattr(job_keeper, "EVERY_S", ROUND_S)
    keepers: list[Keeper] = []

    def begin(cluster: Cluster, job: str) -> Keeper:
        keepers.append(Keeper(cluster, job, tmp_path / f"sign-{len(keepers)}"))
        return keepers[-1]

    yield begin
    for keeper in keepers:
        keeper.stop()


def sink(bootstrap: str, **options: str) -> JobSink:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": "t", **options}
    made = HeadraceDataSource(given).writer(schema=VALUE, overwrite=False)
    assert isinstance(made, JobSink)
    return made


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def hear_once(cluster: Cluster, job: str) -> bool:
    """Brokers hear of its driver, and never again. Whether it is over."""

    async def ask() -> bool:
        async with CommitGroups(cluster.bootstrap) as groups:
            return await groups.alive(job)

    return asyncio.run(ask())


@pytest.mark.usefixtures("spark")
def test_a_job_whose_driver_lives_is_committed_however_long_it_takes(cluster: Cluster, keep: Any) -> None:
    job = sink(cluster.bootstrap)
    written = wrote(job.write(batches([b"1"])))
    assert written.group is not None
    keeper = keep(cluster, written.group.query_id)
    time.sleep(6 * 10 * ROUND_S)  # it is to be silent for no tenth of that
    assert keeper.runs
    job.commit([written])
    assert readable(cluster.bootstrap) == [b"1"]
    until(lambda: not keeper.runs)  # it was told that the job is over


@pytest.mark.usefixtures("spark")
def test_a_job_without_rows_is_over_too_and_its_driver_is_not_taken_for_dead(cluster: Cluster) -> None:
    job = sink(cluster.bootstrap)
    written = wrote(job.write(batches([])))
    assert written.group is not None
    assert not hear_once(cluster, written.group.query_id)
    job.commit([written])
    assert hear_once(cluster, written.group.query_id)


def test_of_a_job_whose_driver_was_taken_for_dead_nothing_is_read_and_nobody_waits(
    cluster: Cluster, spark: Spark
) -> None:
    job = sink(cluster.bootstrap)
    written = wrote(job.write(batches([b"of a job that is given up"])))
    assert written.group is not None
    assert not hear_once(cluster, written.group.query_id)
    other = sink(cluster.bootstrap)
    other.commit([wrote(other.write(batches([b"after it"])))])
    assert readable(cluster.bootstrap) == [b"after it"]  # it waits for whatever is open
    spark.partition = 1
    late = wrote(pickled(job).write(batches([b"of a task that comes late"])))
    both: list[WriterCommitMessage | None] = [written, late]
    for messages in (both, both[1:]):
        with pytest.raises(KafkaError, match="have not heard of its driver for a minute, and took it for dead"):
            pickled(job).commit(messages)
    job.abort(both)
    assert readable(cluster.bootstrap) == [b"after it"]


def test_a_job_that_is_committed_is_so_when_the_process_beside_the_driver_has_heard_of_it_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both remove the file that says that the job runs, at the same time: whoever is late must not call it failed."""
    remove = os.unlink

    def too_late(path: str) -> None:
        remove(path)
        remove(path)

    monkeypatch.setattr(os, "unlink", too_late)
    sign = tmp_path / "sign"
    sign.touch()
    job_keeping.release_job(str(sign))
    sign.touch()
    job_keeper.main("127.0.0.1:1", "job", str(sign), str(NOBODY))
    assert not sign.exists()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_driver_that_is_dead_is_so_though_nobody_has_asked_how_it_ended(
    daemon: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """As in a container whose first process takes no notice of others' children."""
    sign = tmp_path / "sign"
    sign.touch()
    watch = job_keeper.Watch(str(sign), daemon.pid)
    assert watch.is_needed()
    daemon.kill()
    until(lambda: not watch.is_needed())
    assert daemon.returncode is None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_driver_lives_whatever_bytes_its_name_is_of(tmp_path: Path) -> None:
    sign, name = tmp_path / "sign", os.fsencode(tmp_path) + b"/\xff) Z"
    sign.touch()
    os.symlink(os.fsencode(shutil.which("sleep") or "sleep"), name)
    with subprocess.Popen(["sleep", "600"], executable=name) as process:
        try:
            until(lambda: b"\xff" in Path(f"/proc/{process.pid}/stat").read_bytes())
            watch = job_keeper.Watch(str(sign), process.pid)
            assert watch.is_needed()
        finally:
            process.kill()
        until(lambda: not watch.is_needed())


def test_a_process_beside_the_driver_ends_with_the_job_or_the_driver(
    daemon: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def popen(*args: Any, **fields: Any) -> None:
        started.append(real(*args, **fields))

    real = subprocess.Popen
    nobody = "127.0.0.1:1"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(os, "getppid", lambda: daemon.pid)
    sink(nobody)
    assert not started  # not in one of Spark's processes that plan
    monkeypatch.setitem(sys.modules, job_keeping.PLANNING, job_keeping)
    sink(nobody, deliveryGuarantee="at_least_once")
    assert not started

    committed, left = sink(nobody), sink(nobody)
    assert len(list(tmp_path.iterdir())) == 2
    assert [process.poll() for process in started] == [None, None]
    pickled(committed).commit([])
    assert started[0].wait(60) == 0
    assert started[1].poll() is None
    daemon.kill()
    daemon.wait()
    assert started[1].wait(60) == 0
    assert list(tmp_path.iterdir()) == []
    left.commit([])
