"""A source in Python that hands out a prepared batch: what Spark itself takes for a micro-batch of any of them."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from bench.spark_rows import PARTITIONS

ROWS_PER_PARTITION = 250


class Floor(DataSource):
    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> str:
        return "value binary"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: ARG002  # Spark gives it by name
        return _Reader()


class _Reader(DataSourceStreamReader):
    """There is always one batch more."""

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: ARG002  # there is none
        return {"batch": start["batch"] + 1}

    def partitions(self, start: object, end: object) -> list[InputPartition]:  # noqa: ARG002  # the same for all
        return [InputPartition(index) for index in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # the same for all
        yield pa.RecordBatch.from_arrays([pa.array([bytes(100)] * ROWS_PER_PARTITION, pa.binary())], ["value"])
