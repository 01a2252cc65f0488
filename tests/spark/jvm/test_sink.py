"""The sink under a real Spark, against a real broker process."""

import asyncio
import json
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.streaming.query import StreamingQuery

from headrace.client.commit_group import Last
from headrace.spark.driver_claims import Driver, DriverClaims
from headrace.spark.foreach_batch import foreach_batch
from headrace.spark.scope import scope_of
from headrace.spark.task import Group
from tests.servers.process import BrokerProcess
from tests.spark.filling import fill, make_topic, numbers
from tests.spark.jvm.running import run_out
from tests.spark.sink_stage import readable

names = count(1)
COLUMNS = ["key", "value", "topic", "partition", "timestamp", "headers"]


@pytest.fixture
def source(broker: BrokerProcess) -> str:
    """A topic of two partitions to read from."""
    name = f"in-{next(names)}"
    make_topic(broker.bootstrap, name, 2)
    return name


@pytest.fixture
def target(broker: BrokerProcess) -> str:
    """A topic of two partitions to write to."""
    name = f"out-{next(names)}"
    make_topic(broker.bootstrap, name, 2)
    return name


@pytest.fixture
def stream(spark: SparkSession, broker: BrokerProcess, source: str) -> DataFrame:
    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap)
    given = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "400"}
    return reader.options(**given).load().select("value")


@pytest.fixture
def start(broker: BrokerProcess, target: str, stream: DataFrame) -> Callable[..., StreamingQuery]:
    def started(checkpoint: Path, *, once: bool = True, **options: str) -> StreamingQuery:
        writer = stream.writeStream.format("headrace").option("checkpointLocation", str(checkpoint))
        writer = writer.options(**{"kafka.bootstrap.servers": broker.bootstrap, "topic": target, **options})
        return run_out(writer) if once else writer.start()

    return started


def forget_last(checkpoint: Path) -> None:
    """As when Spark died after the sink had committed a batch, and before it had logged that."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def as_numbers(values: list[bytes]) -> list[bytes]:
    return sorted(values, key=int)


def test_a_job_writes_all_columns_and_they_are_read_back(
    spark: SparkSession, broker: BrokerProcess, target: str
) -> None:
    rows = [
        (b"k", b"v", target, 1, "2024-05-06 07:08:09.123", [("h", b"1"), ("h", None)]),
        (None, None, target, 0, "1970-01-01 00:00:01", None),
    ]
    kind = "key binary, value binary, topic string, partition int, timestamp string"
    frame = spark.createDataFrame(rows, f"{kind}, headers array<struct<key:string,value:binary>>")
    frame = frame.withColumn("timestamp", col("timestamp").cast("timestamp"))
    frame.write.format("headrace").mode("append").option("kafka.bootstrap.servers", broker.bootstrap).save()
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap)
    found = reader.options(subscribe=target, includeHeaders="true").load().select(*COLUMNS)
    assert sorted(map(tuple, found.collect()), key=str) == sorted(map(tuple, frame.collect()), key=str)


def test_a_job_that_fails_leaves_nothing_to_read(spark: SparkSession, broker: BrokerProcess, target: str) -> None:
    frame = spark.range(0, 1_000, 1, 4).selectExpr("string(if(id = 990, raise_error('it was told to fail'), id)) value")
    with pytest.raises(Exception, match="told to fail"):
        frame.write.format("headrace").mode("append").options(
            **{"kafka.bootstrap.servers": broker.bootstrap, "topic": target}
        ).save()
    assert readable(broker.bootstrap, target) == []


def test_a_stream_is_written_once_through_restarts_and_batches_that_are_done_again(
    broker: BrokerProcess, source: str, target: str, start: Callable[..., StreamingQuery], tmp_path: Path
) -> None:
    checkpoint = tmp_path / "c"
    for begin in range(0, 3_000, 1_000):
        fill(broker.bootstrap, source, numbers(begin, begin + 1_000), partitions=2)
        start(checkpoint)
        forget_last(checkpoint)
    start(checkpoint)
    assert as_numbers(readable(broker.bootstrap, target)) == numbers(0, 3_000)


def test_at_least_once_writes_what_is_done_again_once_more(
    broker: BrokerProcess, source: str, target: str, start: Callable[..., StreamingQuery], tmp_path: Path
) -> None:
    """So that the test above is known to test something."""
    fill(broker.bootstrap, source, numbers(0, 100), partitions=2)
    for _ in range(2):
        start(tmp_path / "c", deliveryGuarantee="at_least_once")
        forget_last(tmp_path / "c")
    assert as_numbers(readable(broker.bootstrap, target)) == sorted([*numbers(0, 100)] * 2, key=int)


def test_a_copied_checkpoint_is_refused_with_a_way_out(
    broker: BrokerProcess, source: str, start: Callable[..., StreamingQuery], tmp_path: Path
) -> None:
    fill(broker.bootstrap, source, numbers(0, 10), partitions=2)
    start(tmp_path / "c")
    shutil.copytree(tmp_path / "c", tmp_path / "copy")
    fill(broker.bootstrap, source, numbers(10, 20), partitions=2)
    with pytest.raises(StreamingQueryException, match="if it is a copy, give option scope=<another name>"):
        start(tmp_path / "copy")
    start(tmp_path / "copy", scope="the-copy")


def test_an_older_driver_stops_and_names_the_newer_ones_host(
    broker: BrokerProcess, source: str, target: str, start: Callable[..., StreamingQuery], tmp_path: Path
) -> None:
    async def newer(query_id: str) -> DriverClaims:
        claims = DriverClaims()
        scope = scope_of(None, str(tmp_path / "c"), target).name
        driver = Driver("host-b", "another-run", 1 << 50)
        await claims.take(broker.bootstrap, Group(scope, query_id, 1 << 40, driver.run_id), driver, Last(-1, None))
        return claims

    async def both(query: StreamingQuery) -> None:
        claims = await newer(query.id)
        try:
            await asyncio.to_thread(fill, broker.bootstrap, source, numbers(10, 20), partitions=2)
            await asyncio.to_thread(query.processAllAvailable)
        finally:
            await claims.close()

    fill(broker.bootstrap, source, numbers(0, 10), partitions=2)
    query = start(tmp_path / "c", once=False)
    try:
        query.processAllAvailable()
        with pytest.raises(StreamingQueryException, match="taken over by a newer driver on host-b"):
            asyncio.run(both(query))
    finally:
        query.stop()
    assert as_numbers(readable(broker.bootstrap, target)) == numbers(0, 10)
    start(tmp_path / "c")
    assert as_numbers(readable(broker.bootstrap, target)) == numbers(0, 20)


def test_update_mode_by_foreach_batch(
    broker: BrokerProcess, source: str, target: str, stream: DataFrame, tmp_path: Path
) -> None:
    def to_record(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("string(bucket) key", "to_json(struct(bucket, count)) value")

    checkpoint = tmp_path / "c"
    write = foreach_batch(broker.bootstrap, target, checkpoint_location=str(checkpoint), columns=to_record)
    counts = stream.selectExpr("cast(string(value) as long) % 5 bucket").groupBy("bucket").count()
    for begin in (0, 200):
        fill(broker.bootstrap, source, numbers(begin, begin + 200), partitions=2)
        for again in (False, True):
            writer = counts.writeStream.outputMode("update").foreachBatch(write)
            run_out(writer.option("checkpointLocation", str(checkpoint)))
            if not again:
                forget_last(checkpoint)
    told: dict[int, list[Any]] = {}
    for value in readable(broker.bootstrap, target):
        found = json.loads(value)
        told.setdefault(found["bucket"], []).append(found["count"])
    assert {bucket: sorted(numbers) for bucket, numbers in told.items()} == {bucket: [40, 80] for bucket in range(5)}


def test_complete_mode_has_the_whole_result_of_each_batch_once(
    broker: BrokerProcess, source: str, target: str, stream: DataFrame, tmp_path: Path
) -> None:
    counts = stream.selectExpr("cast(string(value) as long) % 5 bucket").groupBy("bucket").count()
    records = counts.selectExpr("string(bucket) key", "to_json(struct(bucket, count)) value")
    for begin in (0, 200):
        fill(broker.bootstrap, source, numbers(begin, begin + 200), partitions=2)
        for again in (False, True):
            writer = records.writeStream.outputMode("complete").format("headrace")
            writer = writer.options(**{"kafka.bootstrap.servers": broker.bootstrap, "topic": target})
            run_out(writer.option("checkpointLocation", str(tmp_path / "c")))
            if not again:
                forget_last(tmp_path / "c")
    told = sorted((found["count"], found["bucket"]) for found in map(json.loads, readable(broker.bootstrap, target)))
    assert told == [(count, bucket) for count in (40, 80) for bucket in range(5)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topicc": "x"}, r"there is no option topicc; is topic meant\?"),
        ({"kafka.acks": "0"}, "option kafka.acks=0 needs deliveryGuarantee=at_least_once"),
    ],
)
def test_an_option_that_cannot_be_is_told_in_one_sentence(
    options: dict[str, str], sentence: str, start: Callable[..., StreamingQuery], tmp_path: Path
) -> None:
    with pytest.raises(StreamingQueryException, match=sentence):
        start(tmp_path / "c", **options)
