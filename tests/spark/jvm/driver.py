"""A driver: python -m tests.spark.jvm.driver NAME MASTER BOOTSTRAP SOURCE TARGET CHECKPOINT STAGE.

Copies topic SOURCE to topic TARGET in small batches, each row once, until all is there that was when it began. The sink
can be held at places (tests.spark.jvm.staged), and the driver at `start-NAME`, before it begins with its query. If that
fails, it prints why, and ends with 3.
"""

import sys
from collections.abc import Mapping

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.servers.spark import JAVA
from tests.spark.jvm.staged import Stage, StagedSource

ROWS_PER_BATCH = 300
SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.extraJavaOptions": JAVA,
    "spark.executor.memory": "512m",
    # An executor that is not heard of is lost after ten seconds, not after two minutes.
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "1s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
}


def session(master: str, further: Mapping[str, str] | None = None) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("headrace driver")
    for key, value in {**SETTINGS, **(further or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    spark.dataSource.register(StagedSource)
    return spark


def copying(
    spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: str, stage: str
) -> DataStreamWriter:
    """A query that is not started yet."""
    at = {"kafka.bootstrap.servers": bootstrap}
    reading = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS_PER_BATCH)}
    stream = spark.readStream.format("headrace").options(**at, **reading).load().select("value")
    writer = stream.writeStream.format("staged").options(**at, topic=target, stage=stage)
    return writer.option("checkpointLocation", checkpoint)


def main(name: str, master: str, *places: str) -> int:
    writer = copying(session(master), *places).trigger(availableNow=True)
    Stage(places[-1]).reach(f"start-{name}")
    query = writer.start()
    try:
        query.awaitTermination()
    except StreamingQueryException as failure:
        print(failure, flush=True)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
