"""What follows when more of a partition is committed: waiting fetches and producers hear of it."""

from collections.abc import Callable

from headrace.broker.disk import wake_acks
from headrace.broker.list_guards import ListGuards
from headrace.broker.parking import FetchEvents
from headrace.broker.partitions import Hosted


class Commits:
    def __init__(self, events: FetchEvents, guards: ListGuards) -> None:
        self._events = events
        self._guards = guards
        self.follower_waits: dict[Hosted, dict[Callable[[], None], None]] = {}
        """Who waits until followers of a partition have asked from somewhere, or have moved their log starts; or until
        other ones are in sync, or its leadership ends."""

    def commit(self, partition: Hosted, now_ms: int) -> None:
        """Something happened after which the replicas may allow a higher high watermark."""
        if partition.commit(now_ms):
            self.moved(partition, now_ms)

    def moved(self, partition: Hosted, now_ms: int) -> None:
        if partition.subscribers:
            self._events.high_watermark_moved(partition)
        if partition.waiting_acks:
            wake_acks(partition)
        if self._guards.open:
            self._guards.look(partition, now_ms)

    def wake_follower_waits(self, partition: Hosted) -> None:
        """They look again; those still waiting put themselves back."""
        for settle in self.follower_waits.pop(partition, ()):
            settle()
