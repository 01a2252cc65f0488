"""Whose session a pipeline runs in, and what it says when there can be none."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline import lake, verify
from headrace.pipeline.lake import LakeOptions
from headrace.pipeline.verify import VerifyOptions
from tests.cli.programs import headrace_process
from tests.servers.process import BrokerProcess
from tests.spark.filling import fill, make_topic


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
        done = headrace_process("pipeline", *command, *wrong, "--bootstrap", broker.bootstrap, within_s=120)
        told = done.stderr.decode()
        assert done.returncode == 2 and "Traceback (most recent" not in told, told
        assert "headrace: Spark does not start: " in told and "look at --master and --conf" in told
