"""Rows of two sizes, half of each value random, as Parquet files and as topics: on disks, and in the tier alone."""

from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from bench.clusters import wait_until
from bench.raw import RawClient
from tests.servers.process import BrokerProcess

PARTITIONS = 4
CODECS = ("none", "lz4", "zstd")
RECORD_BYTES = (100, 1_000)
SEGMENT_BYTES = 8 << 20
TIER_SETTINGS = {"remote.log.manager.task.interval.ms": "500", "log.retention.check.interval.ms": "500"}
COLD = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES), "local.retention.bytes": "1"}
FAST_WRITER = {"kafka.linger.ms": "20", "kafka.batch.size": str(256 << 10)}


class Rows(NamedTuple):
    record_bytes: int
    codec: str

    @property
    def topic(self) -> str:
        return f"hot-{self.record_bytes}-{self.codec}"

    @property
    def cold_topic(self) -> str:
        return f"cold-{self.record_bytes}-{self.codec}"

    @property
    def label(self) -> str:
        return f"{'100 B' if self.record_bytes == 100 else '1 KB'}, {self.codec}"


KINDS = [Rows(record_bytes, codec) for record_bytes in RECORD_BYTES for codec in CODECS]


def write_parquet(spark: SparkSession, directory: Path, record_bytes: int, count: int) -> Path:
    path = directory / f"rows-{record_bytes}.parquet"
    half = record_bytes // 2
    hashes = ", ".join(f"unhex(sha2(concat(id, '-{number}'), 512))" for number in range(-(-half // 64)))
    value = f"concat(substring(concat({hashes}), 1, {half}), cast(repeat('x', {record_bytes - half}) as binary))"
    rows = spark.range(0, count, 1, PARTITIONS)
    key = "cast(lpad(cast(id as string), 8, '0') as binary)"
    rows.selectExpr(f"{key} key", f"{value} value").write.parquet(str(path))
    return path


def all_columns(spark: SparkSession, directory: Path, record_bytes: int) -> Path:
    """What a topic's row has, in a file: the limit of what a scan can be."""
    path = directory / f"columns-{record_bytes}.parquet"
    rows = spark.read.parquet(str(directory / f"rows-{record_bytes}.parquet"))
    rows.selectExpr(
        "key",
        "value",
        "'topic' topic",
        "cast(conv(substring(hex(key), 15, 2), 16, 10) % 4 as int) partition",
        "cast(string(key) as bigint) offset",
        "timestamp_millis(1700000000000 + cast(string(key) as bigint)) timestamp",
        "0 timestampType",
    ).write.parquet(str(path))
    return path


def fill(rows: DataFrame, broker: BrokerProcess, kind: Rows, is_cold: bool) -> None:
    """By Spark's own connector: batches are as stock clients make them."""
    topic = kind.cold_topic if is_cold else kind.topic
    with RawClient(broker.port) as client:
        client.create_configured(topic, PARTITIONS, 1, COLD if is_cold else {})
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "kafka.compression.type": kind.codec}
    rows.write.format("kafka").options(**options, **FAST_WRITER).save()


def cold_ends(broker: BrokerProcess, topic: str) -> list[int]:
    """Up to where each partition is in the tier alone, once all of it is but for the segments that are written to."""
    directories = [broker.partitions / f"{topic}-{index}" for index in range(PARTITIONS)]
    wait_until(lambda: all(len(list(one.glob("*.log"))) == 1 for one in directories), f"{topic} is in the tier")
    return [int(next(one.glob("*.log")).stem) for one in directories]
