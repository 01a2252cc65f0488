"""Topics to a table: a query on Spark whose micro-batches are in the table once each.

from headrace.pipeline.lake import LakeOptions, run
run(LakeOptions(topics=("orders",), to="/data/lake/orders", format="delta", once=True))
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from headrace.client import Admin
from headrace.client.outside import Outside
from headrace.errors import KafkaError
from headrace.pipeline import schemas, session
from headrace.pipeline.dead_letters import DeadLetters
from headrace.pipeline.delta_table import DeltaTable
from headrace.pipeline.files import WRITTEN, Written, writer
from headrace.pipeline.guard import Guard
from headrace.pipeline.lake_options import LakeOptions as LakeOptions
from headrace.pipeline.lake_progress import LakeProgress as LakeProgress
from headrace.pipeline.lake_progress import ProgressClock
from headrace.pipeline.outcome import AskedWrongly, PipelineFailed, sentence_of
from headrace.pipeline.parquet_table import ParquetTable
from headrace.pipeline.parsing import REASON, SOURCE, Parsing, table_schema
from headrace.pipeline.place import Place, Records, StoreUnavailable
from headrace.pipeline.schemas import EVENT_DATE, ValueSchema
from headrace.pipeline.tables import Table
from headrace.spark.door import door
from headrace.spark.listener import GroupListener
from headrace.spark.scope import Scope, scope_of

LOOK_S = 0.5
REACH_MS_MAX = 10_000
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


def run(
    options: LakeOptions,
    watcher: Watcher | None = None,
    stop: threading.Event | None = None,
    spark: SparkSession | None = None,
) -> LakeResult:
    """Until all is in the table (`once`), or until `stop` is set. AskedWrongly, PipelineFailed, KafkaError.

    Beside the session that is given, or that runs in this process; or else in one of its own, which ends with it.
    """
    options.check()
    session.check_installed(*(("deltalake",) if options.format == "delta" else ()))
    options.place().refuse_foreign()
    door().run(_look_for_topics(options))
    with session.opened("headrace lake", options.master, options.conf, spark) as chosen:
        chosen.conf.set("spark.sql.session.timeZone", "UTC")
        lake = _Lake(options, watcher or Watcher(), chosen)
        try:
            return lake.run(stop or threading.Event())
        except (PySparkException, Py4JError) as error:
            raise PipelineFailed(sentence_of(error)) from error
        finally:
            lake.close()


async def _look_for_topics(options: LakeOptions) -> None:
    """KafkaError before a JVM is started for nothing."""
    async with Admin(options.bootstrap) as admin:
        await admin.reach(REACH_MS_MAX)
        await admin.describe_topics(options.topics)


class _Lake:
    def __init__(self, options: LakeOptions, watcher: Watcher, spark: SparkSession) -> None:
        self._options = options
        self._watcher = watcher
        self._spark = spark
        self._place: Place = options.place()
        self._checkpoint = options.checkpoint_location()
        self._scope: Scope = scope_of(options.scope, self._checkpoint, self._place.url)
        self._guard: Guard | None = None
        self._result = LakeResult(self._place.url, options.format)
        self._clock = Outside().clock

    def run(self, stop: threading.Event) -> LakeResult:
        began_ms = self._clock.monotonic_ms()
        schema = self._schema()
        self._result.schema = schema.ddl()
        parsing = Parsing(schema, self._options.event_time, self._options.avro_header)
        schemas.keep(Records(self._place), schema)
        app_start_ms = int(self._spark.sparkContext.startTime or 0)
        self._guard = Guard(self._options.bootstrap, self._scope, app_start_ms)
        sink = _Sink(self._options, self._result, parsing, table_schema(schema), self._guard, self._watcher)
        sink.dead_letters = DeadLetters(
            self._options.bootstrap, self._options.dead_letter_topic, self._checkpoint, self._options.scope
        )
        kind = DeltaTable if self._options.format == "delta" else ParquetTable
        kind(self._place, "", *sink.file_form()).begin()
        with _listening(self._spark, self._options, self._name):
            query = self._start(sink)
            self._result.query_id = str(query.id)
            app_id = f"{query.id}.{self._scope.name}"
            sink.started(query, kind(self._place, app_id, *sink.file_form()))
            try:
                self._wait(query, sink, stop)
            finally:
                query.stop()
        if self._options.once and not stop.is_set():
            sink.merge_at_end()
        self._result.seconds = (self._clock.monotonic_ms() - began_ms) / 1000
        return self._result

    def close(self) -> None:
        if self._guard is not None:
            self._guard.close()

    @property
    def _name(self) -> str:
        return f"lake {' '.join(self._options.topics)}"

    def _schema(self) -> ValueSchema:
        options, records = self._options, Records(self._place)
        if options.schema is not None:
            return schemas.parse_schema(options.schema, self._spark)
        kept = schemas.kept(records, self._spark)
        if kept is not None:
            return kept
        found = schemas.inferred(self._spark, options.bootstrap, options.topics, options.sample_rows)
        self._watcher.said(f"inferred from a sample of {', '.join(options.topics)}: {found.ddl()}")
        return found

    def _start(self, sink: "_Sink") -> StreamingQuery:
        options = self._options
        given = {
            "kafka.bootstrap.servers": options.bootstrap,
            "kafka.isolation.level": "read_committed",
            "subscribe": ",".join(options.topics),
            "startingOffsets": "earliest" if options.start == "beginning" else "latest",
            "maxOffsetsPerTrigger": str(options.rows_per_batch),
            **options.source,
        }
        stream = self._spark.readStream.format("headrace").schema(SOURCE).options(**given).load()
        writing = stream.writeStream.foreachBatch(sink.write).queryName(self._name)
        writing = writing.option("checkpointLocation", self._checkpoint)
        if options.once:
            writing = writing.trigger(availableNow=True)
        else:
            writing = writing.trigger(processingTime=f"{max(options.every_s, 0.0) * 1000:.0f} milliseconds")
        return writing.start()

    def _wait(self, query: StreamingQuery, sink: "_Sink", stop: threading.Event) -> None:
        clock = ProgressClock(self._clock.monotonic_ms() / 1000)
        last_batch = -1
        while not stop.is_set():
            try:
                ended = query.awaitTermination(LOOK_S)  # type: ignore[arg-type]  # seconds may have a fraction
            except StreamingQueryException as error:
                known = sink.failure
                if isinstance(known, ValueError) and not isinstance(known, AskedWrongly):
                    known = PipelineFailed(str(known))
                raise known or PipelineFailed(sentence_of(error)) from error
            for told in query.recentProgress:
                if told["batchId"] > last_batch and told["numInputRows"] > 0:
                    last_batch = int(told["batchId"])
                    progress = clock.told(told, self._clock.monotonic_ms() / 1000)
                    if progress is not None:
                        self._watcher.progressed(progress)
            if ended:
                return


@dataclass
class _Sink:
    """What happens to each micro-batch, in a thread of Spark's."""

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
        self._is_started.set()

    def write(self, batch: DataFrame, batch_id: int) -> None:
        self._is_started.wait()
        try:
            self._write(batch, batch_id)
        except OWN_ERRORS as error:
            self.failure = error
            raise

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        assert self._query is not None and self._table is not None and self.dead_letters is not None
        self.guard.check(str(self._query.id), str(self._query.runId), batch_id)
        if not self.result.batches and not self.result.skipped_batches:
            self._claim_topics(str(self._query.id))
        if self._table.has(batch_id):
            self.result.skipped_batches += 1
            return
        rows = self.parsing.rows(batch)
        files, dead = self._files(rows, batch_id)
        if dead:
            self.dead_letters.write(rows, batch_id)
        if (files or dead) and self._table.commit(batch_id, files):
            self.result.rows += sum(one.rows for one in files)
            self.result.dead_letters += dead
            self.result.files += len(files)
            self.result.bytes += sum(one.bytes for one in files)
        self.result.batches += 1
        self.watcher.committed(self.result)
        self._merge_days(files)

    def _claim_topics(self, query_id: str) -> None:
        """A query without its checkpoint is another one, and begins at the beginning: all rows would come twice."""
        records = Records(self.options.place())
        for topic in self.options.topics:
            key = f"queries/{'default' if self.options.scope is None else f'given-{self.options.scope}'}/topic={topic}"
            there = records.put(key, query_id.encode()).decode()
            if there != query_id:
                raise PipelineFailed(
                    f"topic {topic} was written to this table by query {there}, and this is query {query_id}: its "
                    "checkpoint is another one, so that rows would come twice. Give the checkpoint of then, or another "
                    "--to; or --scope NAME to add the rows nevertheless"
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


class _listening:
    """With --group the query's offsets are committed as a consumer's are, after each batch."""

    def __init__(self, spark: SparkSession, options: LakeOptions, query_name: str) -> None:
        self._spark = spark
        self._listener = (
            None if options.group is None else GroupListener(options.bootstrap, groups={query_name: options.group})
        )

    def __enter__(self) -> None:
        if self._listener is not None:
            self._spark.streams.addListener(self._listener)

    def __exit__(self, *_: object) -> None:
        if self._listener is not None:
            self._spark.streams.removeListener(self._listener)


__all__ = ["LakeOptions", "LakeProgress", "LakeResult", "Watcher", "run"]
