"""`spark.readStream.format("headrace")`."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.errors import KafkaError
from headrace.spark.batch_reader import read_piece
from headrace.spark.group_offsets import commit_group_offsets
from headrace.spark.log_view import view_of
from headrace.spark.offsets import from_json
from headrace.spark.option_values import OptionRefused
from headrace.spark.options import SourceOptions
from headrace.spark.schema import check_schema
from headrace.spark.stream_planning import StreamPlanner
from headrace.spark.tier_planning import cold_of
from headrace.system import SystemClock

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver for as long as the query; pickled into every task before it is asked for anything."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema
        self._planner: StreamPlanner | None = None

    @property
    def planner(self) -> StreamPlanner:
        if self._planner is None:
            view = view_of(self._options.connection)
            cold = cold_of(view, self._options.connection)
            self._planner = StreamPlanner(self._options, view, SystemClock(), cold)
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def initialOffset(self) -> dict[str, Any]:
        return self.planner.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Anything but everything tells `latestOffset` that limits are in force; what they are it knows itself."""
        options = self._options
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        if options.offsets_per_trigger_min is not None:
            return ReadMinRows(options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = from_json(start)
        end = self.planner.next(before, is_limited=not isinstance(limit, ReadAllAvailable))
        return start if end is before else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        return self.planner.latest().to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self.planner.freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return list(self.planner.pieces(from_json(start), from_json(end)))

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_piece(partition, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark comes here one batch late, and not at all after the last one: the listener is more exact."""
        group = self._options.group
        if self._options.commits_group_offsets and group is not None:
            try:
                there = self.planner.latest().offsets  # the topic of another place may be gone
                offsets = {one: offset for one, offset in from_json(end).offsets.items() if one in there}
                commit_group_offsets(self._options.connection.bootstrap, group, offsets)
            except KafkaError as error:  # who watches the lag hears of it late; the query has nothing of it
                log.warning("the offsets of group %s were not committed: %s", group, error)

    def stop(self) -> None:
        """Spark ends the process, and with it all connections."""


class RefusedReader(StreamReader):
    """Of a query whose options are wrong: whatever is asked of it, it says so."""

    def __init__(self, refusal: OptionRefused) -> None:
        self._refusal = refusal

    @property
    def planner(self) -> StreamPlanner:
        raise self._refusal

    def getDefaultReadLimit(self) -> ReadLimit:
        raise self._refusal
