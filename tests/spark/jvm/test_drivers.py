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
    """All on one checkpoint. They are made ready while others run, for that takes longest."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (directory / "stage").mkdir()
        self.stage = Stage(directory / "stage")

    def make_ready(self, name: str, master: str = "local[2]") -> None:
        """Until it is told to begin."""
        self.stage.hold(f"start-{name}")
        places = [SOURCE, TARGET, str(self._directory / "checkpoint"), str(self._directory / "stage")]
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.jvm.driver", name, master, self._bootstrap, *places],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )

    def begin(self, name: str) -> None:
        self.stage.release(f"start-{name}")

    def kill(self, name: str) -> None:
        """With its JVM."""
        process = self._processes[name]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def until(self, condition: Callable[[], object], name: str, what: str) -> None:
        """While that one runs."""
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert not self.has_ended(name), f"driver {name} has ended before {what}\n{self.told(name)}"
            assert time.monotonic() < deadline, f"not in {WITHIN_S:.0f} s: {what}\n{self.told(name)}"
            time.sleep(0.05)

    def until_held(self, name: str, place: str) -> int:
        """The process that is held there."""
        self.until(lambda: self.stage.reached_by(place), name, f"somebody is held at {place}")
        return self.stage.reached_by(place)

    def has_ended(self, name: str) -> bool:
        return self._processes[name].poll() is not None

    def status(self, name: str) -> int:
        """In the end."""
        return self._processes[name].wait(WITHIN_S)

    def told(self, name: str) -> str:
        return self._log(name).read_text(errors="replace")[-6_000:]

    def close(self) -> None:
        for name in self._processes:
            if not self.has_ended(name):
                self.kill(name)
        for hold in (self._directory / "stage").glob("*.hold"):
            hold.unlink()

    def _log(self, name: str) -> Path:
        return self._directory / f"driver-{name}.log"


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
    drivers.make_ready("a")
    drivers.make_ready("b")
    with standalone(tmp_path / "spark") as master:
        drivers.make_ready("c", master)
        stage.hold("before-commit-1")
        drivers.begin("a")
        drivers.until_held("a", "before-commit-1")
        drivers.kill("a")

        stage.hold("after-commit-1")
        drivers.begin("b")
        drivers.until_held("b", "after-commit-1")
        drivers.kill("b")
        assert sorted(readable(cluster.bootstrap, TARGET), key=int) == numbers(0, 2 * ROWS_PER_BATCH)

        stage.hold("writing-2")
        stage.hold("before-commit-3")
        drivers.begin("c")
        machine = Machine(drivers.until_held("c", "writing-2"), tmp_path / "spark")
        machine.pause()
        drivers.make_ready("d")
        drivers.until_held("c", "before-commit-3")
        stage.release("writing-2")
        drivers.until(lambda: stage.outcome("writing-2"), "c", "the task that was taken for dead ends")
        assert stage.outcome("writing-2") != "written"
        machine.resume()

        drivers.begin("d")
        assert drivers.status("d") == 0, drivers.told("d")
        assert not drivers.has_ended("c"), drivers.told("c")
        stage.release("before-commit-3")
        assert drivers.status("c") == 3, drivers.told("c")
    assert "was taken over by a newer driver on " in drivers.told("c")
    assert sorted(readable(cluster.bootstrap, TARGET), key=int) == numbers(0, ROWS)


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
