"""One Spark session, one broker process and one cluster for all tests of this folder: a session takes seconds to start.

Spark's own connector is in the session too, so that both can run beside each other.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.servers.cluster import HeadraceCluster, running_cluster
from tests.servers.headrace import headrace_broker
from tests.servers.process import BrokerProcess
from tests.servers.s3 import CREDENTIALS
from tests.servers.spark import JAVA

MEMORY = Path("/dev/shm")
WORKERS = Path(__file__).parent / "workers"
JARS = Path(__file__).resolve().parents[3] / ".tools" / "spark" / "jars"
SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # A write of the default one to a local disk takes 30 ms; this one is not safe against two drivers.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="headrace-spark-", dir=MEMORY if MEMORY.is_dir() else None))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def spark(scratch: Path) -> Iterator[SparkSession]:
    """Finds the data source by itself: nothing is registered."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.update(CREDENTIALS)  # tasks read a tier by themselves, and have them from Spark's process
    os.environ["PYTHONPATH"] = os.pathsep.join([str(WORKERS), *filter(None, [os.environ.get("PYTHONPATH")])])
    builder = SparkSession.builder.master("local[2]").appName("headrace tests")
    places = {"spark.sql.warehouse.dir": str(scratch / "warehouse"), "spark.jars": connector_jars()}
    for key, value in {**SETTINGS, **places}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def connector_jars() -> str:
    found = sorted(map(str, JARS.glob("*.jar")))
    assert found, "Spark's own connector is missing: run `make spark`"
    return ",".join(found)


@pytest.fixture(scope="session")
def cluster(scratch: Path) -> Iterator[HeadraceCluster]:
    """Three broker processes, for tests that kill them, or topics of them, or records."""
    with running_cluster(scratch / "cluster", settings={"log.retention.check.interval.ms": "200"}) as running:
        yield running


@pytest.fixture(scope="session")
def broker(scratch: Path) -> Iterator[BrokerProcess]:
    process = headrace_broker(scratch / "broker")
    try:
        process.start()
        yield process
    finally:
        process.kill()
