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
    before it was told for the first time it asks for the age."""

    ages: Ages = lambda _: {}
    _seen: dict[TopicPartition, deque[tuple[float, int]]] = field(default_factory=dict)
    _first: dict[TopicPartition, int] = field(default_factory=dict)

    def lag(
        self, read: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], now_s: float
    ) -> dict[TopicPartition, Lag]:
        """Of each partition."""
        found = {one: self._lag(one, read.get(one, 0), end, now_s) for one, end in sorted(latest.items())}
        old = {one: read.get(one, 0) for one, lag in found.items() if lag.records}
        old = dict(islice(((one, at) for one, at in old.items() if at < self._first[one]), ASKED_MAX))
        for one, age_s in (self.ages(old) if old else {}).items():
            found[one] = replace(found[one], seconds=max(found[one].seconds, age_s))
        return found

    def _lag(self, one: TopicPartition, read: int, end: int, now_s: float) -> Lag:
        seen = self._seen.setdefault(one, deque())
        if seen and end < seen[-1][1]:
            seen.clear()  # another log by the same name
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
