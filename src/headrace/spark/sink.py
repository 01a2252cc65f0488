"""The sink of a batch job: all of its rows can be read at once, or none."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from headrace.client.outside import Outside
from headrace.core.transactional_id import JOBS
from headrace.spark import task
from headrace.spark.committing import abort_batch, abort_job, commit_batch, commit_job
from headrace.spark.job_keeping import keep_job, release_job
from headrace.spark.messages import Written
from headrace.spark.option_values import OptionRefused
from headrace.spark.stream_sink import write_batch
from headrace.spark.task import Group
from headrace.spark.worker_memory import keep_what_is_loaded
from headrace.spark.write_options import WriteOptions
from headrace.spark.writing import guarantee_of, write_at_least_once, write_once

if TYPE_CHECKING:
    import pyarrow as pa


class JobSink(DataSourceArrowWriter):
    """Made on the driver, and pickled into its tasks and whatever commits them."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        job = f"{Outside().random.bits(128):032x}"
        # Under an id that nobody has again no batches are counted, so that a scope says nothing of a job.
        self._group = Group(JOBS, job, 0, job)
        self._kept = None if options.guarantee == "at_least_once" else keep_job(options.bootstrap, job)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        options = self._options
        if guarantee_of(options) == "at_least_once":
            return Written(write_at_least_once(iterator, options, Outside().random.bits(16)))
        return Written(write_once(iterator, options, self._group, task.attempt(task.current())), self._group)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        keep_what_is_loaded()
        try:
            commit_job(self._options, messages)
        finally:
            release_job(self._kept)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002  # Spark gives them
        release_job(self._kept)
        abort_job(self._options, self._group)


class ForeachBatchSink(DataSourceArrowWriter):
    """The rows that `foreachBatch` got of a stream, counted as those of its batch."""

    def __init__(self, options: WriteOptions, batch_id: int) -> None:
        self._options = options
        self._batch_id = batch_id

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return write_batch(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        keep_what_is_loaded()
        commit_batch(self._options, messages, self._batch_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort_batch(self._options, messages)


def job_sink(options: WriteOptions, overwrite: bool) -> DataSourceArrowWriter:
    """OptionRefused for what cannot be done."""
    if overwrite:
        raise OptionRefused('a topic cannot be overwritten: use mode("append"), and delete the topic first if need be')
    if options.foreach_batch_id is not None:
        return ForeachBatchSink(options, options.foreach_batch_id)
    if options.scope_name is not None:
        raise OptionRefused(
            "option scope names what the batches of a stream are counted under, and a batch job is none of them: leave "
            "it out, or, in foreachBatch, write with headrace.spark.foreach_batch"
        )
    return JobSink(options)
