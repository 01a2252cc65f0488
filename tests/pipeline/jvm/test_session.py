"""Whose session a pipeline runs in, and what it says when there can be none."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace.pipeline import lake, verify
from headrace.pipeline.lake import LakeOptions
from headrace.pipeline.verify import VerifyOptions
from tests.cli.programs import PROGRAM, headrace_process
from tests.servers.process import BrokerProcess
from tests.spark.filling import fill, make_topic

WITHIN_S = 120.0


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess) -> str:
    make_topic(broker.bootstrap, "sessions")
    fill(broker.bootstrap, "sessions", [b'{"id": 1}'])
    return "sessions"


def test_a_session_that_runs_in_this_process_is_used_and_goes_on(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        options = LakeOptions((topic,), str(tmp_path / "table"), bootstrap=broker.bootstrap, once=True)
        assert lake.run(options).rows == 1
        assert verify.run(VerifyOptions(topic, broker.bootstrap)).ok
        assert spark.range(3).count() == 3 and spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("wrong", [("--master", "nonsense"), ("--conf", "spark.driver.memory=foo")])
def test_what_spark_does_not_start_with_is_exit_code_2(
    broker: BrokerProcess, topic: str, tmp_path: Path, wrong: tuple[str, str]
) -> None:
    for command in (["lake", topic, "--to", str(tmp_path / "table")], ["verify", topic]):
        done = headrace_process("pipeline", *command, *wrong, "--bootstrap", broker.bootstrap, within_s=WITHIN_S)
        told = done.stderr.decode()
        assert done.returncode == 2 and "Traceback (most recent" not in told, told
        assert "headrace: Spark does not start: " in told and "look at --master and --conf" in told


def test_a_query_that_fails_is_one_sentence_without_the_traces_of_spark(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    given = ["--to", str(tmp_path / "table"), "--once", "--source", "nothing=1", "--bootstrap", broker.bootstrap]
    done = headrace_process("pipeline", "lake", topic, *given, within_s=WITHIN_S)
    told = done.stderr.decode()
    assert done.returncode == 1 and told.splitlines()[-1].startswith("headrace: there is no option nothing; "), told
    assert "\tat org.apache.spark" not in told and "Traceback (most recent" not in told, told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_to_the_end_that_is_stopped_before_it_is_exit_code_1(
    broker: BrokerProcess, tmp_path: Path, number: signal.Signals
) -> None:
    name = f"stopped-{number.name}"
    make_topic(broker.bootstrap, name)
    fill(broker.bootstrap, name, [b'{"id": %d}' % one for one in range(300)])
    given = ["--to", str(tmp_path / "table"), "--once", "--json", "--bootstrap", broker.bootstrap]
    command = [PROGRAM, "pipeline", "lake", name, *given, "--rows-per-batch", "1", "--merge-files", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        patiently(lambda: any((tmp_path / "table").glob("event_date=*/*.parquet")))
        process.send_signal(number)
        out, told = process.communicate(timeout=WITHIN_S)
    finally:
        process.kill()
    assert process.returncode == 1, told.decode()
    assert "headrace: stopped before all was in the table: " in told.decode()
    done = json.loads(out)
    assert done["is_stopped"] and 0 < done["rows"] < 300
    assert pq.read_table(tmp_path / "table").num_rows >= done["rows"]


def patiently(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < until_s, "it takes too long"
        time.sleep(0.1)
