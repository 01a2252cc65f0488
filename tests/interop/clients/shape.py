"""What the suite asks of a client library. Not every client has every side: kcat creates no topics, and the consumer
of kafkajs reads only as a member of a group."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

GIVE_UP_S = 120.0


class Consumed(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    value: bytes


class Sender(Protocol):
    name: str
    codecs: Sequence[str]

    def produce(self, topic: str, partitions: int, values: Sequence[bytes], codec: str, *, idempotent: bool) -> None:
        """Returns when every value was acknowledged."""


class Reader(Protocol):
    name: str

    def consume(self, topic: str, partitions: int, count: int) -> list[Consumed]:
        """Reads `count` records from the beginning of all partitions."""


class Lookup(Protocol):
    name: str

    def offsets_at(self, topic: str, partitions: int, timestamp_ms: int) -> list[int | None]:
        """Per partition the offset of the first record at or after the time, or None."""


class TopicAdmin(Protocol):
    name: str

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str], copies: int = 1) -> None: ...

    def delete_topic(self, topic: str) -> None: ...


class Undelivered(AssertionError):
    """A client reported that records were not acknowledged."""
