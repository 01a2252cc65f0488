"""Spark's own Kafka connector against one broker: SPARK_PYTHON spark_job.py BOOTSTRAP TOPIC COPY_TOPIC SCRATCH ROWS.

Writes ROWS rows to TOPIC, reads them as a batch, streams them into COPY_TOPIC in small steps, reads the copy back,
and prints what it saw as one line of JSON. Runs in Spark's own virtual environment, never in that of the tests."""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

JARS = Path(__file__).resolve().parents[2] / ".tools" / "spark" / "jars"


def session(scratch: str) -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(sorted(map(str, JARS.glob("*.jar")))))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", scratch)
        .config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        .getOrCreate()
    )


def summary(rows: DataFrame) -> dict[str, int]:
    """Enough to know that each row is there once, whole, and which offsets it took."""
    number = f.col("key").cast("string").cast("long")
    wrong = f.col("value").cast("string") != f.concat(f.lit("row "), f.col("key").cast("string"))
    found = rows.select(
        f.count("*").alias("rows"),
        f.countDistinct("key").alias("keys"),
        f.sum(number).alias("sum"),
        f.sum(f.when(wrong, 1).otherwise(0)).alias("wrong"),
        f.countDistinct("partition", "offset").alias("positions"),
    ).first()
    assert found is not None
    return {name: int(count) for name, count in found.asDict().items()}


def main(bootstrap: str, topic: str, copy: str, scratch: str, rows: int) -> None:
    spark = session(scratch)
    spark.sparkContext.setLogLevel("ERROR")

    def read(name: str) -> DataFrame:
        kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        return kafka.option("subscribe", name).option("includeHeaders", "true").load()

    key = f.col("id").cast("string")
    numbered = spark.range(rows).select(key.alias("key"), f.concat(f.lit("row "), key).alias("value"))
    numbered.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()
    batch = summary(read(topic))

    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    steps = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", rows // 4).load()
    sink = steps.select("key", "value").writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    query = sink.option("topic", copy).option("checkpointLocation", f"{scratch}/checkpoint")
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    streamed = [int(progress["numInputRows"]) for progress in running.recentProgress]

    print(json.dumps({"batch": batch, "streamed": streamed, "copy": summary(read(copy))}))
    spark.stop()


if __name__ == "__main__":
    _, bootstrap, topic, copy, scratch, rows = sys.argv
    main(bootstrap, topic, copy, scratch, int(rows))
