"""`spark.read.format("headrace")`."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.model import TopicPartition
from headrace.spark.bounds import begin_offsets, end_offsets, selected
from headrace.spark.log_view import Ends, LogView, view_of
from headrace.spark.option_values import OptionRefused
from headrace.spark.options import Bound, SourceOptions
from headrace.spark.planning import Cold, Piece, Range, no_tier, plan
from headrace.spark.pushdown import Pruned, Pushdown
from headrace.spark.reading import read
from headrace.spark.schema import check_schema
from headrace.spark.tier_planning import cold_of
from headrace.spark.verdicts import DataLoss, LogNow, Place, judge

if TYPE_CHECKING:
    import pyarrow as pa

PUSHDOWN_MODULE = "pyspark.sql.worker.data_source_pushdown_filters"
"""The process that Spark asks about filters, if it is to ask at all. Where it is not, a reader that takes filters
fails the query."""


def plan_batch(options: SourceOptions, view: LogView, pruned: Pruned, cold: Cold = no_tier) -> list[Piece]:
    """DataLoss for offsets that were asked for and are not there, unless that is accepted."""
    # Asked anew by each batch: the process that plans it lives on, and has planned others.
    topics = view.topics(options.selection, ttl_ms=0)
    ends = view.ends(selected(options.selection, topics))
    begins = begin_offsets(options.starting, ends, view, options.is_time_miss_an_error)
    begins = _up_to(ends, begins, options.starting)
    stops = _up_to(ends, end_offsets(options.ending, ends, view), options.ending)
    _check_order(options, ends, begins, stops)
    times = {}
    if pruned.time_ms_min is not None:
        times = view.at_times({one: pruned.time_ms_min for one in ends if pruned.is_read(one)})
    ranges = []
    for one, now in sorted(ends.items()):
        log = LogNow(topics[one.topic].topic_id, now.start, now.end)
        begin = _there(one, begins[one], log, options.fails_on_data_loss)
        stop = _there(one, max(stops[one], begin), log, options.fails_on_data_loss)
        if not pruned.is_read(one):
            continue
        first = times.get(one, 0)
        if first is None:
            continue  # none is that new
        begin, stop = max(begin, pruned.offset_min, first), min(stop, pruned.offset_end)
        if begin < stop:
            ranges.append(Range(one, log.topic_id, begin, stop, now.epoch))
    pieces = plan(ranges, options.partitions_min, options.records_per_partition_max, cold)
    if pruned.time_ms_min is None:
        return pieces
    return [left for piece in pieces if (left := piece.since(pruned.time_ms_min)) is not None]


def _up_to(
    ends: Mapping[TopicPartition, Ends], found: dict[TopicPartition, int], bound: Bound
) -> dict[TopicPartition, int]:
    """Times are asked for after ends, and may be those of records that have come since: they are not of this batch. Of
    an offset that somebody named it is told."""
    if bound.offsets is not None:
        return found
    return {one: min(offset, ends[one].end) for one, offset in found.items()}


def _check_order(
    options: SourceOptions,
    ends: Mapping[TopicPartition, Ends],
    begins: Mapping[TopicPartition, int],
    stops: Mapping[TopicPartition, int],
) -> None:
    """OptionRefused for an end before a beginning that somebody named; one that is not written yet is told as that."""
    for one in sorted(options.starting.offsets or ()):
        if stops[one] < begins[one] <= ends[one].end:
            raise OptionRefused(
                f"option {options.starting.option} begins {one} at offset {begins[one]}, and option "
                f"{options.ending.option} ends it at {stops[one]}"
            )


def _there(one: TopicPartition, offset: int, log: LogNow, fails: bool) -> int:
    loss = judge(one, Place(offset, is_read=False), log)
    if loss is None:
        return offset
    if fails:
        raise DataLoss(loss)
    return loss.resume_at


class BatchReader(DataSourceReader):
    """Pickled into every task: it holds nothing but what was asked for."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema
        self._pushdown = Pushdown()

    def partitions(self) -> list[InputPartition]:
        connection = self._options.connection
        view = view_of(connection)
        return list(plan_batch(self._options, view, self._pushdown.pruned, cold_of(view, connection)))

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_piece(partition, self._options, self._schema)


class PushdownReader(BatchReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return iter(self._pushdown.push(filters))


def batch_reader(options: SourceOptions, schema: StructType) -> BatchReader:
    kind = PushdownReader if PUSHDOWN_MODULE in sys.modules or _is_asked_about_filters() else BatchReader
    return kind(options, schema)


def _is_asked_about_filters() -> bool:
    """The worker's module may run as the program itself."""
    main: Any = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return spec is not None and spec.name == PUSHDOWN_MODULE


def read_piece(partition: InputPartition, options: SourceOptions, schema: StructType) -> "Iterator[pa.RecordBatch]":
    """Of no piece at all, nothing: Spark has a task read something even where nothing is planned."""
    if not isinstance(partition, Piece):
        return iter(())
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    return read(partition, options.connection, arrow_schema, options.fails_on_data_loss, options.query)
