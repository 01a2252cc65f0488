"""Spark's own connector, `format("kafka")`, on three broker processes: batch, micro-batch and real time, while leaders
die. Beside it runs ours, with the same queries."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.servers.cluster import HeadraceCluster
from tests.spark.filling import fill, numbers
from tests.spark.flow import Flow
from tests.spark.jvm.running import run_out
from tests.spark.sink_stage import readable

names = count(1)
PARTITIONS = 2
KILLS = 2
SAFE = {"min.insync.replicas": "2", "retention.ms": "-1"}
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
IMPATIENT = {"kafka.default.api.timeout.ms": "10000", "kafka.request.timeout.ms": "10000"}
"""Java's admin client, by which its driver asks for ends, waits for a leader that died until that is back, for a minute
at most; so it does on Apache Kafka. Then it is made anew."""

REAL_TIME_BATCH = "120 seconds"
"""So long that what comes out of a batch came before its end."""


@pytest.fixture
def topics(cluster: HeadraceCluster) -> list[str]:
    """One to read from, and two to write to."""
    made = [f"{name}-{next(names)}" for name in ("in", "out", "out")]
    for topic in made:
        cluster.create_topic(topic, PARTITIONS, configs=SAFE)
    for topic in made:
        cluster.until_whole(topic)
    return made


@pytest.fixture
def stopping(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def streamed(spark: SparkSession, kind: str, bootstrap: str, topic: str) -> DataFrame:
    reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", bootstrap)
    if kind == "kafka":
        reader = reader.options(**IMPATIENT)
    return reader.options(subscribe=topic, startingOffsets="earliest", failOnDataLoss="true").load().select("value")


def test_a_job_of_it_writes_and_reads_what_ours_does(
    spark: SparkSession, cluster: HeadraceCluster, topics: list[str]
) -> None:
    rows = [(f"k{at}", f"{at}", [("h", b"%d" % at)] if at % 2 else None) for at in range(500)]
    frame = spark.createDataFrame(rows, "key string, value string, headers array<struct<key:string,value:binary>>")
    at = {"kafka.bootstrap.servers": cluster.bootstrap}
    topic = topics[0]
    for kind in ("kafka", "headrace"):
        frame.write.format(kind).mode("append").options(**at, topic=topic).save()
    read = {
        kind: spark.read.format(kind).options(**at, subscribe=topic, includeHeaders="true").load().select(*COLUMNS)
        for kind in ("kafka", "headrace")
    }
    found = {kind: sorted(map(tuple, each.collect()), key=lambda row: row[3:5]) for kind, each in read.items()}
    assert found["kafka"] == found["headrace"]
    assert sorted(bytes(row[1]) for row in found["kafka"]) == sorted(2 * numbers(0, 500))
    named = {
        kind: spark.read.format(kind).options(**at, subscribePattern=f"{topic[1:]}$").load().select("topic").distinct()
        for kind in ("kafka", "headrace")
    }
    assert named["headrace"].collect() == named["kafka"].collect() == [(topic,)], "a part of the name is enough"
    assert len({(bytes(row[0]), row[3]) for row in found["kafka"]}) == 500, "both put a key into the same partition"


def test_a_stream_of_it_copies_in_steps_of_its_limit(
    spark: SparkSession, cluster: HeadraceCluster, topics: list[str], tmp_path: Path
) -> None:
    source, target, _ = topics
    fill(cluster.bootstrap, source, numbers(0, 400), partitions=PARTITIONS)
    at = {"kafka.bootstrap.servers": cluster.bootstrap}
    reader = spark.readStream.format("kafka").options(**at, subscribe=source, startingOffsets="earliest")
    steps = reader.option("maxOffsetsPerTrigger", "100").load().select("value")
    writer = steps.writeStream.format("kafka").options(**at, topic=target)
    query = run_out(writer.option("checkpointLocation", str(tmp_path / "c")))
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [100] * 4
    assert sorted(readable(cluster.bootstrap, target), key=int) == numbers(0, 400)


@pytest.mark.usefixtures("stopping")
def test_both_go_on_through_dying_leaders_and_neither_loses_anything(
    spark: SparkSession, cluster: HeadraceCluster, topics: list[str], tmp_path: Path
) -> None:
    source, *targets = topics
    kinds = ("headrace", "kafka")
    with Flow(cluster.bootstrap, source, PARTITIONS) as flow:
        queries = []
        for kind, target in zip(kinds, targets, strict=True):
            writer = streamed(spark, kind, cluster.bootstrap, source).writeStream.format(kind)
            writer = writer.options(**{"kafka.bootstrap.servers": cluster.bootstrap, "topic": target})
            queries.append(writer.option("checkpointLocation", str(tmp_path / kind)).start())
        until_read(cluster, queries, flow)
        for kill in range(KILLS):
            partition = kill % PARTITIONS
            victim = cluster.leader_of(source, partition)
            cluster.nodes[victim].kill()
            if kill == 1:
                cluster.withdraw(victim)  # the others are told, and need not wait for the end of its lease
            cluster.until_led_by_another(victim, source, partition)
            until_read(cluster, queries, flow)
            cluster.start(victim)
            cluster.until_whole(source)
        sent = flow.finish()
    for query in queries:
        query.processAllAvailable()
        assert query.exception() is None
    ours, its = (sorted(readable(cluster.bootstrap, target), key=int) for target in targets)
    assert ours == numbers(0, sent)
    assert set(its) == set(numbers(0, sent)), "it promises each at least once"
    print(f"{sent} rows and {KILLS} dead leaders; {len(its) - sent} rows doubled by Spark's own connector")


def until_read(cluster: HeadraceCluster, queries: list[StreamingQuery], flow: Flow) -> None:
    """All that is acknowledged by now, by all of them; none has failed."""
    acked = flow.acked

    def read() -> bool:
        for query in queries:
            failure = query.exception()
            assert failure is None, str(failure)
        return all(rows_behind(query.lastProgress) >= acked for query in queries)

    cluster.until(read, f"{acked} rows are read by all queries")


def rows_behind(progress: Any) -> int:
    """How many rows lie before where a query is."""
    if progress is None:
        return 0
    told = json.loads(progress["sources"][0]["endOffset"] or "{}")
    return sum(at for topic, places in told.items() if not topic.startswith("@") for at in places.values())


@pytest.mark.usefixtures("stopping")
def test_in_real_time_rows_are_there_before_their_batch_ends_and_though_a_leader_dies(
    spark: SparkSession, cluster: HeadraceCluster, topics: list[str], tmp_path: Path
) -> None:
    source, target, _ = topics
    fill(cluster.bootstrap, source, numbers(0, 200), partitions=PARTITIONS)
    writer = streamed(spark, "kafka", cluster.bootstrap, source).writeStream.format("kafka").outputMode("update")
    writer = writer.options(**{"kafka.bootstrap.servers": cluster.bootstrap, "topic": target})
    writer = writer.option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(realTime=REAL_TIME_BATCH).start()  # type: ignore[call-overload]  # it is not annotated yet
    with Reader(cluster.bootstrap, target) as reader:
        cluster.until(lambda: reader.has(query, 200), "the first rows are there")
        victim = cluster.leader_of(source)
        cluster.nodes[victim].kill()
        fill(cluster.bootstrap, source, numbers(200, 400), partitions=PARTITIONS)
        cluster.until(lambda: reader.has(query, 400), "rows are there that came after a leader had died")
        assert query.lastProgress is None, "no batch has ended"
        cluster.start(victim)


class Reader:
    """All that is in a topic, also while somebody writes to it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 2}
        self._consumer = Consumer({**settings, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, at, 0) for at in range(PARTITIONS)])
        self._found: set[bytes] = set()

    def has(self, query: StreamingQuery, rows: int) -> bool:
        failure = query.exception()
        assert failure is None, str(failure)
        self._found |= {message.value() or b"" for message in self._consumer.consume(500, 0.1) if not message.error()}
        return self._found >= set(numbers(0, rows))

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
