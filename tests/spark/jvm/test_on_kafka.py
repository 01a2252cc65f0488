"""Source and sink on Apache Kafka itself: all that it can do, and a plain word about what it cannot."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.servers.kafka import kafka_broker
from tests.servers.process import BrokerProcess
from tests.spark.filling import fill, make_topic, numbers
from tests.spark.jvm.driver import ROWS_PER_BATCH
from tests.spark.jvm.running import Seen, run, run_out
from tests.spark.sink_stage import readable

ROOT = Path(__file__).resolve().parents[3]
OTHER = "(it is Apache Kafka, or an old Headrace)"
SAID = f"cannot commit the tasks of a batch together {OTHER}: rows are written at least once"
NOT_POSSIBLE = re.escape(f"{OTHER}, so that exactly_once is not possible; deliveryGuarantee=at_least_once is")
WITHIN_S = 300.0

names = count(1)


@pytest.fixture(scope="module")
def kafka(scratch: Path) -> Iterator[BrokerProcess]:
    process = kafka_broker(scratch / "kafka", {"transaction.state.log.num.partitions": "1"})
    try:
        process.start()
        yield process
    finally:
        process.kill()


@pytest.fixture
def topics(kafka: BrokerProcess) -> list[str]:
    """One to read from and one to write to, of two partitions each."""
    made = [f"{name}-{next(names)}" for name in ("in", "out")]
    for topic in made:
        make_topic(kafka.bootstrap, topic, 2)
    return made


@pytest.fixture
def stream(spark: SparkSession, kafka: BrokerProcess, topics: list[str]) -> Callable[..., DataFrame]:
    def reading(**options: str) -> DataFrame:
        reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", kafka.bootstrap)
        return reader.options(subscribe=topics[0], startingOffsets="earliest", **options).load()

    return reading


@pytest.fixture
def read(spark: SparkSession, kafka: BrokerProcess) -> Callable[..., list[bytes]]:
    def reading(topic: str, **options: str) -> list[bytes]:
        reader = spark.read.format("headrace").option("kafka.bootstrap.servers", kafka.bootstrap)
        rows = reader.options(subscribe=topic, **options).load().select("value").collect()
        return sorted((bytes(row.value) for row in rows), key=int)

    return reading


def test_a_job_is_written_and_read_back(
    spark: SparkSession, kafka: BrokerProcess, topics: list[str], read: Callable[..., list[bytes]]
) -> None:
    frame = spark.range(0, 3_000, 1, 3).selectExpr("string(id) key", "string(id) value")
    at = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topics[1]}
    frame.write.format("headrace").mode("append").options(**at, **{"kafka.compression.type": "lz4"}).save()
    assert read(topics[1]) == numbers(0, 3_000)
    assert read(topics[1], minPartitions="5", maxRecordsPerPartition="400") == numbers(0, 3_000)


def test_exactly_once_is_refused_for_jobs_and_streams(
    spark: SparkSession, kafka: BrokerProcess, topics: list[str], stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    at = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topics[1], "deliveryGuarantee": "exactly_once"}
    with pytest.raises(Exception, match=NOT_POSSIBLE):
        spark.range(10).selectExpr("string(id) value").write.format("headrace").mode("append").options(**at).save()
    fill(kafka.bootstrap, topics[0], numbers(0, 10), partitions=2)
    writer = stream().select("value").writeStream.format("headrace").options(**at)
    with pytest.raises(StreamingQueryException, match=NOT_POSSIBLE):
        run_out(writer.option("checkpointLocation", str(tmp_path / "c")))
    assert readable(kafka.bootstrap, topics[1]) == []


def test_a_driver_copies_a_topic_at_least_once_and_says_so(
    kafka: BrokerProcess, topics: list[str], read: Callable[..., list[bytes]], tmp_path: Path
) -> None:
    """In a process of its own, as what it says goes to where Spark's own log goes."""
    rows = 2 * ROWS_PER_BATCH + 100
    fill(kafka.bootstrap, topics[0], numbers(0, rows), partitions=2)
    (tmp_path / "stage").mkdir()
    places = [*topics, str(tmp_path / "checkpoint"), str(tmp_path / "stage")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.jvm.driver", "alone", "local[2]", kafka.bootstrap, *places],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"the cluster at {kafka.bootstrap} {SAID}" in done.stderr
    assert read(topics[1]) == numbers(0, rows)


def test_a_stream_is_written_in_batches_limited_by_records_and_goes_on(
    kafka: BrokerProcess,
    topics: list[str],
    stream: Callable[..., DataFrame],
    read: Callable[..., list[bytes]],
    tmp_path: Path,
) -> None:
    fill(kafka.bootstrap, topics[0], numbers(0, 1_000), partitions=2, compression="zstd")
    for end in (1_000, 1_010):
        writer = stream(maxOffsetsPerTrigger="300").select("value").writeStream.format("headrace")
        writer = writer.options(**{"kafka.bootstrap.servers": kafka.bootstrap, "topic": topics[1]})
        run_out(writer.option("checkpointLocation", str(tmp_path / "c")))
        assert read(topics[1]) == numbers(0, end)
        fill(kafka.bootstrap, topics[0], numbers(1_000, 1_010), partitions=2)


def test_a_stream_is_read_in_batches_limited_by_records(
    kafka: BrokerProcess, topics: list[str], stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    fill(kafka.bootstrap, topics[0], numbers(0, 1_000), partitions=2)
    seen = Seen()
    run(stream(maxOffsetsPerTrigger="300"), tmp_path / "c", seen)
    assert [len(batch) for batch in seen.batches] == [300, 300, 300, 100]
    assert seen.values == numbers(0, 1_000)


def test_a_stream_is_read_in_batches_limited_by_bytes(
    kafka: BrokerProcess, topics: list[str], stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    """Of about 1,000 bytes each, as Kafka tells of its disks."""
    values = [b"%01000d" % number for number in range(400)]
    fill(kafka.bootstrap, topics[0], values, partitions=2)
    seen = Seen()
    run(stream(maxBytesPerTrigger="100k"), tmp_path / "c", seen)
    assert seen.values == values
    assert all(50 <= len(batch) <= 110 for batch in seen.batches[:-1])


def test_of_transactions_of_a_stock_client_what_is_committed_is_read(
    kafka: BrokerProcess,
    topics: list[str],
    stream: Callable[..., DataFrame],
    read: Callable[..., list[bytes]],
    tmp_path: Path,
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topics[0]})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for value in numbers(100 * number, 100 * number + 100):
            producer.produce(topics[0], value, partition=number % 2)
        producer.flush(60)
        if number in (1, 2, 5):  # the end of a partition among them
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    committed = [*numbers(0, 100), *numbers(300, 500)]
    decided = {"kafka.isolation.level": "read_committed"}
    assert read(topics[0], **decided) == committed
    assert read(topics[0], **decided, minPartitions="6") == committed
    assert read(topics[0]) == numbers(0, 600)
    seen = Seen()
    run(stream(maxOffsetsPerTrigger="70", **decided), tmp_path / "c", seen)
    assert seen.values == committed
