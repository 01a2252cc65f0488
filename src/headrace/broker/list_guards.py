"""Windows in which a new leader tells no offsets: those that its predecessor told may not be committed here yet."""

import logging

from headrace.broker.metrics import Histogram
from headrace.broker.partitions import Hosted

log = logging.getLogger(__name__)

LASTED_MS = (1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000)


class ListGuards:
    """Whether a lookup is refused is asked of the partition itself; here is what people are told of it."""

    def __init__(self) -> None:
        self.open: dict[Hosted, int] = {}
        """Since when, by the monotonic clock."""
        self.lasted_ms = Histogram(*LASTED_MS)
        self.refused = 0

    @property
    def guarded(self) -> int:
        """Topics that allow unclean elections have windows that nobody minds."""
        return sum(partition.is_list_guarded for partition in self.open)

    def look(self, partition: Hosted, now_ms: int) -> None:
        """After a change of leadership, and after the high watermark moved."""
        leadership = partition.leadership
        is_open = leadership is not None and leadership.list_guard > partition.high_watermark
        if is_open and partition not in self.open and leadership is not None:
            self.open[partition] = now_ms
            log.info(
                "%s: offsets are not told until %d is committed; leader epoch %d, high watermark %d",
                partition,
                leadership.list_guard,
                partition.leader_epoch,
                partition.high_watermark,
            )
        elif not is_open and partition in self.open:
            lasted_ms = now_ms - self.open.pop(partition)
            self.lasted_ms.add(lasted_ms)
            log.info(
                "%s: offsets %s after %d ms; leader epoch %d, high watermark %d",
                partition,
                "are told again" if leadership is not None else "are for another leader to tell",
                lasted_ms,
                partition.leader_epoch,
                partition.high_watermark,
            )
