"""The source under a real Spark, on three broker processes, when topics go, and records by retention."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headrace.model import TopicPartition
from headrace.spark.log_view import view_of
from headrace.spark.options import Connection
from tests.servers.cluster import HeadraceCluster
from tests.spark.filling import FOR_EVER, delete_topic, fill, numbers
from tests.spark.jvm.running import Seen, run

PARTITIONS = 2
ONLY_THE_LAST_SEGMENT = {**FOR_EVER, "retention.bytes": "1", "segment.bytes": "4000"}
ROWS_OF_A_SEGMENT = 40
names = count(1)


@pytest.fixture
def topic() -> str:
    return f"goes-{next(names)}"


@pytest.fixture
def stream(spark: SparkSession, cluster: HeadraceCluster, topic: str) -> Callable[..., DataFrame]:
    def reading(**options: str) -> DataFrame:
        reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", cluster.bootstrap)
        return reader.options(**{"subscribe": topic, "startingOffsets": "earliest", **options}).load()

    return reading


@pytest.mark.parametrize("rows", [6, 50], ids=["fewer rows", "more rows"])
def test_a_topic_made_anew_is_not_taken_for_the_old_one(
    cluster: HeadraceCluster, topic: str, stream: Callable[..., DataFrame], tmp_path: Path, rows: int
) -> None:
    cluster.create_topic(topic, PARTITIONS, configs=FOR_EVER)
    fill(cluster.bootstrap, topic, numbers(0, 20), partitions=PARTITIONS)
    seen = Seen()
    run(stream(), tmp_path / "c", seen)
    delete_topic(cluster.bootstrap, topic)
    cluster.until(lambda: not any(cluster.seen(topic, by) for by in cluster.nodes), f"no node knows {topic}")
    cluster.create_topic(topic, PARTITIONS, configs=FOR_EVER)
    fill(cluster.bootstrap, topic, numbers(100, 100 + rows), partitions=PARTITIONS)
    with pytest.raises(StreamingQueryException, match=r"RECREATED: topic .* was deleted and made anew"):
        run(stream(), tmp_path / "c", seen)
    assert seen.values == numbers(0, 20)
    run(stream(failOnDataLoss="false"), tmp_path / "c", seen)
    assert seen.values == [*numbers(0, 20), *numbers(100, 100 + rows)]


def test_retention_that_overtakes_the_reader_is_told_and_all_that_is_left_is_read_once(
    cluster: HeadraceCluster, topic: str, stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    cluster.create_topic(topic, PARTITIONS, configs=ONLY_THE_LAST_SEGMENT)
    fill_slowly(cluster.bootstrap, topic, 0, 20)
    seen = Seen()
    run(stream(), tmp_path / "c", seen)
    fill_slowly(cluster.bootstrap, topic, 20, 5 * ROWS_OF_A_SEGMENT)
    starts = until_retained(cluster, topic)
    with pytest.raises(StreamingQueryException, match=r"AGED_OUT: records of .* from offset 10 to "):
        run(stream(), tmp_path / "c", seen)
    assert [int(value) for value in seen.values] == list(range(20))
    run(stream(failOnDataLoss="false"), tmp_path / "c", seen)
    left = [
        number for number in range(20, 5 * ROWS_OF_A_SEGMENT) if number // PARTITIONS >= starts[number % PARTITIONS]
    ]
    assert [int(value) for value in seen.values] == [*range(20), *left]


def fill_slowly(bootstrap: str, topic: str, begin: int, end: int) -> None:
    """In batches that are smaller than segments."""
    for at in range(begin, end, 20):
        fill(bootstrap, topic, [b"%0200d" % number for number in range(at, at + 20)], partitions=PARTITIONS)


def until_retained(cluster: HeadraceCluster, topic: str) -> list[int]:
    """Until nobody has more than the last segment of a log, and all that was read is gone. Where the logs begin."""

    def is_retained() -> bool:
        kept = [
            [int(path.stem) for path in (node.partitions / f"{topic}-{index}").glob("*.log")]
            for node in cluster.nodes.values()
            for index in range(PARTITIONS)
        ]
        return all(len(segments) == 1 and segments[0] > 20 // PARTITIONS for segments in kept)

    cluster.until(is_retained, f"only the last segments of {topic} are left")
    logs = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    ends = view_of(Connection(cluster.bootstrap)).ends(logs)
    return [ends[one].start for one in logs]
