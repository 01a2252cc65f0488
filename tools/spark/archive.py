"""python tools/spark/archive.py FILE: the classes that Spark loads in tests, as Java keeps them for its next starts.

A JVM that finds them (`-XX:SharedArchiveFile`) needs a third less to start Spark and its first queries. One of another
version, or with other jars, does without them by itself.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)


class Numbers(DataSource):
    """A source and a sink in Python, as ours are."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number bigint not null"

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002  # Spark gives it by name
        return _Reader()

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: ARG002  # Spark gives it by name
        return _StreamReader()

    def streamWriter(self, schema: object, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002  # the same
        return _Writer()


def _rows() -> Iterator[pa.RecordBatch]:
    field = pa.field("number", pa.int64(), nullable=False)
    yield pa.RecordBatch.from_arrays([pa.array([1, 2, 3], pa.int64())], schema=pa.schema([field]))


class _Reader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # there is one
        return _rows()


class _StreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, start: object, limit: object) -> dict[str, int]:  # noqa: ARG002  # it is all there
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # noqa: ARG002  # there is one
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # there is one
        return _rows()


class _Writer(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def main(archive: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=error -XX:ArchiveClassesAtExit={archive}"
    builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", options)
    for key, value in (("spark.driver.host", "127.0.0.1"), ("spark.ui.enabled", "false")):
        builder = builder.config(key, value)
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(Numbers)
    with tempfile.TemporaryDirectory() as scratch:
        spark.read.format("numbers").load().write.parquet(f"{scratch}/rows")
        spark.read.parquet(f"{scratch}/rows").groupBy("number").count().collect()
        writer = spark.readStream.format("numbers").load().writeStream.format("numbers")
        writer.option("checkpointLocation", f"{scratch}/checkpoint").trigger(
            availableNow=True
        ).start().awaitTermination()
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # PySpark starts the JVM itself
    spark.stop()
    spark.sparkContext._gateway.shutdown()  # type: ignore[union-attr]  # and ends it with this process, too early
    java.stdin.close()
    java.wait()
    assert Path(archive).exists(), f"Java has not written {archive}"


if __name__ == "__main__":
    main(sys.argv[1])
