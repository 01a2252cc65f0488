"""Results of the clusters as Markdown tables."""

from collections.abc import Sequence

from bench.cluster_results import ClusterResults, median
from bench.report import NONE, goals_table, load_table, rounds_told, table


def cluster_markdown(results: ClusterResults) -> str:
    parts = [
        f"Machine: {results.machine}. Three nodes of each, their CPU and memory added up. Cells of produced data are "
        f"min / median of {rounds_told(results.rounds, results.warm_up)}, the others medians (min to max)."
    ]
    if results.measured:
        parts.append(load_table(results.measured))
    if results.starts:
        parts.append(_start_table(results))
    if results.died_s:
        rows = [
            (name, _spread(results.died_s[name], "s"), str(len(results.died_s[name])), *_hang(results.hung_s[name]))
            for name in results.died_s
        ]
        titles = ("write after", "kill -9 of the leader", "rounds", "SIGSTOP of the leader, session 9 s", "rounds")
        parts.append(table(titles, rows))
    if results.idle:
        parts.append(_idle_table(results))
    if goals := results.goals():
        parts.append(goals_table(goals))
    return "\n\n".join(parts)


def _start_table(results: ClusterResults) -> str:
    rows = []
    for name, starts in results.starts.items():
        after_load = results.rss_bytes.get(name)
        memory = NONE if after_load is None else f"{after_load / 1e6:.0f} MB"
        ready, whole = _spread(starts.ready_s, "s"), _spread(starts.whole_s, "s")
        rows.append((name, ready, f"{median(starts.cpu_s):.1f} s", whole, memory))
    titles = (
        "start of three nodes",
        "all answer Metadata",
        "CPU until then",
        "every ISR is whole",
        "memory after load",
    )
    return table(titles, rows)


def _idle_table(results: ClusterResults) -> str:
    rows = []
    for name, idle in results.idle.items():
        cpu = f"{median(idle.cpu_share):.1%} ({min(idle.cpu_share):.1%} to {max(idle.cpu_share):.1%})"
        sent = f"{median(idle.bytes_per_s):,.0f} B/s"
        rows.append(
            (name, f"{idle.partitions:,}", f"{idle.whole_s:.1f} s", cpu, sent, f"{idle.rss_bytes / 1e6:.0f} MB")
        )
    titles = ("idle", "partitions, 3 copies", "created, every ISR whole", "CPU of a core", "exchanged", "memory")
    return table(titles, rows)


def _hang(seconds: Sequence[float]) -> tuple[str, str]:
    return (_spread(seconds, "s"), str(len(seconds))) if seconds else (NONE, "0")


def _spread(figures: Sequence[float], unit: str) -> str:
    return f"{median(figures):.2f} {unit} ({min(figures):.2f} to {max(figures):.2f})"
