"""Groups, commits, takeovers: what stands between a reader or a writer and its work."""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench import groups, takeovers
from bench.groups import Committed, Joined
from bench.report import NONE, goals_table, table
from bench.results import HEADRACE, KAFKA, Goal
from tests.servers.process import BrokerProcess

JOIN_RATIO_MAX = 1.0
COMMIT_RATIO_MAX = 0.5
TAKEOVER_MS_MAX = 10.0
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
"""Of both brokers: a new group waits for no further members."""


@dataclass
class OwnersResults:
    machine: str
    rounds: int
    joined: dict[str, list[Joined]] = field(default_factory=dict)
    committed: dict[str, list[Committed]] = field(default_factory=dict)
    fenced_s: dict[str, list[float]] = field(default_factory=dict)
    granted_s: dict[str, list[float]] = field(default_factory=dict)
    written_s: dict[str, list[float]] = field(default_factory=dict)

    def goals(self) -> list[Goal]:
        found = []
        if {KAFKA, HEADRACE} <= self.joined.keys():
            ours, theirs = (_median([j.seconds for j in self.joined[name]]) for name in (HEADRACE, KAFKA))
            found.append(Goal("join of 50 members", ours / theirs, JOIN_RATIO_MAX, "of Kafka's time"))
            ours, theirs = (_median([c.cpu_us for c in self.committed[name]]) for name in (HEADRACE, KAFKA))
            found.append(Goal("commit of an offset", ours / theirs, COMMIT_RATIO_MAX, "of Kafka's CPU"))
        if HEADRACE in self.written_s:
            takeover_ms = _median(self.written_s[HEADRACE]) * 1000
            found.append(Goal("takeover, claim to first write", takeover_ms, TAKEOVER_MS_MAX, "ms"))
            answered_ms = _p99(self.granted_s[HEADRACE]) * 1000
            found.append(Goal("claim of what another owns, to its answer, p99", answered_ms, TAKEOVER_MS_MAX, "ms"))
        return found


def measure(brokers: Sequence[BrokerProcess], machine: str, quick: bool) -> OwnersResults:
    """The brokers are up. Rounds alternate between them; the first of each is dropped."""
    results = OwnersResults(machine, rounds=1 if quick else 3)
    for broker in brokers:
        groups.prepare(broker)
        takeovers.prepare(broker)
    for number in range(results.rounds + 1):
        for broker in brokers:
            joined = groups.join(broker, f"joined-{number}")
            committed = groups.commit(broker, f"committed-{number}", 2 if quick else 5)
            _say(
                f"{broker.name} | {groups.MEMBERS} members after {joined.seconds:.2f} s, {joined.cpu_s:.2f} CPU s | "
                f"{committed.per_second:,.0f} commits/s, {committed.cpu_us:.0f} CPU us each"
            )
            if number:  # the first warms a JVM up
                results.joined.setdefault(broker.name, []).append(joined)
                results.committed.setdefault(broker.name, []).append(committed)
    for broker in brokers:
        takes = 10 if quick else 200
        fenced_s = results.fenced_s[broker.name] = takeovers.fence(broker, 3 if quick else 10)
        _say(f"{broker.name} | fencing a transactional id {_median(fenced_s) * 1000:.1f} ms")
        if broker.name == HEADRACE:
            granted_s, written_s = takeovers.take_over(broker, takes)
            results.granted_s[broker.name], results.written_s[broker.name] = granted_s, written_s
            _say(
                f"{broker.name} | takeover {_median(granted_s) * 1000:.1f} ms, write {_median(written_s) * 1000:.1f} ms"
            )
    return results


def owners_markdown(results: OwnersResults) -> str:
    parts = [
        f"Machine: {results.machine}. One broker of each, up at the same time, driven in turn; medians (min to max) of "
        f"{results.rounds} rounds after one that is dropped."
    ]
    rows = [
        (
            name,
            _spread([j.seconds for j in joined], 1, "s"),
            f"{_median([j.cpu_s for j in joined]):.2f} s",
            f"{_median([c.per_second for c in results.committed[name]]):,.0f}/s",
            f"{_median([c.cpu_us for c in results.committed[name]]):.0f} us",
        )
        for name, joined in results.joined.items()
    ]
    titles = ("groups", "50 members have their share", "CPU until then", "commits of an offset", "CPU for each")
    parts.append(table(titles, rows))
    writers = [
        (
            name,
            _spread(fenced_s, 1000, "ms"),
            _spread(results.granted_s[name], 1000, "ms") if name in results.granted_s else NONE,
            _spread(results.written_s[name], 1000, "ms") if name in results.written_s else NONE,
        )
        for name, fenced_s in results.fenced_s.items()
    ]
    fencing = "second producer of a transactional id, init to its first commit"
    parts.append(table(("another writer", fencing, "own: claim to grant", "own: claim to first write"), writers))
    if goals := results.goals():
        parts.append(goals_table(goals))
    return "\n\n".join(parts)


def _median(figures: Sequence[float]) -> float:
    return statistics.median(figures)


def _p99(figures: Sequence[float]) -> float:
    return sorted(figures)[len(figures) * 99 // 100]


def _spread(figures: Sequence[float], scale: float, unit: str) -> str:
    low, middle, high = (figure * scale for figure in (min(figures), _median(figures), max(figures)))
    return f"{middle:.2f} {unit} ({low:.2f} to {high:.2f})"


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
