"""Every replica of a topic, and its segments in the tier, read and compared: a job on Spark.

from headrace.pipeline.verify import VerifyOptions, run
report = run(VerifyOptions("orders"))
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.client.cluster import parse_bootstrap
from headrace.client.outside import Outside
from headrace.pipeline import session
from headrace.pipeline.batch_checks import Finding, Producer, Sequences, Stretch, joined, repeated
from headrace.pipeline.outcome import AskedWrongly, PipelineFailed, sentence_of
from headrace.pipeline.replica_reading import TIER, Piece, Topic, check, headers_of
from headrace.pipeline.verify_again import found_of, look_again
from headrace.pipeline.verify_parts import PartitionPlan, Plan
from headrace.pipeline.verify_plan import make_plan
from headrace.pipeline.verify_report import Found, Report, Row
from headrace.spark.door import door

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

LOOK_S = 0.2


@dataclass(frozen=True)
class VerifyOptions:
    topic: str
    bootstrap: str = "127.0.0.1:9092"
    store: str | None = None
    """Where the tier is, if not where brokers say."""
    piece_bytes: int = 64 << 20
    timeout_ms: int = 30_000
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """AskedWrongly, with one sentence."""
        if not self.topic:
            raise AskedWrongly("no topic is named")
        if self.piece_bytes < 1 << 16:
            raise AskedWrongly(f"--piece-size is {1 << 16} at least, not {self.piece_bytes}")
        try:
            parse_bootstrap(self.bootstrap)
        except ValueError as error:
            raise AskedWrongly(str(error)) from None


Progress = Callable[[int, int], None]
"""Tasks that are done, and all."""


def run(
    options: VerifyOptions, progress: Progress = lambda _done, _all: None, spark: "SparkSession | None" = None
) -> Report:
    """AskedWrongly, KafkaError; PipelineFailed when Spark fails. In the session that there is, or in one of its own."""
    options.check()
    session.check_installed()
    clock = Outside().clock
    began_ms = clock.monotonic_ms()
    plan = door().run(
        make_plan(options.bootstrap, options.topic, options.store, options.piece_bytes, options.timeout_ms)
    )
    with session.opened("headrace verify", options.master, options.conf, spark) as chosen:
        pieces = plan.pieces
        topic = plan.topic
        tasks = tasks_of(pieces, options.piece_bytes)
        done = _spread(chosen, tasks, lambda some: [check(topic, piece) for piece in some], progress)
        stretches = [stretch for some in done for stretch in some]
        report = _Judging(plan, dict(zip(pieces, stretches, strict=True))).report()
        unequal = _unequal(plan, stretches)
        if unequal:
            told = _spread(chosen, unequal, lambda some: differences(topic, some), lambda _done, _all: None)
            for found in (one for some in told for one in some):
                _add(report, found)
    report = _without_what_expired(plan, report)
    report.seconds = (clock.monotonic_ms() - began_ms) / 1000
    return report


def tasks_of(pieces: Sequence[Piece], bytes_max: int) -> list[list[Piece]]:
    """In their order. A task costs Spark more than a small segment: it gets as many as have so many bytes together."""
    sizes = {
        (piece.partition, piece.start, piece.end): piece.segment.row.bytes
        for piece in pieces
        if piece.segment is not None
    }
    tasks: list[list[Piece]] = []
    room_bytes = 0
    for piece in pieces:
        size = sizes.get((piece.partition, piece.start, piece.end), bytes_max)
        if size > room_bytes:
            tasks.append([])
            room_bytes = bytes_max
        tasks[-1].append(piece)
        room_bytes -= size
    return tasks


def _spread(spark: "SparkSession", items: Sequence[T], work: Callable[[T], R], progress: Progress) -> list[R]:
    """One task for each."""
    if not items:
        return []
    context = spark.sparkContext
    group = f"headrace-verify-{Outside().random.bits(64):016x}"
    done: list[list[R]] = []
    failed: list[BaseException] = []

    def collect() -> None:
        try:
            context.setJobGroup(group, "headrace verify", interruptOnCancel=True)
            done.append(context.parallelize(list(enumerate(items)), len(items)).map(lambda one: work(one[1])).collect())
        except BaseException as error:  # told by the thread that waits
            failed.append(error)

    from pyspark import InheritableThread

    thread = InheritableThread(target=collect, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK_S)
            progress(_completed(context, group), len(items))
    except BaseException:  # Ctrl-C too: nothing goes on behind the caller's back
        context.cancelJobGroup(group)
        raise
    if failed:
        raise PipelineFailed(sentence_of(failed[0])) from failed[0]
    return done[0]


def _completed(context: Any, group: str) -> int:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


class _Judging:
    """Puts the pieces of each replica together again."""

    def __init__(self, plan: Plan, stretches: Mapping[Piece, Stretch]) -> None:
        self._plan = plan
        self._stretches = stretches
        self._report = Report(plan.topic.name, plan.topic.is_compacted)

    def report(self) -> Report:
        for partition in self._plan.partitions:
            self._partition(partition)
        for one in self._plan.unread:
            self._report.unread.append(Found(one.partition, one.node, "unread", -1, one.reason))
        return self._report

    def _partition(self, partition: PartitionPlan) -> None:
        report = self._report
        report.high_watermarks[partition.partition] = partition.high_watermark
        by_node: dict[int, list[Piece]] = defaultdict(list)
        for piece in sorted(partition.pieces, key=lambda piece: (piece.start, piece.end)):
            by_node[piece.node].append(piece)
        for held in partition.held:
            role = "leader" if held.node == partition.leader else "in sync" if held.is_in_sync else "behind"
            self._add_row(Row(partition.partition, held.node, role, held.start, held.end - 1), by_node[held.node])
            self._replica(partition, by_node[held.node], by_node[TIER] if held.node == partition.leader else [])
        if by_node[TIER]:
            first, end = partition.tier or (by_node[TIER][0].start, by_node[TIER][-1].end)
            self._add_row(Row(partition.partition, TIER, "tier", first, end - 1), by_node[TIER])
        for node, finding in partition.findings:
            _add(report, Found(partition.partition, node, *finding))
        for doubt in partition.doubts:
            _add(report, found_of(partition, doubt))

    def _add_row(self, row: Row, pieces: Sequence[Piece]) -> None:
        self._report.rows.append(row)
        for piece in pieces:
            stretch = self._stretches[piece]
            row.batches += stretch.batches
            row.records += stretch.records
            row.bytes += stretch.bytes
            for finding in stretch.findings:
                _add(self._report, Found(piece.partition, piece.node, *finding))
            if stretch.unread:
                self._report.unread.append(Found(piece.partition, piece.node, "unread", piece.start, stretch.unread))

    def _replica(self, partition: PartitionPlan, pieces: Sequence[Piece], tier: Sequence[Piece]) -> None:
        """That pieces fit together: with what is in the tier alone before them, if it is the leader's."""
        local_start = pieces[0].start if pieces else partition.high_watermark
        before = [piece for piece in tier if piece.is_log and piece.end <= local_start]
        for chain in chains([*before, *pieces]):
            stretches = [self._stretches[piece] for piece in chain]
            if any(stretch.unread for stretch in stretches):
                continue
            for finding in fit(stretches, is_compacted=self._plan.topic.is_compacted):
                _add(self._report, Found(partition.partition, chain[-1].node, *finding))


def chains(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Pieces that follow each other without a gap. One that begins within another, a segment that two leaders copied,
    is left out: it was checked for itself."""
    found: list[list[Piece]] = []
    for piece in pieces:
        if found and found[-1][-1].end == piece.start:
            found[-1].append(piece)
        elif not found or piece.start > found[-1][-1].end:
            found.append([piece])
    return found


def fit(stretches: Sequence[Stretch], *, is_compacted: bool) -> Iterator[Finding]:
    """What is wrong between stretches of one log that follow each other, and at its ends."""
    last: Stretch | None = None
    known: dict[Producer, Sequences] = {}
    is_excused = False  # whoever looked at what lies between has said why it does not fit
    for stretch in stretches:
        if not stretch.batches:
            is_excused |= _is_told(stretch)
            continue
        if not is_excused and not stretch.was_cut:
            yield from _begins(stretch, last, stretches[0].start, is_compacted)
        yield from _again(known, stretch.producers)
        known.update(stretch.producers)
        last, is_excused = stretch, _is_told(stretch)
    if not stretches or is_compacted:
        return
    end, reached = stretches[-1].end, stretches[0].start if last is None else last.next_offset
    if reached < end and not is_excused:
        yield Finding("missing", reached, f"offsets {reached} to {end - 1} are not there")


def _is_told(stretch: Stretch) -> bool:
    return stretch.was_cut or any(one.kind in ("missing", "unreadable", "batch", "tier") for one in stretch.findings)


def _begins(stretch: Stretch, last: Stretch | None, start: int, is_compacted: bool) -> Iterator[Finding]:
    if last is not None:
        yield from joined(stretch.first_offset, last.next_offset, stretch.first_epoch, last.last_epoch, is_compacted)
    elif stretch.first_offset > start and not is_compacted:
        yield Finding("missing", start, f"offsets {start} to {stretch.first_offset - 1} are not there")


def _again(known: Mapping[Producer, Sequences], producers: Mapping[Producer, Sequences]) -> Iterator[Finding]:
    for producer, now in producers.items():
        before = known.get(producer)
        twice = None if before is None else repeated(producer, before, now)
        if twice is not None:
            yield twice


# Replicas that differ.


def _unequal(plan: Plan, stretches: Sequence[Stretch]) -> list[list[Piece]]:
    """The same piece of several replicas, of which not all are the same; the leader's first. Compaction is each node's
    own matter."""
    if plan.topic.is_compacted:
        return []
    leaders = {partition.partition: partition.leader for partition in plan.partitions}
    same: dict[tuple[int, int, int], list[tuple[Piece, str]]] = defaultdict(list)
    for piece, stretch in zip(plan.pieces, stretches, strict=True):
        if piece.is_log and not stretch.unread and not stretch.was_cut:
            same[piece.partition, piece.start, piece.end].append((piece, stretch.digest))
    return [
        sorted((piece for piece, _ in some), key=lambda piece: piece.node != leaders[piece.partition])
        for some in same.values()
        if len({digest for _, digest in some}) > 1
    ]


def differences(topic: Topic, pieces: Sequence[Piece]) -> list[Found]:
    """Where each differs first from the first of them."""
    model = headers_of(topic, pieces[0])
    found = []
    for piece in pieces[1:]:
        other = headers_of(topic, piece)
        at = next((at for at, (one, two) in enumerate(zip(model, other, strict=False)) if one != two), None)
        if at is None and len(model) == len(other):
            continue
        place = min(len(model), len(other)) if at is None else at
        offset = min((some[place][0] for some in (model, other) if place < len(some)), default=piece.start)
        text = f"it differs from {'the tier' if pieces[0].node == TIER else f'node {pieces[0].node}'}, from here on"
        found.append(Found(piece.partition, piece.node, "difference", offset, text))
    return found


def _add(report: Report, found: Found) -> None:
    report.findings.append(found)
    for row in report.rows:
        if (row.partition, row.node) == (found.partition, found.node):
            row.findings += 1


def _without_what_expired(plan: Plan, report: Report) -> Report:
    """What was only on its way when it was looked at, or expired then, is no finding."""
    seen = door().run(look_again(plan, report.findings))
    report.findings = []
    for row in report.rows:
        row.findings = 0
    for one in seen.findings:
        _add(report, one)
    report.unread += seen.unread
    return report


__all__ = ["Report", "VerifyOptions", "chains", "differences", "fit", "run", "tasks_of"]
