"""Pipelines on a standalone master with two workers, by the command and by spark-submit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from headrace.cli import submit
from tests.cli.programs import headrace_process
from tests.servers.process import BrokerProcess
from tests.servers.spark import JAVA, SUBMIT, standalone
from tests.spark.filling import fill, make_topic

WITHIN_S = 420.0
CONF = {
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
}
VALUES = [b'{"id": %d}' % number for number in range(40)]


@pytest.mark.timeout(900)  # six JVMs start, one after the other
def test_lake_by_the_command_and_verify_by_spark_submit(broker: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker.bootstrap, "spread", 4)
    fill(broker.bootstrap, "spread", VALUES, partitions=4)
    with standalone(tmp_path / "spark") as master:
        conf = [part for key, value in CONF.items() for part in ("--conf", f"{key}={value}")]
        told = ["--to", str(tmp_path / "table"), "--once", "--json", "--bootstrap", broker.bootstrap]
        done = headrace_process("pipeline", "lake", "spread", *told, "--master", master, *conf, within_s=WITHIN_S)
        assert done.returncode == 0, done.stderr.decode()
        assert json.loads(done.stdout)["rows"] == len(VALUES)
        script = [submit.__file__, "verify", "spread", "--json", "--bootstrap", broker.bootstrap]
        submitted = subprocess.run(
            [SUBMIT, "--master", master, *conf, *script],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=WITHIN_S,
        )
        assert submitted.returncode == 0, submitted.stderr.decode()
        report = json.loads(submitted.stdout.decode().splitlines()[-1])
    assert report["ok"] and report["records"] == len(VALUES)
    assert any((tmp_path / "spark" / f"work-{number}").glob("app-*/*") for number in (1, 2))
    rows = ds.dataset(str(tmp_path / "table"), format="parquet", partitioning="hive").to_table()
    assert sorted(rows.column("id").to_pylist()) == list(range(len(VALUES)))
