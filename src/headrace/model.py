"""Names and values that every package shares. Nothing here does anything."""

from typing import NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that nobody copies without need."""

ZERO_UUID = bytes(16)


class TopicPartition(NamedTuple):
    """A partition as people name it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition as the cluster knows it: a re-created topic has another id."""

    topic_id: bytes
    partition: int
