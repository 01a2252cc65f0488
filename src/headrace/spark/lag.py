"""How far a query is behind, in records and in seconds."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from headrace.model import TopicPartition

SEEN_MAX = 1_000
"""Ends of a partition that are remembered, each with its time; older ones are thinned out."""

ASKED_MAX = 100
"""Partitions whose records are looked at, each time."""
ASK_EVERY_S = 10.0
"""A look may take seconds, and micro-batches are often shorter."""

Ages = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, float]]
"""How many seconds ago the record at an offset was written, of partitions of which that can be told."""


@dataclass(frozen=True)
class Lag:
    records: int
    seconds: float
    """How long ago the first record that is not read yet was written, or was the newest one."""


@dataclass
class LagClock:
    """Knows when an offset was the end of a partition from having been told the ends again and again. Of what was there
    before it was told for the first time it asks for the age, now and then."""

    ages: Ages = lambda _: {}
    _seen: dict[TopicPartition, deque[tuple[float, int]]] = field(default_factory=dict)
    _first: dict[TopicPartition, int] = field(default_factory=dict)
    _asked_s: float | None = None
    _told: dict[TopicPartition, float] = field(default_factory=dict)
    """What it was told then."""

    def lag(
        self,
        read: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
        now_s: float,
        may_ask: bool = True,
    ) -> dict[TopicPartition, Lag]:
        """Of each partition."""
        found = {one: self._lag(one, read.get(one, 0), end, now_s) for one, end in sorted(latest.items())}
        old = {one: read.get(one, 0) for one, lag in found.items() if lag.records}
        old = dict(islice(((one, at) for one, at in old.items() if at < self._first[one]), ASKED_MAX))
        if old and may_ask and self._is_time_to_ask(now_s):
            self._told = dict(self.ages(old))
            self._asked_s = now_s
        for one, age_s in self._ages_of(old, now_s).items():
            found[one] = replace(found[one], seconds=max(found[one].seconds, age_s))
        return found

    def _is_time_to_ask(self, now_s: float) -> bool:
        return self._asked_s is None or not 0 <= now_s - self._asked_s < ASK_EVERY_S  # or the clock was set back

    def _ages_of(self, old: Mapping[TopicPartition, int], now_s: float) -> dict[TopicPartition, float]:
        """What has been read since then was older than what is left: these are the most that it can be."""
        since_s = 0.0 if self._asked_s is None else now_s - self._asked_s
        return {one: age_s + since_s for one, age_s in self._told.items() if one in old}

    def _lag(self, one: TopicPartition, read: int, end: int, now_s: float) -> Lag:
        seen = self._seen.setdefault(one, deque())
        if seen and end < seen[-1][1]:
            seen.clear()  # another log by the same name
            self._told.pop(one, None)
        if not seen:
            self._first[one] = end
        if not seen or end > seen[-1][1]:
            seen.append((now_s, end))
        while len(seen) > 1 and seen[1][1] <= read:
            seen.popleft()
        if len(seen) > SEEN_MAX:
            self._seen[one] = seen = deque(
                at for place, at in enumerate(seen) if place % 2 == 0 or place == len(seen) - 1
            )
        if end <= read:
            return Lag(0, 0.0)
        since_s = next(time_s for time_s, at in seen if at > read)
        return Lag(end - read, max(0.0, now_s - since_s))
