"""What is in the tier alone is read by Spark's executors from the objects: no broker process has to live for it.

Real processes, and a real S3 server with a way to it that misbehaves.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.cluster.tiered import EARLIEST_LOCAL as LOCAL
from tests.cluster.tiered import (
    LATEST,
    TOPIC,
    create,
    offset_at,
    produce,
    s3_store,
    tiered_cluster,
    until_tiered,
    value_of,
)
from tests.servers.cluster import HeadraceCluster
from tests.servers.s3_proxy import S3Proxy
from tests.spark.filling import numbers
from tests.spark.jvm.running import Seen, run

RECORDS = 600


SLOW_S, FAILING_SHARE, AWAY_S = 0.05, 0.3, 3.0


@pytest.fixture(scope="module")
def tier(scratch: Path) -> Iterator[tuple[HeadraceCluster, S3Proxy]]:
    """Three broker processes, and a topic of which the first half and more is in the tier alone."""
    with (
        pytest.MonkeyPatch.context() as environment,
        s3_store(scratch / "s3", environment) as (_, proxy, url),
        tiered_cluster(scratch / "tiered", url) as cluster,
    ):
        replicas = create(cluster)
        produce(cluster, 0, RECORDS)
        until_tiered(cluster, replicas[0])
        cluster.until(lambda: offset_at(cluster, replicas[0], LOCAL) > RECORDS // 2, "most is in the tier alone")
        yield cluster, proxy


@pytest.fixture
def tiered(tier: tuple[HeadraceCluster, S3Proxy]) -> HeadraceCluster:
    return tier[0]


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
    assert seen.values == numbers(0, RECORDS)

    # Local retention overtakes it: what is not on any disk any more has not been read yet.
    produce(tiered, RECORDS, RECORDS)
    leader = tiered.leader_of(TOPIC)
    tiered.until(lambda: offset_at(tiered, leader, LOCAL) > RECORDS * 3 // 2, "it goes on in the tier alone")
    run(numbered(frame), tmp_path / "c", seen)
    assert seen.values == numbers(0, 2 * RECORDS)


def test_a_tier_that_is_slow_fails_or_is_away_costs_no_row(
    spark: SparkSession, tier: tuple[HeadraceCluster, S3Proxy], tmp_path: Path
) -> None:
    cluster, proxy = tier
    end = offset_at(cluster, cluster.leader_of(TOPIC), LATEST)
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
    frame = numbered(spark.readStream.format("headrace").options(**options).load())
    seen, before = Seen(), proxy.failed
    proxy.delay_s, proxy.failing_share = SLOW_S, FAILING_SHARE
    try:
        run(frame, tmp_path / "slow", seen)
        assert seen.values == numbers(0, end)
        assert proxy.failed > before, "nothing went wrong"
        proxy.failing_share, proxy.is_down = 0.0, True
        back = threading.Timer(AWAY_S, lambda: setattr(proxy, "is_down", False))
        back.start()
        again = Seen()
        run(frame, tmp_path / "away", again)
        assert again.values == numbers(0, end)
        back.join()
    finally:
        proxy.delay_s, proxy.failing_share, proxy.is_down = 0.0, 0.0, False


def numbered(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("cast(split(string(value), ' ')[0] as binary) value")
