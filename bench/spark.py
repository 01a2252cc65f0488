"""Spark: our source and sink beside its own Kafka connector, on Headrace and on Apache Kafka, and beside Parquet."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.report import goals_table, table
from bench.results import Goal
from bench.spark_floor import FLOOR
from bench.spark_reads import (
    ACTIONS,
    COLD,
    COLUMNS,
    HOT,
    PARQUET,
    STOCK,
    SUM,
    TUNED,
    WAYS,
    Reading,
    Reads,
)
from bench.spark_rows import KINDS, TIER_SETTINGS, Rows
from bench.spark_session import Spent, session
from bench.spark_writes import AT_LEAST, ONCE, SINKS, STREAMS, small_batches, write_in_turn
from bench.spark_writes import TUNED as TUNED_SINK
from tests.servers.headrace import headrace_broker
from tests.servers.kafka import kafka_broker

SMALL, LARGE = Rows(100, "none"), Rows(1_000, "none")
ROWS = {100: 4_000_000, 1_000: 400_000}
QUICK_ROWS = {100: 400_000, 1_000: 60_000}
READ_ROUNDS = 6
STOCK_RATIO_MAX = 0.45
TUNED_RATIO_MAX = 0.7
TUNED_LARGE_RATIO_MAX = 1.0
PARQUET_RATIO_MAX = 2.0
ONCE_RATIO_MAX = 1.2


@dataclass
class SparkResults:
    machine: str
    reads: Reads
    written: dict[str, list[Spent]] = field(default_factory=dict)
    batch_ms: dict[str, list[float]] = field(default_factory=dict)

    def goals(self) -> list[Goal]:
        ratio = self._ratio
        stock, tuned = "of the CPU of Spark's connector on Kafka", "of the CPU of Spark's connector on Kafka, tuned"
        found = [
            Goal("100 B rows, all columns", ratio(SMALL, COLUMNS, HOT, STOCK), STOCK_RATIO_MAX, stock),
            Goal("100 B rows, all columns", ratio(SMALL, COLUMNS, HOT, TUNED), TUNED_RATIO_MAX, tuned),
            Goal("1 KB rows, all columns", ratio(LARGE, COLUMNS, HOT, TUNED), TUNED_LARGE_RATIO_MAX, tuned),
        ]
        for kind, size in ((SMALL, "100 B"), (LARGE, "1 KB")):
            for action in (SUM, COLUMNS):
                speed = self.reads.rows_per_s(kind, action, PARQUET) / self.reads.rows_per_s(kind, action, COLD)
                found.append(Goal(f"cold {size} rows, {action}", speed, PARQUET_RATIO_MAX, "of a Parquet scan's time"))
        once, least, theirs = (self._sink_cpu_s(sink) for sink in (ONCE, AT_LEAST, TUNED_SINK))
        found.append(Goal("exactly-once sink", once / theirs, 1.0, tuned))
        found.append(Goal("exactly-once sink", once / least, ONCE_RATIO_MAX, "of the CPU of ours at least once"))
        return found

    def _ratio(self, kind: Rows, action: str, ours: str, theirs: str) -> float:
        return self.reads.us_per_row(kind, action, ours) / self.reads.us_per_row(kind, action, theirs)

    def _sink_cpu_s(self, sink: str) -> float:
        return statistics.median(one.cpu_s for one in self.written[sink])


def measure(scratch: Path, machine: str, quick: bool) -> SparkResults:
    tier = {"remote.log.storage.system.enable": "true", "remote.storage.url": str(scratch / "objects")}
    headrace = headrace_broker(scratch / "spark-headrace", {**tier, **TIER_SETTINGS})
    kafka = kafka_broker(scratch / "spark-kafka", {})
    try:
        headrace.start()
        kafka.start()
        with session(scratch) as spark:
            reading = Reading(spark, scratch, headrace, kafka, QUICK_ROWS if quick else ROWS)
            reading.prepare()
            rounds = 1 if quick else 3
            results = SparkResults(machine, reading.run(1 if quick else READ_ROUNDS))
            results.written = write_in_turn(spark, scratch / "rows-100.parquet", headrace, kafka, rounds)
            results.batch_ms = small_batches(spark, scratch, headrace, kafka, rounds)
            return results
    finally:
        headrace.kill()
        kafka.kill()


def spark_markdown(results: SparkResults) -> str:
    reads = results.reads
    sizes = " and ".join(f"{count:,} rows of {size} B" for size, count in reads.counts.items())
    parts = [
        f"Machine: {results.machine}. PySpark on two cores, one broker of each kind, {sizes} in 4 partitions, half of "
        "each value random. CPU is that of Spark's JVM and its Python processes; medians of interleaved rounds, in "
        "each of which the sum and all columns are read twice; compressed rows are read once. For the sum, Headrace is "
        "asked for the column that it needs by a schema, as Spark asks Parquet by itself."
    ]
    parts.append(_table_of_ways("CPU us/row", reads.us_per_row))
    parts.append(_table_of_ways("million rows/s", lambda *which: reads.rows_per_s(*which) / 1e6))
    parts += [_share_table(reads), _added_table(reads), _sink_table(results)]
    parts += [_latency_table(results), goals_table(results.goals())]
    return "\n\n".join(parts)


def _table_of_ways(title: str, figure: Callable[[Rows, str, str], float]) -> str:
    rows = [
        (kind.label, action, *(f"{figure(kind, action, way):.2f}" for way in WAYS))
        for kind in KINDS
        for action in ACTIONS
    ]
    return table((title, "", *WAYS), rows)


def _share_table(reads: Reads) -> str:
    """Ours runs in the Python processes; what the JVM spends is Spark's."""
    rows = []
    for kind in (SMALL, LARGE):
        for action in ACTIONS:
            for way in (HOT, COLD, FLOOR) if action == COLUMNS else (HOT, COLD):
                all_us, python_us = reads.us_per_row(kind, action, way), reads.python_us_per_row(kind, action, way)
                broker_us = [f"{reads.broker_us_per_row(kind, action, one):.3f}" for one in (way, STOCK, TUNED)]
                rows.append(
                    (kind.label, action, way, f"{all_us - python_us:.2f}", f"{python_us:.2f}", *broker_us),
                )
    titles = ("who spends it, us/row", "", "", "Spark's JVM", "our Python", "the broker")
    return table((*titles, "Kafka with Spark's connector", "the same, tuned"), rows)


def _added_table(reads: Reads) -> str:
    """Beside a source that has its rows already: what is left is all that a better source could save."""
    rows = []
    for kind in (SMALL, LARGE):
        nothing_us, tuned_us = (reads.us_per_row(kind, COLUMNS, way) for way in (FLOOR, TUNED))
        for way in (HOT, COLD):
            all_us = reads.us_per_row(kind, COLUMNS, way)
            figures = (f"{all_us:.2f}", f"{nothing_us:.2f}", f"{all_us - nothing_us:.2f}")
            rows.append((kind.label, way, *figures, f"{1 - nothing_us / all_us:.0%}", f"{nothing_us / tuned_us:.2f}"))
    titles = (
        "all columns, CPU us/row",
        "",
        "all of it",
        FLOOR,
        "what we add",
        "our share",
        "Spark alone / tuned connector",
    )
    return table(titles, rows)


def _sink_table(results: SparkResults) -> str:
    count = results.reads.counts[100]
    rows = [
        (
            sink,
            f"{count / statistics.median(one.wall_s for one in runs) / 1e6:.2f}",
            f"{statistics.median(one.cpu_s for one in runs) / count * 1e6:.2f}",
            f"{statistics.median(one.broker_s for one in runs) / count * 1e6:.2f}",
        )
        for sink in SINKS
        for runs in [results.written[sink]]
    ]
    return table(("sink, 100 B rows", "million rows/s", "CPU us/row", "of the broker"), rows)


def _latency_table(results: SparkResults) -> str:
    rows = []
    for stream in STREAMS:
        times_ms = sorted(results.batch_ms[stream])
        p95_ms = times_ms[len(times_ms) * 95 // 100]
        rows.append((stream, f"{statistics.median(times_ms):.0f} ms", f"{p95_ms:.0f} ms"))
    return table(("micro-batches of 1,000 rows", "median", "p95"), rows)
