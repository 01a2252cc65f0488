"""A Spark session of this machine's cores with Spark's own Kafka connector beside ours, and what it spends on a job."""

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from tests.servers.process import CLOCK_TICKS_PER_S, BrokerProcess

JARS = Path(".tools/spark/jars")
PR_SET_CHILD_SUBREAPER = 36
SETTINGS = {
    "spark.driver.memory": "2g",  # with the 1 GB that Spark takes by itself, the tuned connector runs out of memory
    "spark.python.unix.domain.socket.enabled": "true",  # as our guide says; Spark's own connector has no Python
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # Values do not repeat in life: a dictionary of them would make a scan look cheap.
    "spark.hadoop.parquet.enable.dictionary": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


class Spent(NamedTuple):
    """By one job. `jvm_s` and `python_s` are CPU of Spark's JVM and of the Python processes that it started."""

    wall_s: float
    jvm_s: float
    python_s: float
    broker_s: float

    @property
    def cpu_s(self) -> float:
        return self.jvm_s + self.python_s


@contextmanager
def session(scratch: Path) -> Iterator[SparkSession]:
    """Python processes whose parent has ended become ours, and are still counted."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = ",".join(str(jar.resolve()) for jar in sorted(JARS.glob("*.jar")))
    builder = SparkSession.builder.master("local[2]").appName("headrace bench").config("spark.jars", jars)
    for key, value in {**SETTINGS, "spark.sql.warehouse.dir": str(scratch / "warehouse")}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def spent(spark: SparkSession, job: Callable[[], object], broker: BrokerProcess, others: Sequence[int]) -> Spent:
    """`others`: processes that this one has started and that are not Spark's, the brokers."""
    jvm_pid: int = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # PySpark starts the JVM itself
    before, broker_s, began_s = _processes(jvm_pid, others), broker.cpu_s(), time.monotonic()
    job()
    wall_s = time.monotonic() - began_s
    jvm_s, python_s = _used_s(jvm_pid, before, _processes(jvm_pid, others))
    return Spent(wall_s, jvm_s, python_s, broker.cpu_s() - broker_s)


class _Process(NamedTuple):
    """Ticks of its own, and of its children that it has waited for."""

    parent: int
    own: int
    waited_for: int
    began: int


def _used_s(jvm_pid: int, before: dict[int, _Process], after: dict[int, _Process]) -> tuple[float, float]:
    """By the JVM, and by what it started. Spark's daemons do not wait for their workers, so that what a worker has used
    in its life is nowhere when it ends: only what was used by those that are still there counts, and by those that the
    JVM has waited for."""
    python = 0
    for pid, now in after.items():
        then = before.get(pid)
        if pid != jvm_pid:
            python += now.own - (then.own if then is not None and then.began == now.began else 0)
    gone = (one for pid, one in before.items() if pid not in after and one.parent == jvm_pid)
    ended = after[jvm_pid].waited_for - before[jvm_pid].waited_for - sum(one.own + one.waited_for for one in gone)
    jvm = after[jvm_pid].own - before[jvm_pid].own
    return jvm / CLOCK_TICKS_PER_S, (python + max(0, ended)) / CLOCK_TICKS_PER_S


def _processes(jvm_pid: int, others: Sequence[int]) -> dict[int, _Process]:
    """The JVM, and all that it has started."""
    found: dict[int, _Process] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            own, waited_for = (int(fields[at]) + int(fields[at + 1]) for at in (11, 13))
            found[int(directory.name)] = _Process(int(fields[1]), own, waited_for, int(fields[19]))
    orphans = [pid for pid, one in found.items() if one.parent == os.getpid() and pid not in others]
    waiting, ours = [jvm_pid, *orphans], {}
    while waiting:
        pid = waiting.pop()
        if pid not in ours:
            ours[pid] = found[pid]
            waiting += [child for child, one in found.items() if one.parent == pid]
    return ours
