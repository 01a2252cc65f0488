"""A batch job whose driver is killed with -9: nothing of it is read, and committed readers wait for a minute, not for
the quarter of an hour after which its transactions time out."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.servers.cluster import running_cluster
from tests.spark.filling import fill

TOPIC = "job-out"
QUIET_S = 5.0
"""Brokers hear nothing of a job before it is so old."""
WITHIN_S = 300.0
JOB = """
import sys, time
import pyarrow as pa
from tests.spark.jvm.driver import session

def rows(batches):
    for _ in batches:
        while True:
            yield pa.RecordBatch.from_pydict({"value": pa.array([b"never"] * 10_000, pa.binary())})
            time.sleep(0.2)

frame = session("local[2]").range(0, 2, 1, 2).mapInArrow(rows, "value binary")
print("begins", flush=True)
writer = frame.write.format("headrace").option("kafka.bootstrap.servers", sys.argv[1]).option("topic", sys.argv[2])
writer.mode("append").save()
"""


@pytest.mark.hunt
def test_committed_readers_wait_a_minute_for_a_batch_job_whose_driver_was_killed(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster") as cluster:
        cluster.create_topic(TOPIC, 1, configs={"min.insync.replicas": "2"})
        with (tmp_path / "job.log").open("wb") as log:
            job = subprocess.Popen(
                [sys.executable, "-c", JOB, cluster.bootstrap, TOPIC],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )
        try:
            until_written(cluster.bootstrap, job, tmp_path / "job.log")
            time.sleep(3 * QUIET_S)  # what is killed sooner is left to time out: this is what the promise says
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        died = time.monotonic()
        fill(cluster.bootstrap, TOPIC, [b"later"], partitions=1)
        found = first_committed(cluster.bootstrap)
        held_s = time.monotonic() - died
    assert found == b"later"
    print(f"committed readers waited for {held_s:.0f} s after a driver was killed")


def until_written(bootstrap: str, job: "subprocess.Popen[bytes]", log: Path) -> None:
    """Something of the job, which nobody may read."""
    deadline = time.monotonic() + WITHIN_S
    while end_of(bootstrap) == 0:
        assert job.poll() is None, log.read_text()[-4_000:]
        assert time.monotonic() < deadline, log.read_text()[-4_000:]
        time.sleep(0.2)


def first_committed(bootstrap: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        message = consumer.poll(WITHIN_S)
        assert message is not None, "readers are held back still"
        return message.value()
    finally:
        consumer.close()


def end_of(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_uncommitted"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=60)[1]
    finally:
        consumer.close()
