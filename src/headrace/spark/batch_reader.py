"""`spark.read.format("headrace")`."""

import logging
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
from headrace.spark.pushdown import Pruned, pruned
from headrace.spark.reading import read
from headrace.spark.schema import check_schema
from headrace.spark.tier_planning import cold_of
from headrace.spark.verdicts import DataLoss, LogNow, Place, judge

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

PUSHDOWN_MODULE = "pyspark.sql.worker.data_source_pushdown_filters"
"""The process that Spark asks about filters, if it is to ask at all. Where it is not, a reader that takes filters
fails the query."""


def plan_batch(options: SourceOptions, view: LogView, pruned: Pruned, cold: Cold = no_tier) -> list[Piece]:
    """DataLoss for offsets that were asked for and are not there, unless that is accepted."""
    # Asked anew for each plan: the process that plans it lives on, and has planned others.
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
        self._pruned = Pruned()

    def partitions(self) -> list[InputPartition]:
        connection = self._options.connection
        view = view_of(connection)
        return list(plan_batch(self._options, view, self._pruned, cold_of(view, connection)))

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_piece(partition, self._options, self._schema)


class PushdownReader(BatchReader):
    """Of all queries on what one `load()` gave, Spark keeps one plan: that of the filters it handed down last, also for
    those that have none. So filters are taken only where somebody has said that there is one query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._pruned = pruned(filters)
        return filters  # and Spark applies all of them still: the plan may be another query's after all


def batch_reader(options: SourceOptions, schema: StructType) -> BatchReader:
    is_asked = PUSHDOWN_MODULE in sys.modules or _is_asked_about_filters()
    if is_asked and options.takes_filters is None:
        log.warning(
            "Spark hands filters down, and all is read nevertheless: the option filterPushdown=true leaves out what is "
            "filtered, for a DataFrame that only one query uses; filterPushdown=false ends this message"
        )
    return (PushdownReader if is_asked and options.takes_filters else BatchReader)(options, schema)


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
