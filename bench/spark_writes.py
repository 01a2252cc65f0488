"""Rows into a topic by our sink and by Spark's, and the time of small batches of a stream."""

import statistics
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.raw import RawClient
from bench.spark_floor import FLOOR, Floor
from bench.spark_rows import FAST_WRITER, PARTITIONS, Rows
from bench.spark_session import Spent, spent
from tests.servers.process import BrokerProcess

ONCE, AT_LEAST, STOCK_HERE, STOCK, TUNED = (
    "headrace, exactly once",
    "headrace, at least once",
    "kafka on Headrace, tuned",
    "kafka on Kafka",
    "kafka on Kafka, tuned",
)
SINKS = (ONCE, AT_LEAST, STOCK_HERE, STOCK, TUNED)
STREAMS = ("headrace", "kafka on Headrace", "kafka on Kafka", FLOOR)
SMALL_BATCH_ROWS = 1_000
BATCHES = 20
WARM_UP_BATCHES = 5
STREAM_S_MAX = 120.0


def write_in_turn(
    spark: SparkSession, path: Path, headrace: BrokerProcess, kafka: BrokerProcess, rounds: int
) -> dict[str, list[Spent]]:
    """Key and value, 100 B; a first round warms the JVM up."""
    for broker in (headrace, kafka):
        with RawClient(broker.port) as client:
            client.create_configured("written", PARTITIONS, 1, {})
    rows = spark.read.parquet(str(path))
    found: dict[str, list[Spent]] = {sink: [] for sink in SINKS}
    for number in range(rounds + 1):
        for sink in SINKS:
            broker = headrace if "Headrace" in sink or sink in (ONCE, AT_LEAST) else kafka
            options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "written"}
            if sink in (ONCE, AT_LEAST):
                options["deliveryGuarantee"] = "exactly_once" if sink == ONCE else "at_least_once"
            elif sink != STOCK:
                options |= FAST_WRITER
            writer = rows.write.format("headrace" if sink in (ONCE, AT_LEAST) else "kafka").mode("append")
            one = spent(spark, writer.options(**options).save, broker, [headrace.pid, kafka.pid])
            _say(f"sink, {sink} | {one.wall_s:.1f} s, CPU {one.cpu_s:.1f} s")
            if number:
                found[sink].append(one)
    return found


def small_batches(
    spark: SparkSession, scratch: Path, headrace: BrokerProcess, kafka: BrokerProcess, rounds: int
) -> dict[str, list[float]]:
    """Milliseconds of each batch of 1,000 rows, from the offsets that are looked up to the commit."""
    spark.dataSource.register(Floor)
    found: dict[str, list[float]] = {stream: [] for stream in STREAMS}
    for number in range(rounds):
        for stream in STREAMS:
            broker = kafka if stream == "kafka on Kafka" else headrace
            frame = (
                spark.readStream.format(Floor.name() if stream == FLOOR else stream.partition(" ")[0])
                .option("kafka.bootstrap.servers", broker.bootstrap)
                .option("subscribe", Rows(100, "none").topic)
                .option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", SMALL_BATCH_ROWS)
                .load()
            )
            checkpoint = scratch / f"stream-{number}-{stream.replace(' ', '-')}"
            query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
            try:
                times_ms = _times_ms(query)
            finally:
                query.stop()
            _say(f"micro-batches, {stream} | {statistics.median(times_ms):.0f} ms")
            found[stream] += times_ms
    return found


def _times_ms(query: StreamingQuery) -> list[float]:
    deadline = time.monotonic() + STREAM_S_MAX
    while len(progress := query.recentProgress) < WARM_UP_BATCHES + BATCHES:
        assert query.isActive and time.monotonic() < deadline, f"the stream is too slow, or failed: {query.exception()}"
        time.sleep(0.1)
    return [float(one["durationMs"]["triggerExecution"]) for one in progress[WARM_UP_BATCHES:]]


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
