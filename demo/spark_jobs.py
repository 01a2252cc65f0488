"""Both Spark queries, as a process: `python -m demo.spark_jobs BOOTSTRAP DIRECTORY`.

`lake` copies the orders into a table, `sums` adds them up by window and writes the sums into a topic. A line `finish`
on standard input lets them read what is there, and end. One JSON document a line tells of each micro-batch.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from demo.lake import Lake
from demo.plan import LATE_S, ORDERS, SCHEMA, SUMS, WINDOW_S
from headrace.pipeline.verify import VerifyOptions, run
from headrace.spark.listener import GroupListener

if TYPE_CHECKING:
    from headrace.pipeline.lake import LakeProgress

WORKERS = Path(__file__).resolve().parent.parent / "tests" / "spark" / "jvm" / "workers"
"""Spark's Python processes start in half the time with it."""

LOOK_S = 0.5
RESTARTS_MAX = 10

SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


class Telling(GroupListener):
    """Commits group offsets as it does, so that `headrace group describe sums` works; and tells of each batch."""

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        if progress.numInputRows:
            ends = [json.loads(source.endOffset)[ORDERS] for source in progress.sources]
            tell("sums", progress.batchId, sum(offset for end in ends for offset in end.values()))
        if progress.sink.numOutputRows > 0:
            say(written=progress.sink.numOutputRows)
        super().onQueryProgress(event)


def tell(query: str, batch_id: int, read: int) -> None:
    """How far it is, which does not depend on whether the batches before were told."""
    say(query=query, batch=batch_id, read=read)


def say(**told: object) -> None:
    print(json.dumps(told), flush=True)


def session(directory: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(WORKERS), *filter(None, [os.environ.get("PYTHONPATH")])])
    builder = SparkSession.builder.master("local[2]").appName("headrace demo")
    for key, value in {**SETTINGS, "spark.sql.warehouse.dir": str(directory / "warehouse")}.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def orders(spark: SparkSession, bootstrap: str) -> DataFrame:
    stream = spark.readStream.format("headrace").option("kafka.bootstrap.servers", bootstrap)
    stream = stream.option("subscribe", ORDERS).option("startingOffsets", "earliest")
    return stream.load().select(f.from_json(f.col("value").cast("string"), SCHEMA).alias("one")).select("one.*")


def start_sums(spark: SparkSession, bootstrap: str, directory: Path) -> StreamingQuery:
    in_time = orders(spark, bootstrap).withWatermark("at", f"{LATE_S} seconds")
    windows = in_time.groupBy(f.window("at", f"{WINDOW_S} seconds"), "region")
    sums = windows.agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))
    key = f.concat_ws(" ", f.date_format("window.start", "yyyy-MM-dd HH:mm"), "region")
    value = f.struct(f.unix_timestamp("window.start").alias("from"), "region", "orders", "cents")
    writer = sums.select(key.alias("key"), f.to_json(value).alias("value")).writeStream.format("headrace")
    writer = writer.queryName("sums").outputMode("append").trigger(processingTime="3 seconds")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", SUMS)
    return writer.option("checkpointLocation", str(directory / "checkpoints" / "sums")).start()


class Sums:
    """One that fails is started again, as a supervisor does."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path) -> None:
        self._start: Callable[[], StreamingQuery] = lambda: start_sums(spark, bootstrap, directory)
        self._query = self._start()
        self._restarts = 0

    def until_waiting(self) -> None:
        """It has looked at the topic, and found nothing yet, or the first records."""
        while self._query.status["message"].startswith("Initializing"):
            time.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        failure = self._query.exception()
        if failure is not None:
            self._restarts += 1
            print(failure, file=sys.stderr, flush=True)
            say(restarted="sums", reason=str(failure).splitlines()[0])
            if self._restarts > RESTARTS_MAX:
                raise failure
            self._query = self._start()

    def finish(self) -> None:
        while True:
            try:
                self._query.processAllAvailable()
                self._query.stop()
                return
            except StreamingQueryException:
                self.look()


def main(bootstrap: str, directory: str) -> None:
    place = Path(directory)
    spark = session(place)
    spark.streams.addListener(Telling(bootstrap, groups={"sums": "sums"}))
    sums, lake = Sums(spark, bootstrap, place), Lake(spark, bootstrap, place, tell_of_lake)
    sums.until_waiting()
    say(started=True)
    finish = threading.Event()

    def hear() -> None:
        sys.stdin.readline()
        finish.set()

    threading.Thread(target=hear, daemon=True).start()
    while not finish.wait(LOOK_S):
        sums.look()
        lake.look()
    sums.finish()
    lake.finish()
    say(verified=run(VerifyOptions(ORDERS, bootstrap), spark=spark).to_json())
    say(finished=True)
    spark.stop()


def tell_of_lake(progress: "LakeProgress") -> None:
    """It has a session of its own, which the listener does not hear."""
    tell("lake", progress.batch_id, progress.offsets)


if __name__ == "__main__":
    main(*sys.argv[1:])
