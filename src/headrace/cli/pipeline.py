"""`headrace pipeline`: lake, verify. Spark is imported only by the command that runs."""

import os
import signal
import threading
from json import dumps
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headrace.cli import output
from headrace.cli.commands import BOOTSTRAP
from headrace.cli.options import Bootstrap, Json
from headrace.cli.outcome import Failure, UsageError
from headrace.cli.pipeline_bar import LakeBar, PiecesBar
from headrace.cli.values import parse_any_size, parse_span_ms

if TYPE_CHECKING:
    from headrace.pipeline.lake import LakeOptions, LakeResult
    from headrace.pipeline.verify_report import Report

VERIFIED = ["partition", "replica", "offsets", "batches", "records", "bytes", "findings"]
SHOWN_MAX = 50
Flag = Parameter(negative=(), show_default=False)
Master = Annotated[
    str | None,
    Parameter(metavar="URL", help="Where Spark runs it: local[*] unless given, or what spark-submit was told."),
]
Conf = Annotated[
    tuple[str, ...],
    Parameter(
        name="--conf", negative=(), show_default=False, metavar="KEY=VALUE", help="A setting of Spark; may be repeated."
    ),
]


Topics = Annotated[tuple[str, ...], Parameter(help="Topics that become one table.", negative=())]
To = Annotated[
    str, Parameter(metavar="URI", help="The table: a directory that all workers share, or s3://BUCKET/PREFIX.")
]
Format = Annotated[str, Parameter(help="parquet or delta.")]
Once = Annotated[bool, Flag, Parameter(help="End when all that is there now is in the table.")]
Schema = Annotated[
    str | None,
    Parameter(metavar="FILE", help="DDL, Spark's JSON or an Avro schema; else inferred from a sample of JSON."),
]
EventTime = Annotated[
    str | None, Parameter(metavar="COLUMN", help="Whose date a row is filed under, if not its timestamp's.")
]
DeadLetter = Annotated[
    str | None, Parameter(metavar="TOPIC", help="Where records go that are no rows: TOPIC-dead-letter unless given.")
]
AvroHeader = Annotated[bool, Flag, Parameter(help="Avro values begin with the 5 bytes of a schema registry.")]
Every = Annotated[str, Parameter(metavar="TIME", help="How often rows are written, without --once.")]
From = Annotated[str, Parameter(name="--from", help="Where a new table begins: beginning or end.")]
RowsPerBatch = Annotated[int, Parameter(help="At most so many records are read for one batch.")]
Sample = Annotated[int, Parameter(help="From so many records a schema is inferred.")]
FileSize = Annotated[str, Parameter(metavar="SIZE", help="What a file is to have at most, about.")]
MergeFiles = Annotated[int, Parameter(help="So many small files of a day are made one; 0 is never.")]
Checkpoint = Annotated[
    str | None, Parameter(metavar="DIR", help="Where Spark keeps how far it is; beside the table unless given.")
]
ScopeName = Annotated[
    str | None, Parameter(help="A name under which batches are counted; for a checkpoint that was moved.")
]
Source = Annotated[
    tuple[str, ...],
    Parameter(negative=(), show_default=False, metavar="KEY=VALUE", help="An option of the source; may be repeated."),
]
Group = Annotated[
    str | None, Parameter(help="Commit offsets as this group, so that `headrace group describe` shows the lag.")
]


def lake(
    topics: Topics,
    /,
    *,
    to: To,
    format: Format = "parquet",
    once: Once = False,
    schema: Schema = None,
    event_time: EventTime = None,
    dead_letter: DeadLetter = None,
    avro_header: AvroHeader = False,
    every: Every = "10s",
    from_: From = "beginning",
    rows_per_batch: RowsPerBatch = 1_000_000,
    sample: Sample = 1_000,
    file_size: FileSize = "128m",
    merge_files: MergeFiles = 32,
    checkpoint: Checkpoint = None,
    scope: ScopeName = None,
    group: Group = None,
    source: Source = (),
    master: Master = None,
    conf: Conf = (),
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    _check_spark()
    from headrace.pipeline.lake_options import LakeOptions

    options = LakeOptions(
        topics=topics,
        to=to,
        format=format,
        bootstrap=bootstrap,
        once=once,
        every_s=parse_span_ms(every, "--every") / 1000,
        start=from_,
        schema=None if schema is None else _text_of(schema),
        avro_header=avro_header,
        event_time=event_time,
        dead_letter=dead_letter,
        checkpoint=checkpoint if checkpoint is None or "://" in checkpoint else os.path.abspath(checkpoint),
        scope=scope,
        group=group,
        rows_per_batch=rows_per_batch,
        sample_rows=sample,
        file_bytes=parse_any_size(file_size, "--file-size"),
        merge_files=merge_files,
        master=master,
        conf=_pairs(conf, "--conf"),
        source=_pairs(source, "--source"),
        working_directory=os.getcwd(),
    )
    _run_lake(options, json)


def _run_lake(options: "LakeOptions", json: bool) -> None:
    from headrace.pipeline.outcome import AskedWrongly, PipelineFailed
    from headrace.pipeline.place import StoreUnavailable

    try:
        options.check()
        from headrace.pipeline.lake import Watcher, run

        with LakeBar() as bar:
            result = run(options, Watcher(output.say, bar.progressed, bar.committed, bar.began), _stopping())
    except AskedWrongly as wrong:
        raise UsageError(str(wrong)) from wrong
    except (PipelineFailed, StoreUnavailable) as failed:
        raise Failure(str(failed)) from failed
    if json:
        output.document(result.to_json())
    else:
        _show_lake(result, options.dead_letter_topic)
    if result.is_stopped:
        raise Failure("stopped before all was in the table: what is missing comes with the next run")


def _show_lake(result: "LakeResult", dead_letter_topic: str) -> None:
    output.line(
        f"{result.rows:,} rows in {result.files:,} files, {result.bytes:,} bytes, by {result.batches} batches in "
        f"{result.seconds:.1f} s: {result.table}"
    )
    if result.dead_letters:
        output.line(f"{result.dead_letters:,} records are no rows: they are in {dead_letter_topic}")


def verify(
    topic: Annotated[str, Parameter(help="The topic.")],
    /,
    *,
    report: Annotated[
        str | None, Parameter(metavar="FILE", help="Write the report there too, as JSON; all findings are in it.")
    ] = None,
    store: Annotated[
        str | None, Parameter(metavar="URL", help="Where the tier is, if not where the brokers say.")
    ] = None,
    piece_size: Annotated[str, Parameter(metavar="SIZE", help="What one task of Spark reads, about.")] = "64m",
    master: Master = None,
    conf: Conf = (),
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    _check_spark()
    from headrace.pipeline.outcome import AskedWrongly, PipelineFailed
    from headrace.pipeline.verify import VerifyOptions, run

    options = VerifyOptions(
        topic=topic,
        bootstrap=bootstrap,
        store=store,
        piece_bytes=parse_any_size(piece_size, "--piece-size"),
        master=master,
        conf=_pairs(conf, "--conf"),
    )
    if report is not None:
        _check_writable(report)
    with PiecesBar() as bar:
        try:
            found = run(options, bar.show)
        except AskedWrongly as wrong:
            raise UsageError(str(wrong)) from wrong
        except PipelineFailed as failed:
            raise Failure(str(failed)) from failed
    told = found.to_json()
    if report is not None:
        with open(report, "w", encoding="utf-8") as file:
            file.write(dumps(told, indent=2) + "\n")
    if json:
        output.document(told)
    else:
        _show(found)
    if found.findings:
        raise Failure(f"not all of {topic} is as it should be")
    if found.unread:
        raise Failure(f"not all of {topic} was read")


def _check_writable(path: str) -> None:
    """Before hours of work, not after them. What is there stays until the new report is."""
    is_new = not os.path.lexists(path)
    try:
        open(path, "a", encoding="utf-8").close()
        if is_new:
            os.remove(path)
    except OSError as error:
        raise UsageError(f"--report {path} cannot be written: {error.strerror}") from error


def _show(report: "Report") -> None:
    output.table(
        VERIFIED,
        [
            [
                row.partition,
                row.name if row.name == row.role else f"{row.name}, {row.role}",
                f"{row.first} to {row.last}" if row.first <= row.last else "none",
                *(f"{number:,}" for number in (row.batches, row.records, row.bytes)),
                row.findings or "none",
            ]
            for row in report.rows
        ],
    )
    for one in report.findings[:SHOWN_MAX]:
        output.line(one.sentence(report.topic))
    if len(report.findings) > SHOWN_MAX:
        output.line(f"and {len(report.findings) - SHOWN_MAX} more: --report FILE has all of them")
    for one in report.unread:
        output.line(f"{report.topic}-{one.partition}, {name_of(one.node)}, was not read: {one.text}")
    output.line(f"{report.batches:,} batches, {report.bytes:,} bytes in {report.seconds:.1f} s: {report.summary()}")


def name_of(node: int) -> str:
    from headrace.pipeline.verify_report import name_of as name

    return name(node)


def _stopping() -> threading.Event:
    """Set by the first Ctrl-C or SIGTERM; the second one finds the system's own handler and ends the process."""
    stop = threading.Event()

    def ask(*_: object) -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, ask)
    return stop


def _check_spark() -> None:
    """Before anything is imported that needs what is not there."""
    from headrace.pipeline.session import not_installed

    if missing := not_installed():
        raise Failure(missing)


def _text_of(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        try:
            return file.read()
        except UnicodeDecodeError:
            raise UsageError(f"--schema {path} is no text") from None


def _pairs(settings: tuple[str, ...], option: str) -> dict[str, str]:
    found = {}
    for pair in settings:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} takes KEY=VALUE, not {pair!r}")
        found[key.strip()] = value.strip()
    return found
