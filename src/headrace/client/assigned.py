"""One partition of a consumer: where it stands, and what is fetched and not handed out yet."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.client.fetched import ConsumerRecord, Fetched
from headrace.errors import KafkaError
from headrace.model import TopicIdPartition, TopicPartition

Key = TopicIdPartition | TopicPartition
"""How a fetch session names a partition: by id where both sides can."""


@dataclass(slots=True, eq=False)
class Assigned:
    partition: TopicPartition
    position: int | None = None  # of the next record to hand out; None until it is known
    fetch_offset: int = -1  # of the next record to fetch: ahead of the position by what is fetched already
    until: int | None = None  # nothing from this offset on is wanted
    reset_to: int | None = None  # an end of the partition at which to begin, once what is fetched is handed out
    paused: bool = False
    is_ready: bool = False  # stands in the consumer's line of partitions with records
    error: KafkaError | None = None
    trouble: str | None = None  # the error for which it is fetched again, until a broker has nothing against it
    failures: int = 0
    retry_at_ms: int = 0
    missing_since_ms: int | None = None  # the topic is known, and it is not among its partitions
    high_watermark: int = -1
    log_start_offset: int = -1
    _fetched: deque[tuple[Fetched, Callable[[int], None]]] = field(default_factory=deque)

    @property
    def is_done(self) -> bool:
        """Whether all that is wanted of it is fetched."""
        return self.until is not None and self.fetch_offset >= self.until

    @property
    def has_fetched(self) -> bool:
        return bool(self._fetched)

    def add(self, fetched: Fetched, end: int, on_released: Callable[[int], None]) -> None:
        """`on_released` hears when these bytes are not held any more."""
        self._fetched.append((fetched, on_released))
        self.fetch_offset = end
        self.failures = 0

    def take(self, count_max: int, into: list[ConsumerRecord]) -> None:
        """Records of the oldest fetch, until there are so many in all. ProtocolError as in `Fetched.take`."""
        fetched, on_released = self._fetched[0]
        try:
            more = fetched.take(count_max, into)
        finally:
            self.position = fetched.position
        if not more:
            self._fetched.popleft()
            on_released(fetched.size)

    def take_fetched(self) -> Fetched:
        """The oldest fetch, as it is."""
        fetched, on_released = self._fetched.popleft()
        self.position = fetched.end
        on_released(fetched.size)
        return fetched

    def move_to(self, offset: int) -> None:
        """What was fetched before is forgotten."""
        self.position = self.fetch_offset = offset
        self.until = self.reset_to = None
        self.error = self.trouble = None
        self.failures = self.retry_at_ms = 0
        self.forget_fetched()

    def forget_fetched(self) -> None:
        while self._fetched:
            fetched, on_released = self._fetched.popleft()
            on_released(fetched.size)
        if self.position is not None:
            self.fetch_offset = self.position
