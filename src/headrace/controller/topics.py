"""Which topics may be created, grown or deleted, and how. Pure: nothing here writes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.controller.tier_rules import tier_refusal
from headrace.controller.writing import TopicPlan
from headrace.core.cluster import ClusterImage, IsrMember, PartitionRecord, Topic, unified
from headrace.core.placement import place
from headrace.errors import ErrorCode
from headrace.settings import InvalidSetting

PARTITIONS_PER_TOPIC_MAX = 100_000
PARTITIONS_MAX = 1_000_000
"""In the cluster: each costs every node some memory."""
NAME_LENGTH_MAX = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


class Refusal(NamedTuple):
    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1 leaves a number to the broker's settings."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """Partition and its brokers."""
    settings: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """`count` is the new total. Brokers of each new partition, or None to leave them to the cluster."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


def name_refusal(name: str) -> Refusal | None:
    """Kafka's rules for the name of a topic."""
    if not name:
        reason = "the name is empty"
    elif name in (".", ".."):
        reason = f"the name cannot be {name!r}"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the name has {len(name)} characters, more than {NAME_LENGTH_MAX}"
    elif not _NAME.fullmatch(name):
        reason = f"{name!r} holds characters other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return None
    return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Invalid topic name: {reason}")


class Planned:
    """What one request has planned so far, and the image does not know yet."""

    def __init__(self) -> None:
        self.partitions = 0
        self._names: dict[str, str] = {}

    def add(self, plan: TopicPlan) -> None:
        self.partitions += len(plan.partitions)
        self._names[unified(plan.name)] = plan.name

    def colliding_with(self, name: str) -> str | None:
        return self._names.get(unified(name))


def plan_creation(
    image: ClusterImage, new: NewTopic, topic_id: bytes, start: int, planned: Planned
) -> TopicPlan | Refusal:
    """`start` is any number: where placement begins."""
    refusal = name_refusal(new.name)
    if refusal is not None:
        return refusal
    if new.name in image.topics:
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {new.name!r} already exists")
    twin = image.colliding_with(new.name) or planned.colliding_with(new.name)
    if twin is not None:
        return Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic {new.name!r} collides with topic {twin!r}: names may not differ in '.' and '_' only",
        )
    replicas = _assigned(image, new, planned) if new.assignments else _placed(image, new, start, planned)
    if isinstance(replicas, Refusal):
        return replicas
    overrides = _checked_settings(image, new.settings)
    if isinstance(overrides, Refusal):
        return overrides
    return TopicPlan(new.name, topic_id, _partition_records(image, replicas), overrides=overrides)


def plan_growth(image: ClusterImage, topic: Topic, more: MorePartitions, start: int) -> TopicPlan | Refusal:
    first = len(topic.partitions)
    if more.count <= first:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic {topic.name!r} has {first} partitions, so {more.count} is not an increase",
        )
    refusal = _count_refusal(image, more.count, more.count - first)
    if refusal is not None:
        return refusal
    replication_factor = len(topic.partitions[0].replicas)
    replicas: list[tuple[int, ...]] | Refusal
    if more.assignments is None:
        replicas = _spread(image, range(first, more.count), replication_factor, start)
    elif len(more.assignments) != more.count - first:
        return _bad_assignment(
            f"{len(more.assignments)} assignments are given for {more.count - first} new partitions of {topic.name!r}"
        )
    else:
        replicas = _checked_assignment(image, list(enumerate(more.assignments, first)), replication_factor)
    if isinstance(replicas, Refusal):
        return replicas
    return TopicPlan(topic.name, topic.id, _partition_records(image, replicas), first, topic.mod_rev)


def _placed(image: ClusterImage, new: NewTopic, start: int, planned: Planned) -> list[tuple[int, ...]] | Refusal:
    count = image.broker_config.num_partitions if new.partitions == -1 else new.partitions
    factor = new.replication_factor
    if factor == -1:
        factor = image.broker_config.default_replication_factor
    refusal = _count_refusal(image, count, count + planned.partitions)
    if refusal is not None:
        return refusal
    if factor <= 0:
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {factor} is below 1; -1 stands for the broker's default",
        )
    return _spread(image, range(count), factor, start)


def _spread(image: ClusterImage, partitions: range, factor: int, start: int) -> list[tuple[int, ...]] | Refusal:
    """Over the nodes that stay."""
    staying = sorted(broker.id for broker in image.brokers.values() if not broker.is_shutting_down)
    if factor > len(staying):
        return _too_many_replicas(len(staying), factor)
    return place(partitions, factor, staying, start, {broker: image.brokers[broker].rack for broker in staying})


def _assigned(image: ClusterImage, new: NewTopic, planned: Planned) -> list[tuple[int, ...]] | Refusal:
    if new.partitions != -1 or new.replication_factor != -1:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "With assigned replicas, the number of partitions and the replication factor must both be -1",
        )
    refusal = _count_refusal(image, len(new.assignments), len(new.assignments) + planned.partitions)
    if refusal is not None:
        return refusal
    in_order = sorted(new.assignments)
    if [index for index, _ in in_order] != list(range(len(in_order))):
        return _bad_assignment("Assigned partitions must be 0, 1, 2 and so on, each once")
    return _checked_assignment(image, in_order, len(in_order[0][1]))


def _checked_assignment(
    image: ClusterImage, assignments: Sequence[tuple[int, Sequence[int]]], replication_factor: int
) -> list[tuple[int, ...]] | Refusal:
    for index, brokers in assignments:
        if not brokers:
            return _bad_assignment(f"Partition {index} is assigned to no broker")
        if len(set(brokers)) != len(brokers):
            return _bad_assignment(f"Partition {index} is assigned to a broker twice: {list(brokers)}")
        if len(brokers) != replication_factor:
            return _bad_assignment(f"Partition {index} has {len(brokers)} replicas and others {replication_factor}")
        unknown = [broker for broker in brokers if broker not in image.brokers]
        if unknown:
            return _bad_assignment(f"Partition {index} is assigned to brokers that are not registered: {unknown}")
    return [tuple(brokers) for _, brokers in assignments]


def _checked_settings(image: ClusterImage, settings: Mapping[str, str | None]) -> dict[str, str] | Refusal:
    overrides = {}
    for name, text in settings.items():
        if text is None:
            return Refusal(ErrorCode.INVALID_CONFIG, f"Setting {name!r} has no value")
        overrides[name] = text
    try:
        config = TopicConfig.resolve(image.broker_config, overrides)
    except InvalidSetting as invalid:
        return Refusal(ErrorCode.INVALID_CONFIG, str(invalid))
    if (wrong := tier_refusal(image.broker_config, None, config)) is not None:
        return Refusal(ErrorCode.INVALID_CONFIG, wrong)
    return overrides


def _partition_records(image: ClusterImage, replicas: Sequence[tuple[int, ...]]) -> list[PartitionRecord]:
    made = {
        brokers: PartitionRecord(
            replicas=brokers,
            isr=tuple(IsrMember(broker, image.brokers[broker].epoch) for broker in brokers),
            leader=brokers[0],
        )
        for brokers in set(replicas)
    }
    return [made[brokers] for brokers in replicas]


def _count_refusal(image: ClusterImage, count: int, more: int) -> Refusal | None:
    if count <= 0:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The number of partitions is {count}, and must be at least 1; -1 stands for the broker's default",
        )
    if count > PARTITIONS_PER_TOPIC_MAX:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"{count} partitions are more than a topic can have: {PARTITIONS_PER_TOPIC_MAX}",
        )
    if image.partitions_count + more > PARTITIONS_MAX:
        return Refusal(ErrorCode.POLICY_VIOLATION, f"The cluster would have more than {PARTITIONS_MAX} partitions")
    return None


def _too_many_replicas(staying: int, factor: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Replication factor {factor} is more than the {staying} registered brokers",
    )


def _bad_assignment(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
