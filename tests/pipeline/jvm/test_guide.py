"""The guide from Spark's own connector, and the README: their code runs, and the guide names all options."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.spark import options, write_options
from tests.servers.process import BrokerProcess
from tests.spark.filling import fill, make_topic
from tests.spark.sink_stage import readable

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "FROM-SPARK-SQL-KAFKA.md").read_text()
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_code_of_the_guide_runs(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker.bootstrap, "orders", 2)
    fill(broker.bootstrap, "orders", [b"%d" % number for number in range(50)], partitions=2, key=b"anna")
    scope: dict[str, Any] = {"spark": spark, "checkpoint": str(tmp_path / "c"), "orders_written": 50}
    blocks = BLOCK.findall(GUIDE)
    assert len(blocks) >= 5
    for block in blocks:
        exec(block.replace("127.0.0.1:9092", broker.bootstrap), scope)
    spark.streams.removeListener(scope["listener"])
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap)
    (row,) = reader.option("subscribe", "counts").load().selectExpr("string(key)", "string(value)").collect()
    assert (row.key, row.value) == ("anna", '{"customer":"anna","count":50}')


@pytest.mark.usefixtures("spark")  # which `getOrCreate` finds
def test_the_code_of_the_readme_runs(broker: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    make_topic(broker.bootstrap, "sales")
    make_topic(broker.bootstrap, "sales-loud")
    fill(broker.bootstrap, "sales", [b"a", b"b"], key=b"anna")
    (block,) = BLOCK.findall(README.partition("## With Spark")[2].partition("\n## ")[0])
    exec(block.replace("127.0.0.1:9092", broker.bootstrap), {})
    assert re.search(r"61 6E 6E 61\]\| +2\|", capfd.readouterr().out)
    assert readable(broker.bootstrap, "sales-loud") == [b"A", b"B"]


def test_every_option_is_named() -> None:
    section = GUIDE.partition("## Options")[2].partition("\n## ")[0]
    reading, _, writing = section.partition("Writing:")
    for name in options.KNOWN:
        assert f"`{name}`" in reading, name
    for name in set(write_options.KNOWN) - {"checkpointLocation", "queryName", "foreachBatchId"}:
        assert f"`{name}`" in writing, name
    for name in re.findall(r"`([a-z][A-Za-z.]+)`", reading):
        assert name in options.KNOWN, name
