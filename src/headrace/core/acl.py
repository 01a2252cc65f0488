"""Who may do what. One function is asked everywhere."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

ANONYMOUS = "User:ANONYMOUS"
"""The principal of every connection until there is authentication."""


class Operation(IntEnum):
    """Numbers are Kafka's."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """Numbers are Kafka's."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


@dataclass(frozen=True, slots=True)
class Resource:
    type: ResourceType
    name: str


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")

Allowed: TypeAlias = Callable[[str, Operation, Resource], bool]


def topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def allowed(principal: str, operation: Operation, resource: Resource) -> bool:  # noqa: ARG001  # there are no rules yet
    """Until authentication exists, everybody may do everything."""
    return True
