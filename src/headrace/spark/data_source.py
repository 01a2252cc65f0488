"""The data source `headrace`, as Spark looks for it."""

from importlib.util import find_spec

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from headrace.spark.option_values import OptionRefused
from headrace.spark.options import includes_headers, includes_metadata, read_options
from headrace.spark.schema import source_schema
from headrace.spark.worker_memory import keep_what_is_loaded

NEEDED = ("pyarrow", "numba")


class HeadraceDataSource(DataSource):
    """Pickled into Spark's processes, of which each imports only what it needs."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        keep_what_is_loaded()
        return source_schema(includes_headers(self.options), includes_metadata(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.spark.batch_reader import batch_reader

        keep_what_is_loaded()
        check_extra()
        return batch_reader(read_options(self.options, "batch"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from headrace.spark.sink import job_sink
        from headrace.spark.write_options import check_columns, write_options

        keep_what_is_loaded()
        check_extra()
        options = write_options(self.options)
        check_columns(schema, options.topic)
        return job_sink(options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002  # Spark gives it by name
        """`overwrite` is set in complete mode, in which each batch is the whole result: it is appended, as Spark's own
        connector has it."""
        from headrace.spark.stream_sink import StreamSink, check_scope
        from headrace.spark.write_options import check_columns, write_options

        keep_what_is_loaded()
        check_extra()
        options = write_options(self.options)
        check_columns(schema, options.topic)
        check_scope(options)
        return StreamSink(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from headrace.spark.stream_reader import RefusedReader, StreamReader

        try:
            check_extra()
            return StreamReader(read_options(self.options, "stream"), schema)
        except OptionRefused as refusal:
            return RefusedReader(refusal)  # raised from here, Spark would bury it under an error of its own


def check_extra() -> None:
    """OptionRefused if the libraries are not there that tasks need."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise OptionRefused(f"{' and '.join(missing)} cannot be imported: install headrace[spark] on all machines")
