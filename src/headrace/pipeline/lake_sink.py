"""What happens to each micro-batch of a lake: its rows are in the table once; what is no row has a topic of its own."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from headrace.errors import KafkaError
from headrace.pipeline.dead_letters import DeadLetters
from headrace.pipeline.files import WRITTEN, Written, writer
from headrace.pipeline.guard import Guard
from headrace.pipeline.lake_options import LakeOptions
from headrace.pipeline.lake_progress import LakeProgress
from headrace.pipeline.offset_log import is_planned, plan_of
from headrace.pipeline.outcome import AskedWrongly, Overtaken, PipelineFailed, sentence_of
from headrace.pipeline.parsing import REASON, Parsing
from headrace.pipeline.place import Records, StoreUnavailable
from headrace.pipeline.schemas import EVENT_DATE
from headrace.pipeline.tables import Table

QUERIES = "queries/"
"""Of the records beside a table: which query writes which topic to it."""

OWN_ERRORS = (AskedWrongly, PipelineFailed, KafkaError, StoreUnavailable, ValueError, OSError)


@dataclass
class LakeResult:
    """What a run has done."""

    table: str
    format: str
    query_id: str = ""
    batches: int = 0
    rows: int = 0
    dead_letters: int = 0
    files: int = 0
    bytes: int = 0
    merged_files: int = 0
    skipped_batches: int = 0
    """Those that an earlier run had committed already."""
    is_stopped: bool = False
    """With `once`: before all was in the table, as it was asked to."""
    seconds: float = 0.0
    schema: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Watcher:
    """Who wants to hear of a run. All are called from its thread."""

    said: Callable[[str], None] = lambda _: None
    progressed: Callable[[LakeProgress], None] = lambda _: None
    committed: Callable[[LakeResult], None] = lambda _: None
    began: Callable[[], None] = lambda: None
    """The query runs; whether there is anything to read is not known yet."""


@dataclass
class LakeSink:
    """Called in a thread of Spark's."""

    options: LakeOptions
    result: LakeResult
    parsing: Parsing
    schema: StructType
    guard: Guard
    watcher: Watcher
    dead_letters: DeadLetters | None = None
    failure: Exception | None = None
    _query: StreamingQuery | None = None
    _table: Table | None = None
    _is_first: bool = True
    """No batch of the query has come since it was started."""
    _is_started: threading.Event = field(default_factory=threading.Event)
    _small: dict[str, int] = field(default_factory=dict)
    """Files of the days that this run has written to; about, since others may write there too."""

    def file_form(self) -> tuple[Any, int]:
        """Of the table's files: columns, and how many bytes a file is to have."""
        is_delta = self.options.format == "delta"
        columns = StructType([one for one in self.schema.fields if is_delta or one.name != EVENT_DATE])
        return to_arrow_schema(columns, timezone="UTC"), self.options.file_bytes

    def started(self, query: StreamingQuery, table: Table) -> None:
        """Batches wait until it is known whose they are."""
        self._query = query
        self._table = table
        self._is_first = True
        self.failure = None
        self._is_started.set()

    def write(self, batch: DataFrame, batch_id: int) -> None:
        self._is_started.wait()
        try:
            self._write(batch, batch_id)
        except OWN_ERRORS as error:
            self.failure = error
            raise
        except Py4JError as error:
            # Of a query that is stopped Spark looks for the reason in all that Python told, with a regex that runs out
            # of stack over the traces of a cancelled job: whoever pressed Ctrl-C would see a thousand lines of that.
            self.failure = PipelineFailed(sentence_of(error))
            raise self.failure from None

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        assert self._query is not None and self._table is not None and self.dead_letters is not None
        self.guard.check(str(self._query.id), str(self._query.runId), batch_id)
        plan = plan_of(batch.sparkSession, self.options.checkpoint_location(), batch_id)
        if self._is_first:
            self._check_known(str(self._query.id), batch_id)
            self._claim_topics(str(self._query.id))
            if is_planned(batch.sparkSession, self.options.checkpoint_location(), batch_id + 1):
                raise Overtaken(f"another driver works on this checkpoint, and has gone on to batch {batch_id + 1}")
            self._check_not_older(batch_id, plan)
            self._is_first = False
        if self._table.has(batch_id):
            self.result.skipped_batches += 1
            return
        rows = self.parsing.rows(batch)
        files, dead = self._files(rows, batch_id)
        if dead:
            self.dead_letters.write(rows, batch_id)
        if (files or dead) and self._table.commit(batch_id, files, plan):
            self.result.rows += sum(one.rows for one in files)
            self.result.dead_letters += dead
            self.result.files += len(files)
            self.result.bytes += sum(one.bytes for one in files)
        self.result.batches += 1
        self.watcher.committed(self.result)
        self._merge_days(files)

    def _check_known(self, query_id: str, batch_id: int) -> None:
        """A checkpoint that goes on is of a table that was written to: a new one would lack all rows before."""
        if not batch_id or self.options.scope is not None:
            return
        place = self.options.place()
        records = Records(place)
        if not any(records.get(key) == query_id.encode() for key in records.names(QUERIES)):
            raise PipelineFailed(
                f"the checkpoint has {batch_id} batches behind it, and {place.url} was not written to by its query: "
                "the table is another one, or was deleted, and would lack their rows. Give the --to of then; or "
                "another --checkpoint, and all rows are written from the beginning; or --scope NAME to go on from here"
            )

    def _claim_topics(self, query_id: str) -> None:
        """A query without its checkpoint is another one, and begins at the beginning: all rows would come twice."""
        records = Records(self.options.place())
        for topic in self.options.topics:
            key = f"{QUERIES}{'default' if self.options.scope is None else f'given-{self.options.scope}'}/topic={topic}"
            there = records.put(key, query_id.encode()).decode()
            if there != query_id:
                raise PipelineFailed(
                    f"topic {topic} was written to this table by query {there}, and this is query {query_id}: its "
                    "checkpoint is another one, so that rows would come twice. Give the checkpoint of then, or another "
                    "--to; or --scope NAME to add the rows nevertheless"
                )

    def _check_not_older(self, batch_id: int, plan: str) -> None:
        """Spark does the last batch again of which it does not know the end, and no earlier one, nor another one under
        its number: that comes of a checkpoint of an earlier time, whose batches would be taken for those of then."""
        assert self._table is not None
        last = self._table.last_batch()
        if last is None or last < batch_id:
            return
        if last > batch_id or self._table.plan_of(batch_id) not in ("", plan):
            which = f"batch {last}" if last > batch_id else "another batch of that number"
            raise PipelineFailed(
                f"the checkpoint is older than the table: batch {batch_id} of query {self.result.query_id} comes, and "
                f"the table has {which} already. Rows that differ from those of then would be lost, so nothing is "
                "written: go on with the checkpoint of then; or give another --checkpoint and another --to, and all "
                "rows are written from the beginning; or --scope NAME to add all from here on, what is in the table "
                "already too"
            )

    def _files(self, rows: DataFrame, batch_id: int) -> tuple[list[Written], int]:
        assert self._table is not None
        place = self.options.place()
        columns = StructType([one for one in self.schema.fields if one.name != EVENT_DATE])
        write = writer(
            place,
            self._table.below(batch_id),
            batch_id,
            to_arrow_schema(columns, timezone="UTC"),
            self.options.file_bytes,
        )
        chosen = rows.select(*(f"`{one.name}`" for one in self.schema.fields), REASON)
        told = chosen.mapInArrow(write, WRITTEN).collect()
        files = [Written(one.path, one.event_date, one.rows, one.bytes) for one in told if one.path is not None]
        return sorted(files), sum(one.dead for one in told)

    def merge_at_end(self) -> None:
        """Of a run that ends by itself: nobody waits for the next batch."""
        if self.options.merge_files and self._table is not None:
            self.result.merged_files += self._table.merge(sorted(self._small), 2)

    def _merge_days(self, written: Sequence[Written]) -> None:
        """The table is asked once for each day what earlier runs left there; then it is counted."""
        assert self._table is not None
        if not self.options.merge_files:
            return
        new = Counter(one.event_date for one in written)
        counts = self._table.small_files([day for day in new if day not in self._small])
        self._small.update({day: counts[day] if day in counts else self._small[day] + new[day] for day in new})
        days = [day for day in new if self._small[day] >= self.options.merge_files]
        self.result.merged_files += self._table.merge(days, self.options.merge_files)
        self._small.update(dict.fromkeys(days, 1))
