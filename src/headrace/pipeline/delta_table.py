"""A Delta table, written without Spark's help: its log is kept by `deltalake`, which needs no jar.

The log knows the last batch of each query (`txn`), in the very entry that adds the batch's files. Files that no entry
names are nobody's rows: attempts that failed leave some, and `vacuum` removes them.
"""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.client.outside import Outside
from headrace.pipeline.files import NO_DATE, Written
from headrace.pipeline.outcome import AskedWrongly
from headrace.pipeline.parquet_table import BATCHES
from headrace.pipeline.place import Place, Records
from headrace.pipeline.schemas import EVENT_DATE

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable as Log


class DeltaTable:
    def __init__(self, place: Place, app_id: str, schema: "pa.Schema", file_bytes: int) -> None:
        self._place = place
        self._app_id = app_id
        self._schema = schema
        self._file_bytes = file_bytes

    def begin(self) -> None:
        from deltalake import DeltaTable as Log
        from deltalake import Schema

        place = self._place
        options = place.delta_options or None
        if not Log.is_deltatable(place.delta_uri, options) and Records(place).names(BATCHES):
            raise AskedWrongly(f"{place.url} is a table of Parquet files: give --format parquet, or another --to")
        log = Log.create(
            place.delta_uri,
            self._schema,
            partition_by=[EVENT_DATE],
            mode="ignore",
            storage_options=options,
        )
        if log.metadata().partition_columns != [EVENT_DATE] or log.schema() != Schema.from_arrow(self._schema):
            raise AskedWrongly(f"{place.url} is a Delta table with other columns: give another --to")

    def has(self, batch_id: int) -> bool:
        last = self._log().transaction_version(self._app_id)
        return last is not None and last >= batch_id

    def below(self, batch_id: int) -> str:  # noqa: ARG002  # what the log does not name is not seen
        return ""

    def commit(self, batch_id: int, files: Sequence[Written]) -> bool:
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, CommitProperties, Transaction

        now_ms = Outside().clock.wall_ms()
        actions = [
            AddAction(
                path=one.path,
                size=one.bytes,
                partition_values={EVENT_DATE: None if one.event_date == NO_DATE else one.event_date},
                modification_time=now_ms,
                data_change=True,
                stats=json.dumps({"numRecords": one.rows}),
            )
            for one in files
        ]
        log = self._log()
        last = log.transaction_version(self._app_id)
        if last is not None and last >= batch_id:
            return False
        mine = CommitProperties(app_transactions=[Transaction(self._app_id, batch_id)])
        try:
            log.create_write_transaction(
                list(actions), "append", log.schema(), partition_by=[EVENT_DATE], commit_properties=mine
            )
        except CommitFailedError:
            if self.has(batch_id):  # two drivers on one checkpoint
                return False
            raise
        return True

    def merge(self, days: Iterable[str], files_min: int) -> int:
        from deltalake.exceptions import CommitFailedError

        went = 0
        for day in days:
            log = self._log()
            where = [(EVENT_DATE, "=", "" if day == NO_DATE else day)]
            if len(log.file_uris(file_pruning_predicate=where)) < files_min:
                continue
            try:
                told = log.optimize.compact(partition_filters=where, target_size=self._file_bytes)
            except CommitFailedError:  # somebody else was at it; there is a next time
                continue
            went += int(told["numFilesRemoved"])
        return went

    def _log(self) -> "Log":
        from deltalake import DeltaTable as Log

        return Log(self._place.delta_uri, storage_options=self._place.delta_options or None)
