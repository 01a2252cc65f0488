"""From what the store delivers, a snapshot or one revision after the other, to changes of the image."""

from collections.abc import Iterable, Iterator

from headrace.controller.loading import (
    NO_OVERRIDES,
    Loaded,
    Office,
    Registration,
    Replicas,
    StoredOverrides,
    StoredPartition,
    Unfinished,
    changes_since,
    controller_of,
    decode_snapshot,
    offline_replicas,
)
from headrace.core.cluster import (
    BrokerGone,
    BrokerOverrides,
    BrokerPut,
    BrokerRecord,
    Change,
    ClusterImage,
    ClusterNamed,
    ControllerIs,
    OfflineReplicas,
    Owned,
    OwnedGone,
    OwnedPut,
    OwnedRecord,
    PartitionPut,
    PartitionRecord,
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
    StoredPointer,
    TierTopicGone,
    TierTopicPut,
)
from headrace.metadata import records
from headrace.metadata.store import Event, Revision, Snapshot, UnreadableMetadata

DISTINCT_MAX = 10_000


class Deltas:
    """Keeps what the store holds and the image does not: records that no topic counts yet, and who wrote what."""

    def __init__(self, image: ClusterImage) -> None:
        self.unfinished: dict[bytes, Unfinished] = {}
        self.registrations: dict[int, Registration] = {}
        self.office: Office | None = None
        self._image = image
        self._uncounted: dict[bytes, dict[int, StoredPartition]] = {}
        self._offline: dict[int, dict[int, Replicas]] = {}
        self._distinct: dict[bytes, PartitionRecord] = {}

    def of_snapshot(self, snapshot: Snapshot) -> list[Change]:
        """Raises UnreadableMetadata."""
        loaded = decode_snapshot(snapshot.kvs)
        changes = list(changes_since(self._image, loaded))
        self.unfinished = loaded.unfinished
        self.registrations = loaded.registrations
        self.office = loaded.office
        self._offline = loaded.offline
        self._uncounted = _uncounted(loaded)
        return changes

    def of_revision(self, revision: Revision) -> list[Change]:
        """To be applied before the next is asked for. Raises UnreadableMetadata."""
        changes: list[Change] = []
        topics: list[Event] = []
        overrides: dict[str, StoredOverrides] = {}
        deleted: set[tuple[bytes, int]] = set()
        for event in revision.events:
            key = event.key
            if key.startswith(records.OWNED):
                changes.append(_owned(event))
            elif key.startswith(records.PARTITIONS):
                if event.value is None:
                    deleted.add(records.partition_in(key))
                else:
                    changes += self._partition(event.key, event.value, event.mod_rev)
            elif key.startswith(records.TOPICS):
                topics.append(event)
            elif key.startswith(records.TOPIC_SETTINGS):
                overrides[records.name_in(key, records.TOPIC_SETTINGS)] = _overrides(event)
            else:
                changes += self._rare(event)
        for event in topics:
            changes += self._topic(event, overrides)
        self._forget(deleted)
        changes += [TopicOverrides(name, stored.settings, stored.rev) for name, stored in overrides.items()]
        return changes

    def _partition(self, key: bytes, value: bytes, rev: int) -> Iterator[Change]:
        topic_id, index = records.partition_in(key)
        topic = self._image.topics_by_id.get(topic_id)
        record = self._record(key, value)
        if topic is not None and index < len(topic.partitions):
            yield PartitionPut(topic_id, index, record, rev)
        else:
            self._uncounted.setdefault(topic_id, {})[index] = StoredPartition(record, rev)

    def _forget(self, deleted: Iterable[tuple[bytes, int]]) -> None:
        for topic_id, index in deleted:
            left = self._uncounted.get(topic_id, {})
            if left.pop(index, None) is not None and not left:
                del self._uncounted[topic_id]

    def _record(self, key: bytes, value: bytes) -> PartitionRecord:
        """A hundred thousand partitions have few distinct records: equal ones become one object."""
        record = self._distinct.get(value)
        if record is None:
            if len(self._distinct) >= DISTINCT_MAX:
                self._distinct.clear()
            record = self._distinct[value] = records.decode(PartitionRecord, key, value)
        return record

    def _topic(self, event: Event, overrides: dict[str, StoredOverrides]) -> Iterator[Change]:
        name = records.name_in(event.key, records.TOPICS)
        known = self._image.topics.get(name)
        if event.value is None:
            overrides.pop(name, None)
            if known is not None:
                # Records of a large topic are deleted later, or by somebody else.
                stored = zip(known.partitions, known.partition_revs, strict=True)
                left = {index: StoredPartition(record, rev) for index, (record, rev) in enumerate(stored)}
                self._uncounted.setdefault(known.id, {}).update(left)
                yield TopicGone(name, known.id)
            return
        record = records.decode(records.TopicRecord, event.key, event.value)
        topic_id = bytes.fromhex(record.id)
        grows = known is not None and known.id == topic_id
        first = len(known.partitions) if known is not None and grows else 0
        settings = NO_OVERRIDES if grows else overrides.pop(name, NO_OVERRIDES)
        new = self._counted(name, topic_id, range(first, record.partitions))
        yield TopicPut(
            name,
            topic_id,
            [stored.record for stored in new],
            [stored.rev for stored in new],
            event.mod_rev,
            first,
            settings.settings,
            settings.rev,
        )

    def _counted(self, name: str, topic_id: bytes, indexes: range) -> list[StoredPartition]:
        left = self._uncounted.get(topic_id, {})
        try:
            counted = [left.pop(index) for index in indexes]
        except KeyError as missing:
            raise UnreadableMetadata(f"The metadata store tells of no record of partition {name}-{missing}") from None
        if not left:
            self._uncounted.pop(topic_id, None)
        return counted

    def _rare(self, event: Event) -> Iterator[Change]:
        key, value = event.key, event.value
        if key.startswith(records.BROKERS):
            yield self._registration(event)
        elif key.startswith((records.COVERAGE, records.TIER, records.TIER_TOPICS)):
            yield _of_tiered(event)
        elif key.startswith(records.OFFLINE):
            broker_id, part = records.offline_in(key)
            parts = self._offline.setdefault(broker_id, {})
            parts.pop(part, None)
            if value is not None:
                parts[part] = offline_replicas(key, value)
            yield OfflineReplicas(broker_id, frozenset().union(*parts.values()))
        elif key == records.CONTROLLER_KEY:
            self.office = None
            if value is not None:
                held = records.decode(records.ControllerRecord, key, value)
                self.office = Office(held, event.create_rev, event.mod_rev)
            yield ControllerIs(controller_of(self.office))
        elif key.startswith(records.BROKER_SETTINGS):
            yield BrokerOverrides(records.broker_settings_owner(key), *_overrides(event))
        elif key.startswith(records.UNFINISHED):
            topic_id = records.topic_id_in(key, records.UNFINISHED)
            self.unfinished.pop(topic_id, None)
            if value is not None:
                unfinished = records.decode(records.UnfinishedRecord, key, value)
                self.unfinished[topic_id] = Unfinished(unfinished, event.mod_rev)
        elif key == records.CLUSTER_KEY and value is not None:
            yield ClusterNamed(records.decode(records.ClusterRecord, key, value).id)

    def _registration(self, event: Event) -> Change:
        broker_id = records.broker_in(event.key)
        if event.value is None:
            self.registrations.pop(broker_id, None)
            return BrokerGone(broker_id)
        record = records.decode(BrokerRecord, event.key, event.value)
        self.registrations[broker_id] = Registration(record, event.create_rev, event.mod_rev)
        return BrokerPut(registered(broker_id, record, event.create_rev, event.mod_rev))

    def leftover(self, topic_id: bytes, unfinished: records.UnfinishedRecord) -> dict[int, int]:
        """Indexes and revisions of partition records that an unfinished work left behind, and that no topic counts."""
        left = self._uncounted.get(topic_id, {})
        return {n: left[n].rev for n in range(unfinished.first, unfinished.last) if n in left}


def _uncounted(loaded: Loaded) -> dict[bytes, dict[int, StoredPartition]]:
    counts = {topic_id: count for topic_id, count, _ in loaded.topics.values()}
    left = {}
    for topic_id, partitions in loaded.partitions.items():
        count = counts.get(topic_id, 0)
        if len(partitions) > count:
            left[topic_id] = {index: stored for index, stored in partitions.items() if index >= count}
    return left


def _owned(event: Event) -> Change:
    group, resource = records.owned_in(event.key)
    if event.value is None:
        return OwnedGone(group, resource)
    return OwnedPut(group, resource, Owned(records.decode(OwnedRecord, event.key, event.value), event.mod_rev))


def _of_tiered(event: Event) -> Change:
    key, value = event.key, event.value
    if key.startswith(records.COVERAGE):
        if value is None:
            return CoverageGone(*records.coverage_in(key))
        stored = StoredCoverage(records.decode(CoverageRecord, key, value), event.mod_rev)
        return CoveragePut(*records.coverage_in(key), stored)
    if key.startswith(records.TIER_TOPICS):
        topic_id = records.topic_id_in(key, records.TIER_TOPICS)
        return TierTopicGone(topic_id) if value is None else TierTopicPut(topic_id, event.mod_rev)
    if value is None:
        return PointerGone(*records.pointer_in(key))
    return PointerPut(*records.pointer_in(key), StoredPointer(records.decode(Pointer, key, value), event.mod_rev))


def _overrides(event: Event) -> StoredOverrides:
    if event.value is None:
        return NO_OVERRIDES
    return StoredOverrides(records.decode(records.OverridesRecord, event.key, event.value).settings, event.mod_rev)
