"""What `Admin` is asked with and answers with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from headrace.errors import ErrorCode


class ResourceType(IntEnum):
    """What has settings. Numbers are Kafka's."""

    TOPIC = 2
    BROKER = 4


class Resource(NamedTuple):
    """A topic by its name, or a broker by its number."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name!r}"


class ConfigSource(IntEnum):
    """Where a setting got its value from. Numbers are Kafka's."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1 leaves the number to the broker."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class CreatedTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


class PartitionDescription(NamedTuple):
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


class TopicDescription(NamedTuple):
    name: str
    topic_id: bytes
    internal: bool
    partitions: list[PartitionDescription]


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    documentation: str | None


class BrokerDescription(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: list[BrokerDescription]


class ElectionType(IntEnum):
    """Who becomes the leader. Numbers are Kafka's."""

    PREFERRED = 0
    """The first replica, if it is in sync."""
    UNCLEAN = 1
    """Of partitions without a leader: any replica, which may lack acknowledged records."""


class Elected(NamedTuple):
    """ErrorCode.NONE: the leader has changed; ELECTION_NOT_NEEDED: it was the right one."""

    topic: str
    partition: int
    error: ErrorCode
    message: str | None


class LogDirPartition(NamedTuple):
    topic: str
    partition: int
    size_bytes: int
    lag: int


class LogDirDescription(NamedTuple):
    node_id: int
    path: str
    error: str | None
    total_bytes: int
    usable_bytes: int
    partitions: list[LogDirPartition]
