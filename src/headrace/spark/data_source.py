"""The data source `headrace`, as Spark looks for it."""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from headrace.spark.options import includes_headers, read_options
from headrace.spark.schema import source_schema


class HeadraceDataSource(DataSource):
    """Pickled into Spark's processes, of which each imports only what it needs."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        return source_schema(includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.spark.batch_reader import batch_reader

        return batch_reader(read_options(self.options, "batch"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from headrace.spark.stream_reader import StreamReader

        return StreamReader(read_options(self.options, "stream"), schema)
