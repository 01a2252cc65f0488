"""Drivers and executors of the exactly-once sink as processes: killed before and after a commit, two on one checkpoint,
and one that was taken for dead and comes back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.cluster import HeadraceCluster
from tests.servers.spark import standalone
from tests.spark.filling import fill, numbers
from tests.spark.jvm.conftest import WORKERS
from tests.spark.jvm.driver import ROWS_PER_BATCH
from tests.spark.jvm.staged import Stage
from tests.spark.sink_stage import readable

ROOT = Path(__file__).resolve().parents[3]
WITHIN_S = 300.0
ROWS = 6 * ROWS_PER_BATCH
SOURCE, TARGET = "driven-in", "driven-out"


class Drivers:
    """All on one checkpoint."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._started: list[subprocess.Popen[bytes]] = []
        (directory / "stage").mkdir()
        self.stage = Stage(directory / "stage")

    def start(self, master: str = "local[2]") -> "subprocess.Popen[bytes]":
        places = [SOURCE, TARGET, str(self._directory / "checkpoint"), str(self._directory / "stage")]
        with self._log(len(self._started)).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.jvm.driver", master, self._bootstrap, *places],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        """With its JVM."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert self._started[-1].poll() is None, f"the driver has ended before {what}\n{self.told()}"
            assert time.monotonic() < deadline, f"not in {WITHIN_S:.0f} s: {what}\n{self.told()}"
            time.sleep(0.05)

    def until_held(self, place: str) -> int:
        self.until(lambda: self.stage.reached_by(place), f"somebody is held at {place}")
        return self.stage.reached_by(place)

    def told(self, number: int = -1) -> str:
        return self._log(number % len(self._started)).read_text(errors="replace")[-6_000:]

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                self.kill(process)
        for hold in (self._directory / "stage").glob("*.hold"):
            hold.unlink()

    def _log(self, number: int) -> Path:
        return self._directory / f"driver-{number}.log"


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """For Spark's processes on all machines: what is pickled by name is found by name."""
    known = filter(None, [os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(WORKERS), str(ROOT), *known]))


@pytest.fixture
def drivers(cluster: HeadraceCluster, tmp_path: Path) -> Iterator[Drivers]:
    for topic in (SOURCE, TARGET):
        cluster.create_topic(topic, 2, configs={"min.insync.replicas": "2", "retention.ms": "-1"})
    fill(cluster.bootstrap, SOURCE, numbers(0, ROWS), partitions=2)
    running = Drivers(cluster.bootstrap, tmp_path)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.timeout(1_200)  # four drivers, a master, two workers and two executors start, most of them one by one
@pytest.mark.usefixtures("paths")
def test_each_row_is_there_once_whoever_dies_or_comes_back(
    cluster: HeadraceCluster, drivers: Drivers, tmp_path: Path
) -> None:
    stage = drivers.stage
    stage.hold("before-commit-1")
    first = drivers.start()
    drivers.until_held("before-commit-1")
    drivers.kill(first)

    stage.hold("after-commit-1")
    second = drivers.start()
    drivers.until_held("after-commit-1")
    drivers.kill(second)
    assert sorted(readable(cluster.bootstrap, TARGET), key=int) == numbers(0, 2 * ROWS_PER_BATCH)

    with standalone(tmp_path / "spark") as master:
        stage.hold("writing-2")
        stage.hold("before-commit-3")
        third = drivers.start(master)
        machine = Machine(drivers.until_held("writing-2"), tmp_path / "spark")
        machine.pause()
        drivers.until_held("before-commit-3")
        stage.release("writing-2")
        drivers.until(lambda: stage.outcome("writing-2"), "the task that was taken for dead ends")
        assert stage.outcome("writing-2") != "written"
        machine.resume()

        fourth = drivers.start()
        assert fourth.wait(WITHIN_S) == 0, drivers.told()
        assert third.poll() is None, drivers.told(2)
        stage.release("before-commit-3")
        assert third.wait(WITHIN_S) == 3, drivers.told(2)
    assert "was taken over by a newer driver on " in drivers.told(2)
    found = sorted(readable(cluster.bootstrap, TARGET), key=int)
    assert found == numbers(0, ROWS)


class Machine:
    """An executor and the worker that watches over it stand still; Python's processes on it go on."""

    def __init__(self, task_pid: int, directory: Path) -> None:
        executor = parent_of(parent_of(task_pid))
        assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
        worker = parent_of(executor)
        assert b"deploy.worker.Worker" in Path(f"/proc/{worker}/cmdline").read_bytes()
        assert str(directory).encode() in Path(f"/proc/{worker}/cmdline").read_bytes()
        self._pids = (worker, executor)

    def pause(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in reversed(self._pids):
            os.kill(pid, signal.SIGCONT)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
