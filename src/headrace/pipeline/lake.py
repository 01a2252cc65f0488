"""Topics to a table: a query on Spark whose micro-batches are in the table once each.

from headrace.pipeline.lake import LakeOptions, run
run(LakeOptions(topics=("orders",), to="/data/lake/orders", format="delta", once=True))
"""

import threading
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.client import Admin
from headrace.client.outside import Outside
from headrace.pipeline import schemas, session
from headrace.pipeline.column_types import check_types
from headrace.pipeline.dead_letter_topic import create_dead_letter_topic
from headrace.pipeline.dead_letters import DeadLetters
from headrace.pipeline.delta_table import DeltaTable
from headrace.pipeline.guard import Guard
from headrace.pipeline.lake_group import committing_as
from headrace.pipeline.lake_options import LakeOptions as LakeOptions
from headrace.pipeline.lake_progress import LakeProgress as LakeProgress
from headrace.pipeline.lake_progress import ProgressClock
from headrace.pipeline.lake_sink import LakeResult as LakeResult
from headrace.pipeline.lake_sink import LakeSink
from headrace.pipeline.lake_sink import Watcher as Watcher
from headrace.pipeline.outcome import AskedWrongly, Overtaken, PipelineFailed, sentence_of
from headrace.pipeline.parquet_table import ParquetTable
from headrace.pipeline.parsing import SOURCE, Parsing, table_schema
from headrace.pipeline.place import Place, Records
from headrace.pipeline.schemas import ValueSchema
from headrace.spark.ages import ages_s
from headrace.spark.door import door
from headrace.spark.scope import Scope, scope_of

LOOK_S = 0.5
REACH_MS_MAX = 10_000
TOO_SLOW = "Python worker failed to connect back"
"""Spark gives a new process of Python ten seconds, whatever else the machine does, and nothing changes that."""
ANOTHER_PLANNED = "CONCURRENT_STREAM_LOG_UPDATE"
"""What Spark says to the driver that comes later with a batch of the same number."""
STARTS = 5
"""Of a query that could not be started for that, or that another driver overtook meanwhile."""


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
        self._scope: Scope = scope_of(options.scope, self._checkpoint, self._place.delta_uri)
        self._guard: Guard | None = None
        self._result = LakeResult(self._place.url, options.format)
        self._clock = Outside().clock

    def run(self, stop: threading.Event) -> LakeResult:
        began_ms = self._clock.monotonic_ms()
        schema = self._schema()
        check_types(schema.fields, self._options.format)
        self._result.schema = schema.ddl()
        parsing = Parsing(schema, self._options.event_time, self._options.avro_header)
        schemas.keep(Records(self._place), schema)
        app_start_ms = int(self._spark.sparkContext.startTime or 0)
        self._guard = Guard(self._options.bootstrap, self._scope, app_start_ms)
        sink = LakeSink(self._options, self._result, parsing, table_schema(schema), self._guard, self._watcher)
        sink.dead_letters = DeadLetters(
            self._options.bootstrap, self._options.dead_letter_topic, self._checkpoint, self._scope.name
        )
        kind = DeltaTable if self._options.format == "delta" else ParquetTable
        kind(self._place, "", *sink.file_form()).begin()
        door().run(
            create_dead_letter_topic(self._options.bootstrap, self._options.dead_letter_topic, self._watcher.said)
        )
        with committing_as(self._options.group, self._options.bootstrap, self._name, self._spark):
            is_through = self._drive(sink, kind, stop)
        self._result.is_stopped = self._options.once and not is_through
        if self._options.once and not stop.is_set():
            sink.merge_at_end()
        self._result.seconds = (self._clock.monotonic_ms() - began_ms) / 1000
        return self._result

    def _drive(self, sink: LakeSink, kind: "type[DeltaTable | ParquetTable]", stop: threading.Event) -> bool:
        """Whether the query has come to its end by itself."""
        for starts_left in reversed(range(STARTS)):
            query = self._start(sink)
            self._result.query_id = str(query.id)
            app_id = f"{query.id}.{self._scope.name}"
            sink.started(query, kind(self._place, app_id, *sink.file_form()))
            self._watcher.began()
            try:
                return self._wait(query, sink, stop)
            except PipelineFailed as failed:
                if not starts_left:
                    raise
                if TOO_SLOW in str(failed):
                    self._watcher.said("the machine is too busy for Spark to start Python in 10 s; once more")
                elif self._is_overtaken(failed):
                    # The older one hears of it at its next batch; what it has done until then is in the checkpoint.
                    assert self._guard is not None
                    self._guard.check(str(query.id), str(query.runId), 0)
                    self._watcher.said("another driver works on this checkpoint, and is taken over from; once more")
                else:
                    raise
            finally:
                query.stop()
        raise AssertionError

    def _is_overtaken(self, failed: PipelineFailed) -> bool:
        """Only a driver that has written nothing yet is the newer one."""
        return not self._result.batches and (isinstance(failed, Overtaken) or ANOTHER_PLANNED in str(failed))

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

    def _start(self, sink: LakeSink) -> StreamingQuery:
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

    def _wait(self, query: StreamingQuery, sink: LakeSink, stop: threading.Event) -> bool:
        """Whether the query has ended by itself."""
        clock = ProgressClock(self._clock.monotonic_ms() / 1000, partial(ages_s, self._options.bootstrap))
        while not stop.is_set():
            try:
                ended = query.awaitTermination(LOOK_S)  # type: ignore[arg-type]  # seconds may have a fraction
            except StreamingQueryException as error:
                known = sink.failure
                if isinstance(known, ValueError) and not isinstance(known, AskedWrongly):
                    known = PipelineFailed(str(known))
                raise known or PipelineFailed(sentence_of(error)) from error
            now_s = self._clock.monotonic_ms() / 1000
            for progress in clock.news(query.recentProgress, now_s, stop.is_set):
                self._watcher.progressed(progress)
            if ended:
                return True
        return False


__all__ = ["LakeOptions", "LakeProgress", "LakeResult", "Watcher", "run"]
