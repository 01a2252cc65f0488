"""The source under a real Spark, against a real broker process."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from headrace.client import Admin
from headrace.spark.listener import GroupListener, QueryLag
from headrace.testing import Cluster
from tests.cli.programs import headrace_process
from tests.servers.process import BrokerProcess
from tests.spark.fetches import Fetches, fetches
from tests.spark.filling import fill, make_topic, numbers
from tests.spark.jvm.running import Seen, run, run_out

__all__ = ["fetches"]

names = count(1)
PYTHON_PROCESSES_MAX = 4
"""Two tasks run at a time; Spark may have started a process anew."""


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """Of two partitions."""
    name = f"topic-{next(names)}"
    make_topic(broker.bootstrap, name, 2)
    return name


@pytest.fixture
def read(spark: SparkSession, broker: BrokerProcess, topic: str) -> Callable[..., DataFrame]:
    def reading(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**{"subscribe": topic, **options}).load()

    return reading


@pytest.fixture
def stream(spark: SparkSession, broker: BrokerProcess, topic: str) -> Callable[..., DataFrame]:
    def reading(**options: str) -> DataFrame:
        reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap)
        return reader.options(**{"subscribe": topic, "startingOffsets": "earliest", **options}).load()

    return reading


def test_a_batch_has_the_rows_and_columns_of_sparks_own_connector(
    broker: BrokerProcess, topic: str, read: Callable[..., DataFrame]
) -> None:
    fill(broker.bootstrap, topic, [b"a", None], partitions=2, key=b"k")
    frame = read()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    rows = [tuple(row) for row in frame.withColumn("timestamp", col("timestamp").cast("double")).collect()]
    first = (bytearray(b"k"), bytearray(b"a"), topic, 0, 0, 1.0, 0)
    second = (bytearray(b"k"), None, topic, 1, 0, 1.001, 0)
    assert sorted(rows, key=lambda row: row[3]) == [first, second]


def test_a_batch_is_read_from_time_to_time_and_limits_of_a_trigger_are_no_matter(
    broker: BrokerProcess, topic: str, read: Callable[..., DataFrame]
) -> None:
    fill(broker.bootstrap, topic, numbers(0, 20), partitions=2)
    times = {"startingTimestamp": "1004", "endingTimestamp": "1010", "maxOffsetsPerTrigger": "1"}
    rows = read(**times).selectExpr("int(string(value)) number").collect()
    assert sorted(row.number for row in rows) == list(range(4, 10))


def test_headers_come_on_request(broker: BrokerProcess, topic: str, read: Callable[..., DataFrame]) -> None:
    fill(broker.bootstrap, topic, [b"a"], headers=[("h", b"1"), ("h", None), ("ü", b"")])
    fill(broker.bootstrap, topic, [b"b"])
    rows = read(includeHeaders="true").orderBy("offset").select("headers").collect()
    assert [tuple(pair) for pair in rows[0].headers] == [("h", bytearray(b"1")), ("h", None), ("ü", bytearray(b""))]
    assert rows[1].headers is None


def test_metadata_come_on_request_or_by_name(broker: BrokerProcess, topic: str, read: Callable[..., DataFrame]) -> None:
    for value in (b"a", b"b"):
        fill(broker.bootstrap, topic, [value])
    whole = read(includeMetadata="true", includeHeaders="true")
    assert whole.columns[-3:] == ["headers", "leaderEpoch", "producerId"]
    assert "producerId" not in read().columns
    named = read("producerId long, value binary, leaderEpoch int")
    rows = {bytes(row.value): (row.leaderEpoch, row.producerId) for row in named.collect()}
    assert rows == {bytes(row.value): (row.leaderEpoch, row.producerId) for row in whole.collect()}
    assert rows[b"a"][1] != rows[b"b"][1] and min(map(min, rows.values())) >= 0


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_many_rows_in_small_tasks_are_each_there_once(
    broker: BrokerProcess, topic: str, read: Callable[..., DataFrame], compression: str
) -> None:
    fill(broker.bootstrap, topic, numbers(0, 30_000), partitions=2, compression=compression)
    frame = read("value binary, offset long", minPartitions="5", maxRecordsPerPartition="8000")
    assert frame.rdd.getNumPartitions() == 5
    assert frame.columns == ["value", "offset"]
    told = frame.selectExpr("count(*) n", "sum(cast(string(value) as long)) s", "count(distinct value) d").collect()
    assert tuple(told[0]) == (30_000, 30_000 * 29_999 // 2, 30_000)


@pytest.fixture(params=["true", "false"])
def pushed(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether Spark hands filters down."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", request.param)
    yield request.param == "true"
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_filters_give_the_same_rows_whether_spark_hands_them_down_or_not(
    broker: BrokerProcess, topic: str, read: Callable[..., DataFrame], pushed: bool
) -> None:
    fill(broker.bootstrap, topic, numbers(0, 2_000), partitions=2)
    given = {"filterPushdown": "true"}
    some = read(**given).where("partition = 1 and offset >= 10 and offset < 20 and topic is not null")
    assert sorted(int(row.value) for row in some.collect()) == list(range(21, 41, 2))
    assert some.rdd.getNumPartitions() == (1 if pushed else 2)
    late = read(**given).where("timestamp >= timestamp'1970-01-01 00:00:02.9'")
    assert late.count() == 100
    two = "timestamp'1970-01-01 00:00:02.9', timestamp'1970-01-01 00:00:02.95'"
    same = read(**given).where(f"timestamp <=> {two.split(',')[0]}")
    chosen = read(**given).where(f"timestamp in ({two})").union(same)
    assert sorted(int(row.value) for row in chosen.collect()) == [1_900, 1_900, 1_950]
    assert read(**given, minPartitions="4").where("offset = 3 and topic = 'another'").collect() == []


@pytest.mark.usefixtures("pushed")
def test_what_is_loaded_once_may_be_filtered_in_many_ways(
    spark: SparkSession, broker: BrokerProcess, topic: str, read: Callable[..., DataFrame]
) -> None:
    fill(broker.bootstrap, topic, numbers(0, 200), partitions=2)
    frame = read()
    assert frame.where("offset = 5").count() == 2
    assert frame.count() == 200
    both = frame.where("partition = 0").union(frame.where("partition = 1"))
    assert {row.partition: row["count"] for row in both.groupBy("partition").count().collect()} == {0: 100, 1: 100}
    later = frame.where("offset >= 90").alias("later")
    assert later.join(frame.where("partition = 0").alias("first"), "value").count() == 10
    frame.createOrReplaceTempView("loaded_once")
    counts = "select (select count(*) from loaded_once where offset < 3), (select count(*) from loaded_once)"
    assert tuple(spark.sql(counts).collect()[0]) == (6, 200)


def test_an_option_that_there_is_not_is_told_in_one_sentence(read: Callable[..., DataFrame]) -> None:
    with pytest.raises(Exception, match=r"there is no option startingofset; is startingOffsets meant\?"):
        read(startingOfset="earliest").collect()
    with pytest.raises(AnalysisException, match="includeHeaders is true or false, not 'perhaps'"):
        read(includeHeaders="perhaps")


def test_a_stream_tells_it_no_worse(stream: Callable[..., DataFrame], tmp_path: Path) -> None:
    with pytest.raises(StreamingQueryException, match=r"option endingOffsets is one of spark\.read") as raised:
        run(stream(endingOffsets="latest"), tmp_path / "c", Seen())
    assert "UnboundLocalError" not in str(raised.value)


def test_a_stream_is_read_in_limited_batches_and_goes_on_from_its_checkpoint(
    broker: BrokerProcess, topic: str, stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    fill(broker.bootstrap, topic, numbers(0, 1_000), partitions=2)
    seen = Seen()
    run(stream(maxOffsetsPerTrigger="300"), tmp_path / "c", seen)
    assert [len(batch) for batch in seen.batches] == [300, 300, 300, 100]
    assert seen.values == numbers(0, 1_000)
    fill(broker.bootstrap, topic, numbers(1_000, 1_010), partitions=2)
    run(stream(), tmp_path / "c", seen)
    assert seen.values == numbers(0, 1_010)
    assert len(seen.batches) == 5


def test_a_first_batch_from_the_latest_offset_that_failed_is_done_again_from_there(
    broker: BrokerProcess, topic: str, stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    fill(broker.bootstrap, topic, numbers(0, 10))
    seen = Seen()
    seen.fails = True
    writer = stream(startingOffsets="latest").writeStream.option("checkpointLocation", str(tmp_path / "c"))
    query = writer.foreachBatch(seen).start()
    try:
        with pytest.raises(StreamingQueryException, match="told to fail"):
            query.processAllAvailable()  # Spark makes a first batch also of nothing
    finally:
        query.stop()
    fill(broker.bootstrap, topic, numbers(10, 30))
    seen.fails = False
    run(stream(startingOffsets="latest"), tmp_path / "c", seen)
    assert seen.values == numbers(10, 30)


def test_a_checkpoint_of_sparks_own_connector_is_gone_on_from(
    broker: BrokerProcess, topic: str, stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    fill(broker.bootstrap, topic, numbers(0, 100), partitions=2)
    written = {
        "metadata": '{"id":"17c1a1da-dfac-479b-ac04-945404e7cd88"}',
        "sources/0/0": f'\0v1\n{{"{topic}":{{"0":0,"1":0}}}}',
        "offsets/0": 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1794777226360,"conf":{}}\n'
        f'{{"{topic}":{{"0":20,"1":30}}}}',
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }
    for name, text in written.items():
        path = tmp_path / "c" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    seen = Seen()
    run(stream(), tmp_path / "c", seen)
    assert seen.values == [b"%d" % n for n in range(100) if n // 2 >= (20 if n % 2 == 0 else 30)]


def test_what_sparks_own_connector_has_begun_is_finished_or_refused(
    spark: SparkSession, broker: BrokerProcess, topic: str, stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """By a checkpoint that the real one wrote, and whose last batch is not committed."""

    def connector() -> DataFrame:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        return reader.options(subscribe=topic, startingOffsets="latest").load()

    fill(broker.bootstrap, topic, numbers(0, 10), partitions=2)
    seen = Seen()
    run(connector(), tmp_path / "c", seen)  # a first batch of nothing, which says where it began
    fill(broker.bootstrap, topic, numbers(10, 30), partitions=2)
    seen.fails = True
    with pytest.raises(StreamingQueryException, match="told to fail"):
        run(connector(), tmp_path / "c", seen)
    fill(broker.bootstrap, topic, numbers(30, 40), partitions=2)
    seen.fails = False
    run(stream(startingOffsets="latest"), tmp_path / "c", seen)
    assert seen.values == numbers(10, 40)

    for folder in ("offsets", "commits"):  # as if the batch that failed had been the first one
        for name in [str(at) for at in range(10) if (folder, at) != ("offsets", 0)]:
            for path in (tmp_path / "c" / folder / name, tmp_path / "c" / folder / f".{name}.crc"):
                path.unlink(missing_ok=True)
    with pytest.raises(StreamingQueryException, match=r"was begun by Spark's own connector and not finished"):
        run(stream(startingOffsets="latest"), tmp_path / "c", seen)


def test_an_idle_query_makes_no_batches(
    broker: BrokerProcess, topic: str, stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    fill(broker.bootstrap, topic, numbers(0, 20), partitions=2)
    seen = Seen()
    writer = stream().writeStream.option("checkpointLocation", str(tmp_path / "c")).foreachBatch(seen)
    query = writer.start()
    try:
        for _ in range(3):
            query.processAllAvailable()
        progress: Any = query.lastProgress
    finally:
        query.stop()
    assert seen.values == numbers(0, 20)
    assert len(seen.batches) == 1
    assert json.loads(progress.sources[0].latestOffset)[topic] == {"0": 10, "1": 10}


def test_tasks_of_many_batches_go_on_in_the_fetch_session_of_their_process(
    spark: SparkSession, fetches: Fetches, tmp_path: Path
) -> None:
    with Cluster() as cluster:
        make_topic(cluster.bootstrap, "t", 2)
        fill(cluster.bootstrap, "t", numbers(0, 600), partitions=2)
        reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", cluster.bootstrap)
        frame = reader.options(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="60").load()
        seen = Seen()
        run(frame, tmp_path / "c", seen)
    assert seen.values == numbers(0, 600)
    assert len(seen.batches) == 10
    assert 1 <= fetches.full <= PYTHON_PROCESSES_MAX
    assert fetches.full + fetches.incremental >= 20


def test_a_listener_commits_the_offsets_of_a_query_as_those_of_a_group(
    spark: SparkSession, broker: BrokerProcess, topic: str, stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    fill(broker.bootstrap, topic, numbers(0, 20), partitions=2)
    lags: list[QueryLag] = []
    listener = GroupListener(broker.bootstrap, {"watched": "the group"}, lags.append)
    spark.streams.addListener(listener)
    try:
        writer = stream().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        run_out(writer.queryName("watched"))
        deadline_s = time.monotonic() + 60
        while committed(broker.bootstrap, "the group") != {0: 10, 1: 10} and time.monotonic() < deadline_s:
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
    assert committed(broker.bootstrap, "the group") == {0: 10, 1: 10}
    assert lags[-1].records == 0
    fill(broker.bootstrap, topic, numbers(20, 30), partitions=2)
    done = headrace_process("group", "describe", "the group", "--bootstrap", broker.bootstrap)
    assert done.returncode == 0, done.stderr.decode()
    (first, second) = [line.split() for line in done.stdout.decode().splitlines() if line.startswith(topic)]
    assert (first[1:5], second[1:5]) == (["0", "10", "15", "5"], ["1", "10", "15", "5"])
    assert float(first[5]) > 0 and first[6] == "s", "how long ago what it has not read was written"


def committed(bootstrap: str, group: str) -> dict[int, int]:
    async def asked() -> dict[int, int]:
        async with Admin(bootstrap) as admin:
            return {one.partition: at.offset for one, at in (await admin.groups.offsets(group)).items()}

    return asyncio.run(asked())
