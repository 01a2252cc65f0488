"""Both Spark queries, as a process: `python -m demo.spark_jobs BOOTSTRAP DIRECTORY`.

`lake` copies the orders into a table, `sums` adds them up by window and writes the sums into a topic. A line `finish`
on standard input lets them read what is there, and end. One JSON document a line tells of each micro-batch.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from demo.lake import start_lake
from demo.plan import ORDERS, SUMS
from headrace.spark.listener import GroupListener, QueryLag

SCHEMA = "number long, customer string, region string, cents long, at timestamp"
LATE = "8 hours"
"""Of the shop's time, in which 1,000 orders take 17 minutes: no partition is ever so far behind another."""

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
        self._rows = event.progress.numInputRows
        super().onQueryProgress(event)

    def tell(self, lag: QueryLag) -> None:
        told = {"query": lag.query, "batch": lag.batch_id, "rows": self._rows, "lag": lag.records, "lag_s": lag.seconds}
        say(**told)


def say(**told: object) -> None:
    print(json.dumps(told), flush=True)


def session(directory: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
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


def start_sums(spark: SparkSession, bootstrap: str, directory: Path) -> None:
    windows = orders(spark, bootstrap).withWatermark("at", LATE).groupBy(f.window("at", "30 minutes"), "region")
    sums = windows.agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))
    key = f.concat_ws(" ", f.date_format("window.start", "yyyy-MM-dd HH:mm"), "region")
    value = f.struct(f.unix_timestamp("window.start").alias("from"), "region", "orders", "cents")
    writer = sums.select(key.alias("key"), f.to_json(value).alias("value")).writeStream.format("headrace")
    writer = writer.queryName("sums").outputMode("append").trigger(processingTime="2 seconds")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", SUMS)
    writer.option("checkpointLocation", str(directory / "checkpoints" / "sums")).start()


def main(bootstrap: str, directory: str) -> None:
    place = Path(directory)
    spark = session(place)
    listener = Telling(bootstrap, on_lag=lambda lag: listener.tell(lag))
    spark.streams.addListener(listener)
    start_sums(spark, bootstrap, place)
    start_lake(spark, bootstrap, place)
    say(started=[query.name for query in spark.streams.active])
    sys.stdin.readline()
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()
    say(finished=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
