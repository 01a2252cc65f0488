"""The sink of a stream."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from headrace.client.outside import Outside
from headrace.spark import task
from headrace.spark.committing import abort_batch, commit_batch
from headrace.spark.messages import Written
from headrace.spark.task import Group
from headrace.spark.write_options import WriteOptions
from headrace.spark.writing import guarantee_of, write_at_least_once, write_once

if TYPE_CHECKING:
    import pyarrow as pa


class StreamSink(DataSourceStreamArrowWriter):
    """Made anew in each of Spark's processes: what commits knows only what the tasks have told."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return write_batch(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commit_batch(self._options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002  # Spark gives it
        abort_batch(self._options, messages)


def check_scope(options: WriteOptions) -> None:
    """OptionRefused before anything is run, if nobody has said under which name batches are counted."""
    if options.scope_name is None and options.checkpoint is None and guarantee_of(options) == "exactly_once":
        options.scope()


def write_batch(rows: "Iterator[pa.RecordBatch]", options: WriteOptions) -> Written:
    """The part of a task in a batch of a stream."""
    if guarantee_of(options) == "at_least_once":
        return Written(write_at_least_once(rows, options, Outside().random.bits(16)))
    context = task.current()
    if options.foreach_batch_id is not None:
        task.check_foreach_batch(context, options.foreach_batch_id)
    batch, attempt = task.batch(context), task.attempt(context)
    group = Group(options.scope().name, batch.query_id, batch.batch_id, batch.run_id)
    return Written(write_once(rows, options, group, attempt), group, batch.app_start_ms)
