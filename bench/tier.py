"""Tiered storage: reads from it, what they do to everybody else, and how soon a node that lost its disk is back."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.report import goals_table, table
from bench.results import Goal
from bench.tier_reads import Read, Round, read_and_disturb
from bench.tier_rejoin import Rejoined, rejoin

READ_RATIO_MAX = 1 / 0.7
"""The time of a cold read, as a share of a local one: 70 % of its speed."""
DISTURBED_RATIO_MAX = 1.2
REJOIN_RATIO_MAX = 1.5
"""The time to rejoin with ten times the data: the same, within what a shared machine can show."""


@dataclass
class TierResults:
    machine: str
    reads: dict[str, list[Read]] = field(default_factory=dict)
    """By where the data is."""
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    """By what is measured beside a reader."""
    rejoined: list[Rejoined] = field(default_factory=list)

    def goals(self) -> list[Goal]:
        local_s, tier_s = (_median([read.s_per_gb for read in self.reads[where]]) for where in ("disk", "tier"))
        found = [Goal("cold read from a directory", tier_s / local_s, READ_RATIO_MAX, "of the time of a local one")]
        for what, rounds in self.rounds.items():
            ratio = _median([one.cold.p99_ms / one.alone.p99_ms for one in rounds])
            found.append(
                Goal(f"p99 of a hot {what} beside a cold reader", ratio, DISTURBED_RATIO_MAX, "of that without")
            )
        sizes = sorted({one.tiered_bytes for one in self.rejoined})
        small_s, large_s = (self._rejoin_s(size) for size in (sizes[0], sizes[-1]))
        found.append(Goal("rejoin with ten times the data", large_s / small_s, REJOIN_RATIO_MAX, "of the time"))
        return found

    def _rejoin_s(self, size: int) -> float:
        chosen = [one for one in self.rejoined if one.is_behind_tier and one.tiered_bytes == size]
        return _median([seconds for one in chosen for seconds in one.seconds])


def measure(scratch: Path, machine: str, quick: bool) -> TierResults:
    results = TierResults(machine)
    results.reads, results.rounds = read_and_disturb(scratch / "tier-reads", quick)
    results.rejoined = rejoin(scratch / "tier-rejoin", quick)
    return results


def tier_markdown(results: TierResults) -> str:
    parts = [
        f"Machine: {results.machine}. The tier is a directory on the disk of the data. Cells are medians (min to max)."
    ]
    parts += [_read_table(results), _round_table(results), _rejoin_table(results), goals_table(results.goals())]
    return "\n\n".join(parts)


def _read_table(results: TierResults) -> str:
    rows = [
        (
            f"catch-up from the {where}",
            _spread([1000 / read.s_per_gb for read in reads], "MB/s", 0),
            _spread([read.cpu_s_per_gb for read in reads], "s/GB", 2),
        )
        for where, reads in results.reads.items()
    ]
    return table(("one broker, 6 partitions", "speed", "CPU of the broker"), rows)


def _round_table(results: TierResults) -> str:
    rows = []
    for what, rounds in results.rounds.items():
        alone, cold, local = ([getattr(one, name) for one in rounds] for name in ("alone", "cold", "local"))
        sent = " and ".join(f"{_median([one.reader_mb_per_s for one in beside]):.0f}" for beside in (cold, local))
        for title, name in (("p99", "p99_ms"), ("p99.9", "p999_ms")):
            figures = [[float(getattr(one, name)) for one in beside] for beside in (alone, cold, local)]
            spreads = [_spread(found, "ms", 2) for found in figures]
            ratios = [
                f"{_median([one / other for one, other in zip(figures[1], others, strict=True)]):.2f}"
                for others in (figures[0], figures[2])
            ]
            rows.append((f"{title} of a hot {what}", *spreads, *ratios, f"{sent} MB/s"))
    titles = ("", "alone", "beside a cold reader", "beside a reader of the disk")
    return table((*titles, "cold / alone", "cold / disk", "sent meanwhile, cold and disk"), rows)


def _rejoin_table(results: TierResults) -> str:
    rows = [
        (
            f"{one.tiered_bytes / 1e9:.2g} GB",
            "behind the tier (KIP-1023)" if one.is_behind_tier else "where the leader's disk begins",
            _spread(one.seconds, "s", 2),
            f"{one.replicated_bytes / 1e6:,.1f} MB",
        )
        for one in results.rejoined
    ]
    titles = ("in the tier", "a replica that lost its disk begins", "in the ISR after its start", "replicated")
    return table(titles, rows)


def _median(figures: Sequence[float]) -> float:
    return statistics.median(figures)


def _spread(figures: Sequence[float], unit: str, digits: int) -> str:
    low, middle, high = (f"{figure:.{digits}f}" for figure in (min(figures), _median(figures), max(figures)))
    return f"{middle} {unit} ({low} to {high})".replace("  ", " ")
