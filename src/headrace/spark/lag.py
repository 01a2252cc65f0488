"""How far a query is behind, in records and in seconds."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model import TopicPartition

SEEN_MAX = 1_000
"""Ends of a partition that are remembered, each with its time; older ones are thinned out."""


@dataclass(frozen=True)
class Lag:
    records: int
    seconds: float
    """How long ago the first record that is not read yet was the newest one."""


@dataclass
class LagClock:
    """Knows when an offset was the end of a partition from having been told the ends again and again."""

    _seen: dict[TopicPartition, deque[tuple[float, int]]] = field(default_factory=dict)

    def lag(
        self, read: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], now_s: float
    ) -> dict[TopicPartition, Lag]:
        """Of each partition. Seconds count from when this clock first saw that there is more to read."""
        return {one: self._lag(one, read.get(one, 0), end, now_s) for one, end in sorted(latest.items())}

    def _lag(self, one: TopicPartition, read: int, end: int, now_s: float) -> Lag:
        seen = self._seen.setdefault(one, deque())
        if seen and end < seen[-1][1]:
            seen.clear()  # another log by the same name
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
