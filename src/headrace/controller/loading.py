"""From a snapshot of the store to what changed in the image."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.core.cluster import (
    BrokerGone,
    BrokerOverrides,
    BrokerPut,
    BrokerRecord,
    Change,
    ClusterImage,
    ClusterNamed,
    Controller,
    ControllerIs,
    OfflineReplicas,
    Owned,
    OwnedGone,
    OwnedPut,
    OwnedRecord,
    PartitionPut,
    PartitionRecord,
    Topic,
    TopicGone,
    TopicOverrides,
    TopicPut,
    registered,
)
from headrace.core.coverage import CoverageGone, CoveragePut, CoverageRecord, StoredCoverage
from headrace.core.tier_pointer import (
    Pointer,
    PointerGone,
    PointerPut,
    Pointers,
    StoredPointer,
    TierTopicGone,
    TierTopicPut,
)
from headrace.metadata import records
from headrace.metadata.store import KV, UnreadableMetadata


class StoredPartition(NamedTuple):
    record: PartitionRecord
    rev: int


class StoredOverrides(NamedTuple):
    settings: Mapping[str, str]
    rev: int


class Unfinished(NamedTuple):
    record: records.UnfinishedRecord
    rev: int


class Registration(NamedTuple):
    record: BrokerRecord
    create_rev: int
    mod_rev: int


class Office(NamedTuple):
    """The controller's key. Its create revision is the controller's epoch."""

    record: records.ControllerRecord
    epoch: int
    mod_rev: int


Replicas = frozenset[tuple[bytes, int]]

NO_OVERRIDES = StoredOverrides({}, 0)


@dataclass(slots=True)
class Loaded:
    """A snapshot of the store, decoded."""

    cluster_id: str = ""
    topics: dict[str, tuple[bytes, int, int]] = field(default_factory=dict)
    """By name: id, count of partitions, revision."""
    partitions: dict[bytes, dict[int, StoredPartition]] = field(default_factory=dict)
    topic_overrides: dict[str, StoredOverrides] = field(default_factory=dict)
    broker_overrides: dict[int | None, StoredOverrides] = field(default_factory=dict)
    unfinished: dict[bytes, Unfinished] = field(default_factory=dict)
    registrations: dict[int, Registration] = field(default_factory=dict)
    offline: dict[int, dict[int, Replicas]] = field(default_factory=dict)
    """By node and part."""
    office: Office | None = None
    owned: dict[tuple[str, str], Owned] = field(default_factory=dict)
    """By group and resource."""
    coverage: dict[tuple[bytes, int], StoredCoverage] = field(default_factory=dict)
    """By topic id and index."""
    tier: Pointers = field(default_factory=dict)
    tier_topics: dict[bytes, int] = field(default_factory=dict)


def decode_snapshot(kvs: Iterable[KV]) -> Loaded:
    """Raises UnreadableMetadata for what this program cannot read."""
    loaded = Loaded()
    # A hundred thousand partitions have few distinct records: equal ones become one object.
    distinct: dict[bytes, PartitionRecord] = {}
    for kv in kvs:
        key, value, _, rev = kv
        if key.startswith(records.PARTITIONS):
            record = distinct.get(value)
            if record is None:
                record = distinct[value] = records.decode(PartitionRecord, key, value)
            topic_id, index = records.partition_in(key)
            loaded.partitions.setdefault(topic_id, {})[index] = StoredPartition(record, rev)
        else:
            _decode_rare(kv, loaded)
    return loaded


def _decode_rare(kv: KV, loaded: Loaded) -> None:
    key, value, create_rev, rev = kv
    if key.startswith(records.TOPICS):
        topic = records.decode(records.TopicRecord, key, value)
        loaded.topics[records.name_in(key, records.TOPICS)] = (bytes.fromhex(topic.id), topic.partitions, rev)
    elif key.startswith(records.TOPIC_SETTINGS):
        stored = records.decode(records.OverridesRecord, key, value)
        loaded.topic_overrides[records.name_in(key, records.TOPIC_SETTINGS)] = StoredOverrides(stored.settings, rev)
    elif key.startswith(records.BROKER_SETTINGS):
        stored = records.decode(records.OverridesRecord, key, value)
        loaded.broker_overrides[records.broker_settings_owner(key)] = StoredOverrides(stored.settings, rev)
    elif key.startswith(records.UNFINISHED):
        unfinished = records.decode(records.UnfinishedRecord, key, value)
        loaded.unfinished[records.topic_id_in(key, records.UNFINISHED)] = Unfinished(unfinished, rev)
    elif key.startswith(records.BROKERS):
        broker = records.decode(BrokerRecord, key, value)
        loaded.registrations[records.broker_in(key)] = Registration(broker, create_rev, rev)
    elif key.startswith(records.OFFLINE):
        broker_id, part = records.offline_in(key)
        loaded.offline.setdefault(broker_id, {})[part] = offline_replicas(key, value)
    elif key.startswith(records.OWNED):
        loaded.owned[records.owned_in(key)] = Owned(records.decode(OwnedRecord, key, value), rev)
    elif key.startswith((records.COVERAGE, records.TIER, records.TIER_TOPICS)):
        _decode_tiered(kv, loaded)
    elif key == records.CONTROLLER_KEY:
        loaded.office = Office(records.decode(records.ControllerRecord, key, value), create_rev, rev)
    elif key == records.CLUSTER_KEY:
        loaded.cluster_id = records.decode(records.ClusterRecord, key, value).id


def _decode_tiered(kv: KV, loaded: Loaded) -> None:
    key, value, _, rev = kv
    if key.startswith(records.COVERAGE):
        coverage = StoredCoverage(records.decode(CoverageRecord, key, value), rev)
        loaded.coverage[records.coverage_in(key)] = coverage
    elif key.startswith(records.TIER):
        loaded.tier[records.pointer_in(key)] = StoredPointer(records.decode(Pointer, key, value), rev)
    else:
        loaded.tier_topics[records.topic_id_in(key, records.TIER_TOPICS)] = rev


def offline_replicas(key: bytes, value: bytes) -> Replicas:
    stored = records.decode(records.OfflineRecord, key, value)
    return frozenset((bytes.fromhex(topic_id), index) for topic_id, index in stored.replicas)


def controller_of(office: Office | None) -> Controller | None:
    return None if office is None else Controller(office.record.broker_id, office.epoch)


def changes_since(image: ClusterImage, loaded: Loaded) -> Iterator[Change]:
    """What turns the image into the snapshot."""
    yield from _changes_of_owned(image, loaded)
    yield from _changes_of_coverage(image, loaded)
    yield from _changes_of_tier(image, loaded)
    yield from _changes_of_nodes(image, loaded)
    if loaded.cluster_id != image.cluster_id:
        yield ClusterNamed(loaded.cluster_id)
    for broker_id in image.broker_overrides.keys() | loaded.broker_overrides.keys():
        stored = loaded.broker_overrides.get(broker_id, NO_OVERRIDES)
        known = image.broker_overrides.get(broker_id)
        if stored.rev != (0 if known is None else known.rev):
            yield BrokerOverrides(broker_id, stored.settings, stored.rev)
    for topic in list(image.topics.values()):
        if topic.name not in loaded.topics or loaded.topics[topic.name][0] != topic.id:
            yield TopicGone(topic.name, topic.id)
    for name, (topic_id, count, rev) in loaded.topics.items():
        partitions = _counted(name, count, loaded.partitions.get(topic_id, {}))
        overrides = loaded.topic_overrides.get(name, NO_OVERRIDES)
        known_topic = image.topics_by_id.get(topic_id)
        if known_topic is None:
            yield _topic_put(name, topic_id, partitions, rev, 0)._replace(
                overrides=overrides.settings, overrides_rev=overrides.rev
            )
        else:
            yield from _changes_of_topic(known_topic, partitions, rev, overrides)


def _changes_of_owned(image: ClusterImage, loaded: Loaded) -> Iterator[Change]:
    for resource, groups in list(image.owned.items()):
        for group in list(groups):
            if (group, resource) not in loaded.owned:
                yield OwnedGone(group, resource)
    for (group, resource), owned in loaded.owned.items():
        known = image.owned_of(group, resource)
        if known is None or known.rev != owned.rev:
            yield OwnedPut(group, resource, owned)


def _changes_of_coverage(image: ClusterImage, loaded: Loaded) -> Iterator[Change]:
    for gone in [key for key in image.coverage if key not in loaded.coverage]:
        yield CoverageGone(*gone)
    for key, stored in loaded.coverage.items():
        known = image.coverage.get(key)
        if known is None or known.rev != stored.rev:
            yield CoveragePut(*key, stored)


def _changes_of_tier(image: ClusterImage, loaded: Loaded) -> Iterator[Change]:
    for gone in [key for key in image.tier if key not in loaded.tier]:
        yield PointerGone(*gone)
    for key, stored in loaded.tier.items():
        known = image.tier.get(key)
        if known is None or known.rev != stored.rev:
            yield PointerPut(*key, stored)
    for topic_id in [topic_id for topic_id in image.tier_topics if topic_id not in loaded.tier_topics]:
        yield TierTopicGone(topic_id)
    for topic_id, rev in loaded.tier_topics.items():
        if image.tier_topics.get(topic_id) != rev:
            yield TierTopicPut(topic_id, rev)


def _changes_of_nodes(image: ClusterImage, loaded: Loaded) -> Iterator[Change]:
    for broker_id in image.brokers.keys() - loaded.registrations.keys():
        yield BrokerGone(broker_id)
    for broker_id, (record, create_rev, mod_rev) in loaded.registrations.items():
        broker = registered(broker_id, record, create_rev, mod_rev)
        if image.brokers.get(broker_id) != broker:
            yield BrokerPut(broker)
    for broker_id in image.offline.keys() | loaded.offline.keys():
        replicas = frozenset().union(*loaded.offline.get(broker_id, {}).values())
        if replicas != image.offline.get(broker_id, frozenset()):
            yield OfflineReplicas(broker_id, replicas)
    controller = controller_of(loaded.office)
    if controller != image.controller:
        yield ControllerIs(controller)


def _changes_of_topic(
    known: Topic, stored: list[StoredPartition], rev: int, overrides: StoredOverrides
) -> Iterator[Change]:
    for index, (partition, known_rev) in enumerate(zip(stored, list(known.partition_revs), strict=False)):
        if partition.rev != known_rev:
            yield PartitionPut(known.id, index, partition.record, partition.rev)
    if rev != known.mod_rev:
        yield _topic_put(known.name, known.id, stored, rev, len(known.partitions))
    if overrides.rev != known.overrides_rev:
        yield TopicOverrides(known.name, overrides.settings, overrides.rev)


def _topic_put(name: str, topic_id: bytes, stored: list[StoredPartition], rev: int, first: int) -> TopicPut:
    return TopicPut(name, topic_id, [p.record for p in stored[first:]], [p.rev for p in stored[first:]], rev, first)


def _counted(name: str, count: int, stored: Mapping[int, StoredPartition]) -> list[StoredPartition]:
    try:
        return [stored[index] for index in range(count)]
    except KeyError as missing:
        raise UnreadableMetadata(
            f"The metadata store lacks the record of partition {name}-{missing}: it is damaged"
        ) from None


def leftover(loaded: Loaded, topic_id: bytes, unfinished: records.UnfinishedRecord) -> dict[int, int]:
    """Indexes and revisions of partition records that an unfinished work left behind, and that no topic counts."""
    stored = loaded.partitions.get(topic_id, {})
    counted = next((count for known_id, count, _ in loaded.topics.values() if known_id == topic_id), 0)
    return {n: stored[n].rev for n in range(max(unfinished.first, counted), unfinished.last) if n in stored}
