"""A Delta table, written without Spark's help: its log is kept by `deltalake`, which needs no jar.

The log knows the last batch of each query (`txn`), in the very entry that adds the batch's files. Files that no entry
names are nobody's rows: attempts that failed leave some, and `vacuum` removes them.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.client.outside import Outside
from headrace.pipeline.files import NO_DATE, Written
from headrace.pipeline.merging import join, small_files
from headrace.pipeline.outcome import AskedWrongly, PipelineFailed
from headrace.pipeline.parquet_table import BATCHES
from headrace.pipeline.place import Place, Records
from headrace.pipeline.schemas import EVENT_DATE
from headrace.system import SystemRandom

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable as Log
    from deltalake.transaction import AddAction

PLAIN_FEATURES = frozenset({"timestampNtz"})
"""With other ones rows are not what is in their file: they are deleted elsewhere, or columns have other names there."""
COLUMN_MAPPING = 2
"""A table for readers of this version has it."""
PLAN_ENTRIES_MAX = 1_000
"""Of the log, the newest: each is a file, and the last batch of a query is never far behind."""
PLAIN_PATH = re.compile(r"[A-Za-z0-9=_./-]+")
"""Others are escaped in the log, in more than one way."""


class DeltaTable:
    def __init__(self, place: Place, app_id: str, schema: "pa.Schema", file_bytes: int) -> None:
        self._place = place
        self._app_id = app_id
        self._plan_name = f"headrace.{app_id}"
        self._schema = schema
        self._file_bytes = file_bytes

    def begin(self) -> None:
        from deltalake import DeltaTable as Log
        from deltalake import Schema

        place = self._place
        options = place.delta_options or None
        with _told(place):
            is_there = Log.is_deltatable(place.delta_uri, options)
        if not is_there and Records(place).names(BATCHES):
            raise AskedWrongly(f"{place.url} is a table of Parquet files: give --format parquet, or another --to")
        with _told(place):
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
        last = self.last_batch()
        return last is not None and last >= batch_id

    def last_batch(self) -> int | None:
        return self._log().transaction_version(self._app_id)

    def plan_of(self, batch_id: int) -> str:
        """Empty if it is too long ago; and entries are removed from the log after a month."""
        prefix = f"{batch_id} "
        told = (str(entry.get(self._plan_name, "")) for entry in self._log().history(PLAN_ENTRIES_MAX))
        return next((one.removeprefix(prefix) for one in told if one.startswith(prefix)), "")

    def below(self, batch_id: int) -> str:  # noqa: ARG002  # what the log does not name is not seen
        return ""

    def commit(self, batch_id: int, files: Sequence[Written], plan: str = "") -> bool:
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import CommitProperties, Transaction

        unseen = self._place.unseen(one.path for one in files)
        if unseen:
            raise PipelineFailed(unseen)
        now_ms = Outside().clock.wall_ms()
        actions = [_add(one, now_ms, has_new_rows=True) for one in files]
        log = self._log()
        last = log.transaction_version(self._app_id)
        if last is not None and last >= batch_id:
            return False
        mine = CommitProperties(
            custom_metadata={self._plan_name: f"{batch_id} {plan}"},
            app_transactions=[Transaction(self._app_id, batch_id)],
        )
        try:
            log.create_write_transaction(
                list(actions), "append", log.schema(), partition_by=[EVENT_DATE], commit_properties=mine
            )
        except CommitFailedError:
            if self.has(batch_id):  # two drivers on one checkpoint
                return False
            raise
        return True

    # Small files. deltalake's own `compact` takes no notice when somebody else has merged the same files since it
    # looked: their rows would come twice. So an entry that replaces files counts only where it directly follows the
    # entry that it was worked out from.

    def small_files(self, days: Sequence[str]) -> dict[str, int]:
        found = _plain_files(self._log()) if days else {}
        return {day: len(self._small(found.get(day, {}))) for day in days}

    def merge(self, days: Iterable[str], files_min: int) -> int:
        return sum(self._merge(day, files_min) for day in days)

    def _merge(self, day: str, files_min: int) -> int:
        log = self._log()
        sizes = _plain_files(log)[day]
        small = self._small(sizes)
        if len(small) < files_min:
            return 0
        into = f"event_date={day}/merged-{SystemRandom().bits(64):016x}.parquet"
        try:
            rows = join(self._place, small, into, self._schema.remove(self._schema.get_field_index(EVENT_DATE)))
        except FileNotFoundError:  # others have merged them, and removed them by `vacuum`
            return 0
        merged = Written(into, day, rows, int(self._place.file_system().get_file_info(self._place.within(into)).size))
        return len(small) if self._replace(log, {path: sizes[path] for path in small}, merged) else 0

    def _small(self, sizes: Mapping[str, int]) -> list[str]:
        return small_files(((size, path) for path, size in sizes.items()), self._file_bytes)

    def _replace(self, log: "Log", old: Mapping[str, int], new: Written) -> bool:
        """False if the table has changed since `log` was read: there is a next time."""
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import CommitProperties, RemoveAction

        now_ms = Outside().clock.wall_ms()
        day = _partition(new.event_date)
        gone = [RemoveAction(path, False, now_ms, size, day) for path, size in old.items()]
        try:
            log.create_write_transaction(
                [*gone, _add(new, now_ms, has_new_rows=False)],
                "append",
                log.schema(),
                partition_by=[EVENT_DATE],
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError:
            return False
        return True

    def _log(self) -> "Log":
        from deltalake import DeltaTable as Log

        with _told(self._place):
            return Log(self._place.delta_uri, storage_options=self._place.delta_options or None)


@contextmanager
def _told(place: Place) -> Iterator[None]:
    """PipelineFailed, with the first line of what deltalake says: the others are its stack."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except DeltaError as error:
        said = str(error).strip().partition("\n")[0]
        raise PipelineFailed(f"the Delta log of {place.url} cannot be read: {said}") from error


def _partition(event_date: str) -> dict[str, str | None]:
    return {EVENT_DATE: None if event_date == NO_DATE else event_date}


def _add(file: Written, now_ms: int, has_new_rows: bool) -> "AddAction":
    from deltalake.transaction import AddAction

    stats = json.dumps({"numRecords": file.rows})
    return AddAction(file.path, file.bytes, _partition(file.event_date), now_ms, has_new_rows, stats)


def _plain_files(log: "Log") -> dict[str, dict[str, int]]:
    """Sizes of the files of each day whose rows are what is in them, under the names that the log has for them."""
    import pyarrow as pa

    found: dict[str, dict[str, int]] = defaultdict(dict)
    protocol = log.protocol()
    if set(protocol.reader_features or ()) - PLAIN_FEATURES or protocol.min_reader_version == COLUMN_MAPPING:
        return found
    for one in pa.table(log.get_add_actions(flatten=True)).to_pylist():
        if PLAIN_PATH.fullmatch(one["path"]):
            found[str(one[f"partition.{EVENT_DATE}"] or NO_DATE)][one["path"]] = one["size_bytes"]
    return found
