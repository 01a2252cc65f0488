"""Spark's own Kafka connector writes, batch-reads and streams."""

import json
import os
import subprocess
from pathlib import Path

from tests.interop.clients.confluent import Confluent
from tests.servers.process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
SPARK_PYTHON = ROOT / ".tools" / "spark" / "venv" / "bin" / "python"
JOB = Path(__file__).with_name("spark_job.py")
ROWS = 20_000
SPARK_S_MAX = 240


def test_sparks_own_connector_writes_reads_and_streams(
    broker: BrokerProcess, confluent: Confluent, topic: str, tmp_path: Path
) -> None:
    assert SPARK_PYTHON.exists(), "Spark is missing: run `make spark`"
    copy = f"{topic}-copy"
    for name in (topic, copy):
        confluent.create_topic(name, 4, {})
    done = subprocess.run(
        [str(SPARK_PYTHON), str(JOB), broker.bootstrap, topic, copy, str(tmp_path), str(ROWS)],
        env={**os.environ, "PYSPARK_PYTHON": str(SPARK_PYTHON)},
        capture_output=True,
        text=True,
        timeout=SPARK_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    each_once = {"rows": ROWS, "keys": ROWS, "sum": sum(range(ROWS)), "wrong": 0, "positions": ROWS}
    assert seen["batch"] == each_once
    assert seen["copy"] == each_once
    assert sum(seen["streamed"]) == ROWS
    assert len([rows for rows in seen["streamed"] if rows]) >= 4, "the limit per step was not kept"
