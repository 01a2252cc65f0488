"""Results as Markdown tables, for the terminal and for docs/PERFORMANCE.md."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.results import HEADRACE, KAFKA, Goal, Results
from bench.rounds import Measured
from bench.sessions import IdlePartitions

ONE_NODE, CLUSTER, OWNERS, TIER, SPARK = "`make bench`", "the cluster", "the owners", "the tier", "Spark"
"""Whose figures stand between two marks of the document."""
NONE = "-"


def markdown(results: Results) -> str:
    rounds = rounds_told(results.rounds, results.warm_up)
    parts = [f"Machine: {results.machine}. Cells are min / median of {rounds}."]
    if results.measured:
        parts.append(load_table(results.measured))
    if results.idle:
        parts.append(_idle_table(results.idle))
    if results.start_up:
        parts.append(_start_table(results))
    if goals := results.goals():
        parts.append(goals_table(goals))
    return "\n\n".join(parts)


def rounds_told(rounds: int, warm_up: int) -> str:
    return f"{rounds} interleaved rounds after {warm_up} dropped for JVM warm-up"


def goals_table(goals: Sequence[Goal]) -> str:
    rows = [
        (goal.name, f"{goal.value:.3g} {goal.unit}", f"{goal.limit:g}", "met" if goal.is_met else "**missed**")
        for goal in goals
    ]
    return table(("target", "measured", "at most", ""), rows)


def replace_figures(document: Path, whose: str, figures: str) -> None:
    """Puts the figures between their two marks of the document, and leaves everything else as it is."""
    first, last = f"<!-- figures of {whose} begin -->", f"<!-- figures of {whose} end -->"
    head, begin, rest = document.read_text().partition(first)
    _, end, tail = rest.partition(last)
    assert begin and end, f"{document} lacks the marks around the figures of {whose}"
    document.write_text(f"{head}{first}\n{figures}\n{last}{tail}")


def load_table(measured: Sequence[Measured]) -> str:
    rows = []
    for row in measured:
        ratio = row.ratio()
        share = NONE if ratio is None else f"{ratio:.2f} (target {row.workload.ratio_max:g})"
        cells = [row.workload.name, *(_cpu(row, name) for name in (KAFKA, HEADRACE)), share]
        rows.append((*cells, *(_speed(row, name) for name in (KAFKA, HEADRACE))))
    titles = ("workload", "Kafka CPU", "Headrace CPU", "Headrace / Kafka", "Kafka speed", "Headrace speed")
    return table(titles, rows)


def _cpu(row: Measured, broker: str) -> str:
    if broker not in row.samples:
        return NONE
    figures = row.cpu(broker)
    if row.workload.unit == "GB":
        return f"{min(figures):.2f} / {statistics.median(figures):.2f} s/GB"
    return f"{min(figures):.1f} / {statistics.median(figures):.1f} us/request"


def _speed(row: Measured, broker: str) -> str:
    if broker not in row.samples:
        return NONE
    if row.workload.unit == "GB":
        return f"{row.median(broker, lambda sample: sample.bytes / sample.wall_s / 1e6):.0f} MB/s"
    rate = row.median(broker, lambda sample: sample.requests / sample.wall_s)
    p50_us, p99_us = row.median(broker, lambda sample: sample.p50_us), row.median(broker, lambda sample: sample.p99_us)
    return f"{rate:,.0f}/s, p50 {p50_us / 1000:.2f} ms, p99 {p99_us / 1000:.2f} ms"


def _idle_table(idle: dict[str, list[IdlePartitions]]) -> str:
    rows = []
    for broker, measured in idle.items():
        for one in measured:
            cpu = f"{min(one.cpu_us_per_fetch):.0f} / {statistics.median(one.cpu_us_per_fetch):.0f} us"
            wall = f"{statistics.median(one.wall_us_per_fetch):.0f} us"
            sizes = f"{one.opening_response_bytes:,} B", f"{one.idle_response_bytes} B"
            memory = f"{one.memory_bytes_per_partition:,.0f} B"
            rows.append((broker, f"{one.partitions:,}", cpu, wall, *sizes, memory, f"{one.create_s:.1f} s"))
    titles = ("idle incremental fetch", "partitions in the session", "CPU per fetch", "wall per fetch")
    sizes_titles = ("opening response", "idle response", "memory per idle partition", "created in")
    return table((*titles, *sizes_titles), rows)


def _start_table(results: Results) -> str:
    rows = []
    for broker, start in results.start_up.items():
        after_load, idle_share = results.rss_after_load.get(broker), results.idle_cpu_share.get(broker)
        restart = results.restart_s.get(broker)
        stall = results.stall if broker == HEADRACE else None
        cells = (
            broker,
            f"{min(start.seconds):.2f} / {statistics.median(start.seconds):.2f} s",
            f"{statistics.median(start.cpu_s):.2f} s",
            f"{statistics.median(start.rss_bytes) / 1e6:.0f} MB",
            NONE if after_load is None else f"{after_load / 1e6:.0f} MB",
            NONE if idle_share is None else f"{idle_share:.1%}",
            NONE if restart is None else f"{restart:.2f} s",
            NONE if stall is None else f"{stall.median_ms:.1f} ms ({statistics.median(stall.without_ms):.1f} without)",
        )
        rows.append(cells)
    titles = ("", "start-up", "CPU until then", "memory then", "memory after load", "idle CPU of a core")
    return table((*titles, "start with 11,000 partitions", "longest stall in a scrape"), rows)


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
