"""What is in the tier alone is read by Spark's executors from the objects: no broker process has to live for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.cluster.tiered import EARLIEST_LOCAL as LOCAL
from tests.cluster.tiered import TOPIC, create, offset_at, produce, tiered_cluster, until_tiered, value_of
from tests.servers.cluster import HeadraceCluster
from tests.spark.jvm.test_source import Seen, run

RECORDS = 600


@pytest.fixture
def tiered(scratch: Path) -> Iterator[HeadraceCluster]:
    """Three broker processes, and a topic of which the first half and more is in the tier alone."""
    with tiered_cluster(scratch / "tiered", str(scratch / "objects")) as cluster:
        replicas = create(cluster)
        produce(cluster, 0, RECORDS)
        until_tiered(cluster, replicas[0])
        cluster.until(lambda: offset_at(cluster, replicas[0], LOCAL) > RECORDS // 2, "most is in the tier alone")
        yield cluster


def test_once_it_is_planned_executors_read_the_tier_though_all_brokers_are_stopped(
    spark: SparkSession, tiered: HeadraceCluster, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": tiered.bootstrap, "subscribe": TOPIC, "kafkaConsumer.pollTimeoutMs": "5000"}
    local_start = offset_at(tiered, tiered.leader_of(TOPIC), LOCAL)
    end = f'{{"{TOPIC}":{{"0":{local_start}}}}}'
    reader = spark.read.format("headrace").options(**options, endingOffsets=end, minPartitions="4")
    planned = reader.schema("value binary, offset long").load().rdd
    assert planned.getNumPartitions() >= 4
    for node_id in tiered.nodes:
        tiered.pause(node_id)
    try:
        rows = planned.collect()
    finally:
        for node_id in tiered.nodes:
            tiered.resume(node_id)
    assert sorted((row.offset, bytes(row.value)) for row in rows) == [(at, value_of(at)) for at in range(local_start)]

    # Brokers are back: a stream begins in the tier, and goes on behind it.
    tiered.until(lambda: tiered.leader_of(TOPIC) > 0, "somebody leads again")
    frame = spark.readStream.format("headrace").options(**options, startingOffsets="earliest").load()
    seen = Seen()
    run(numbered(frame), tmp_path / "c", seen)
    assert seen.values == [b"%d" % number for number in range(RECORDS)]


def numbered(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("cast(split(string(value), ' ')[0] as binary) value")
