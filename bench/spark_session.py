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
    (jvm_s, python_s), broker_s, began_s = _cpu_s(jvm_pid, others), broker.cpu_s(), time.monotonic()
    job()
    wall_s = time.monotonic() - began_s
    after_jvm_s, after_python_s = _cpu_s(jvm_pid, others)
    return Spent(wall_s, after_jvm_s - jvm_s, after_python_s - python_s, broker.cpu_s() - broker_s)


def _cpu_s(jvm_pid: int, others: Sequence[int]) -> tuple[float, float]:
    """Of a JVM, and of all that it has started, those that have ended among them."""
    children: dict[int, list[int]] = {}
    times: dict[int, list[int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            pid = int(directory.name)
            children.setdefault(int(fields[1]), []).append(pid)
            times[pid] = [int(field) for field in fields[11:15]]
    own, started = sum(times[jvm_pid][:2]), sum(times[jvm_pid][2:])
    orphans = [pid for pid in children[os.getpid()] if pid != jvm_pid and pid not in others]
    waiting = [*children.get(jvm_pid, []), *orphans]
    while waiting:
        pid = waiting.pop()
        started += sum(times[pid])
        waiting += children.get(pid, [])
    return own / CLOCK_TICKS_PER_S, started / CLOCK_TICKS_PER_S
