"""A source in Python that hands out a prepared batch: what Spark itself takes for the rows of any of them, and for a
micro-batch. It does with Spark's collection of garbage what ours does."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from bench.spark_rows import PARTITIONS
from headrace.spark.schema import source_schema
from headrace.spark.worker_memory import keep_what_is_loaded

FLOOR = "a Python source that does nothing"
ROWS_PER_PARTITION = 250


class Floor(DataSource):
    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> str:
        return "value binary"

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002  # Spark gives it by name
        keep_what_is_loaded()
        rows, record_bytes, batch_rows = (int(self.options[one]) for one in ("rows", "recordBytes", "batchRows"))
        return _BatchReader(rows // PARTITIONS, record_bytes, batch_rows)

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: ARG002  # Spark gives it by name
        return _Reader()


class _BatchReader(DataSourceReader):
    """All columns of ours, in partitions of so many rows."""

    def __init__(self, rows: int, record_bytes: int, batch_rows: int) -> None:
        self._rows = rows
        self._record_bytes = record_bytes
        self._batch_rows = batch_rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(index) for index in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # the same for all
        keep_what_is_loaded()
        batch = _batch(self._record_bytes, self._batch_rows)
        for begin in range(0, self._rows, self._batch_rows):
            yield batch.slice(0, min(self._batch_rows, self._rows - begin))


@cache
def _batch(record_bytes: int, rows: int) -> pa.RecordBatch:
    """Made once in a process: to make it is not what Spark takes."""
    row = {
        "key": bytes(8),
        "value": bytes(record_bytes),
        "topic": "hot-100-none",
        "partition": 0,
        "offset": 0,
        "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        "timestampType": 0,
    }
    return pa.RecordBatch.from_pylist([row] * rows, schema=to_arrow_schema(source_schema(False), timezone="UTC"))


class _Reader(DataSourceStreamReader):
    """There is always one batch more."""

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: ARG002  # there is none
        return {"batch": start["batch"] + 1}

    def partitions(self, start: object, end: object) -> list[InputPartition]:  # noqa: ARG002  # the same for all
        return [InputPartition(index) for index in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # the same for all
        keep_what_is_loaded()
        yield pa.RecordBatch.from_arrays([pa.array([bytes(100)] * ROWS_PER_PARTITION, pa.binary())], ["value"])
