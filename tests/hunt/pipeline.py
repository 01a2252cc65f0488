"""The lake and the exactly-once sink on a standalone Spark, while drivers, executors, leaders and the coordinator are
killed or paused; and the verdict: the table and the topic have each row of the input once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import pyarrow.dataset as ds

from headrace.core.internal_topics import TRANSACTION_STATE, partition_of
from headrace.core.transactional_id import query_key
from headrace.spark.scope import scope_of
from tests.servers.cluster import HeadraceCluster
from tests.spark.flow import Flow
from tests.spark.jvm.conftest import WORKERS
from tests.spark.jvm.staged import Stage
from tests.spark.sink_stage import readable

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 2
STATE_PARTITIONS = 50
ROWS_PER_S = 100
FORM = b'{"id": %d}'
WAIT_S_MAX = 600.0
FAILURES_MAX = 30
"""Of drivers that nobody has killed, in one round: a supervisor starts them again, but not for ever."""

EXECUTOR, SHORT_S, LONG_S = b"CoarseGrainedExecutorBackend", 2.0, 14.0
"""A pause is forgiven, or is so long that who is paused is taken for dead."""

KILL_AT = "kill the driver at "


class Wrong(AssertionError):
    """Rows are lost, or doubled."""


class Pipeline:
    """One round: two topics, a table, a checkpoint, and whoever drives now."""

    def __init__(self, cluster: HeadraceCluster, master: str, workers: Path, directory: Path, random: Random) -> None:
        self._cluster, self._master, self._workers, self._random = cluster, master, workers, random
        self._directory = directory
        (directory / "stage").mkdir(parents=True)
        self._stage = Stage(directory / "stage")
        self.source, self.target = f"{directory.name}-in", f"{directory.name}-out"
        for topic in (self.source, self.target):
            cluster.create_topic(topic, PARTITIONS, configs={"min.insync.replicas": "2"})
        self._drivers: list[subprocess.Popen[bytes]] = []
        self._paused: set[int] = set()
        self.failures = 0
        self.done: Counter[str] = Counter()

    # Whoever drives.

    def drive(self) -> None:
        """There is somebody who does."""
        alive = [one for one in self._drivers if one.poll() is None and one.pid not in self._paused]
        if alive:
            return
        if self._drivers and self._drivers[-1].returncode not in (0, -signal.SIGKILL):
            self.failures += 1
            assert self.failures < FAILURES_MAX, self._told()
        self._start()

    def _start(self) -> None:
        places = [self._cluster.bootstrap, self.source, self.target, str(self._directory)]
        known = [str(WORKERS), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with (self._directory / f"driver-{len(self._drivers)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.hunt.pipeline_driver", self._master, *places],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(known)},
                start_new_session=True,
            )
        self._drivers.append(process)

    def _told(self) -> str:
        """By the last driver, and by the nodes: one that ended by itself says so."""
        driver = (self._directory / f"driver-{len(self._drivers) - 1}.log").read_text(errors="replace")[-4_000:]
        nodes = [
            f"{node.name}, {'runs' if node.process and node.process.poll() is None else 'ended'}: {node.log_tail()}"
            for node in self._cluster.nodes.values()
        ]
        return "\n".join([driver, *nodes])

    def _batches(self) -> int:
        """That the sink has committed."""
        return sum(1 for _ in (self._directory / "stage").glob("after-commit-*.reached"))

    def _until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WAIT_S_MAX
        while not condition():
            assert time.monotonic() < deadline, f"not in {WAIT_S_MAX:.0f} s: {what}\n{self._told()}"
            self.drive()
            time.sleep(0.1)

    # Deeds.

    def do(self, deed: str) -> None:
        """Once it has gone on by a batch since the last one."""
        before = self._batches()
        self._until(lambda: self._batches() > before, "a batch more is committed")
        time.sleep(self._random.uniform(0, 2))
        self.done[deed] += self._did(deed)

    def _did(self, deed: str) -> bool:
        """False when there was nobody to do it to."""
        if deed.startswith(KILL_AT):
            return self._kill_at(deed.removeprefix(KILL_AT))
        kind, _, whom = deed.partition(" the ")
        pause_s = self._random.choice((SHORT_S, LONG_S))
        if whom == "driver":
            return self._harm_driver(kind, pause_s)
        if whom == "executor":
            return self._harm_executor(kind, pause_s)
        return self._harm_node(kind, self._leader() if whom == "leader" else self._coordinator(), pause_s)

    def _kill_at(self, place: str) -> bool:
        """Where it hurts. Whoever is held there goes on when the driver is dead."""
        held = f"{place}-{self._batches() + 2}"
        self._stage.hold(held)
        self._until(lambda: self._stage.reached_by(held), f"somebody is at {held}")
        self._kill(self._drivers[-1])
        self._stage.release(held)
        return True

    def _harm_driver(self, kind: str, pause_s: float) -> bool:
        driver = self._drivers[-1]
        if kind == "kill":
            self._kill(driver)
            return True
        self._signal(driver, signal.SIGSTOP)
        if pause_s == LONG_S:  # another one comes in its place, and must not be disturbed by it
            before = self._batches()
            self._paused.add(driver.pid)
            self._until(lambda: self._batches() > before, "the second driver has committed a batch")
        else:
            time.sleep(pause_s)
        self._signal(driver, signal.SIGCONT)
        self._paused.discard(driver.pid)
        return True

    def _harm_executor(self, kind: str, pause_s: float) -> bool:
        executors = sorted(executors_below(self._workers))
        if not executors:
            return False
        victim = self._random.choice(executors)
        try:
            os.kill(victim, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        except ProcessLookupError:
            return False
        if kind == "pause":
            time.sleep(pause_s)
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGCONT)
        return True

    def _harm_node(self, kind: str, victim: int, pause_s: float) -> bool:
        if victim < 0:
            return False
        if kind == "kill":
            self._cluster.nodes[victim].kill()
            time.sleep(pause_s)
            self._cluster.nodes[victim].start()
        else:
            self._cluster.pause(victim)
            time.sleep(pause_s)
            self._cluster.resume(victim)
        return True

    def _leader(self) -> int:
        topic = self._random.choice((self.source, self.target))
        return self._cluster.leader_of(topic, self._random.randrange(PARTITIONS))

    def _coordinator(self) -> int:
        checkpoint = self._directory / "checkpoint"
        query_id = json.loads((checkpoint / "metadata").read_text())["id"]
        scope = scope_of(None, str(checkpoint), self.target).name
        return self._cluster.leader_of(TRANSACTION_STATE, partition_of(query_key(scope, query_id), STATE_PARTITIONS))

    def _kill(self, driver: "subprocess.Popen[bytes]") -> None:
        """With its JVM."""
        self._signal(driver, signal.SIGKILL)
        driver.wait()

    @staticmethod
    def _signal(driver: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, number)

    # The end.

    def finish(self) -> None:
        (self._directory / "finish").touch()
        self._until(lambda: any(one.poll() == 0 for one in self._drivers), "a driver has come to the end")

    def check(self, sent: int) -> None:
        table = ds.dataset(str(self._directory / "table"), format="parquet", partitioning="hive").to_table(["id"])
        judge("the table", table.column("id").to_pylist(), range(sent))
        values = readable(self._cluster.bootstrap, self.target)
        judge("the topic", (int(json.loads(value)["id"]) for value in values), range(sent))

    def close(self) -> None:
        for driver in self._drivers:
            if driver.poll() is None:
                self._kill(driver)


def judge(what: str, found: Iterable[int], wanted: Iterable[int]) -> None:
    counted, known = Counter(found), set(wanted)
    lost, doubled = known - set(counted), [one for one, times in counted.items() if times > 1]
    if lost or doubled or counted.keys() - known:
        raise Wrong(f"{what}: {len(lost)} rows lost {sorted(lost)[:5]}, {len(doubled)} doubled {sorted(doubled)[:5]}")


def executors_below(directory: Path) -> Iterable[int]:
    """The processes that work in that directory."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if EXECUTOR in (process / "cmdline").read_bytes() and str(process.joinpath("cwd").readlink()).startswith(
                str(directory)
            ):
                yield int(process.name)


def in_turn(deeds: Sequence[str], random: Random) -> Iterator[str]:
    """All of them in some order, and again in another."""
    while True:
        yield from random.sample(deeds, len(deeds))


def play(pipeline: Pipeline, bootstrap: str, deeds: Iterator[str], is_over: Callable[[], bool]) -> int:
    """Returns how many rows there were; Wrong if they are not there once each."""
    with Flow(bootstrap, pipeline.source, PARTITIONS, ROWS_PER_S, FORM) as flow:
        try:
            while not is_over():
                pipeline.do(next(deeds))
            sent = flow.finish()
            pipeline.finish()
        finally:
            pipeline.close()
    pipeline.check(sent)
    return sent
