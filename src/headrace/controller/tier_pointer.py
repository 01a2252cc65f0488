"""Moving the pointer to a partition's manifest: only its leader may, and only from the manifest that it knows.

Every write compares the pointer's own revision and the partition's record: a leader that was deposed cannot move it,
though it read the pointer again.
"""

from enum import Enum
from typing import NamedTuple

from headrace.controller.ledger import Ledger
from headrace.core.cluster import ClusterImage, PartitionRecord
from headrace.core.tier_pointer import Pointer, StoredPointer, TierTopicRecord
from headrace.metadata import records
from headrace.metadata.store import Cmp, MetaStore, OutcomeUnknown, Put


class Published(NamedTuple):
    rev: int


class NotPublished(Enum):
    NOT_LEADER = 1
    """Somebody else leads the partition, says the store, or it is gone."""
    MOVED = 2
    """The pointer is not the one that was known."""
    IN_DOUBT = 3
    """It may have been written, and may yet be. `TierPointers.read`, and a later write that succeeds, tell."""


class TierPointers:
    def __init__(self, store: MetaStore, image: ClusterImage, ledger: Ledger) -> None:
        self._store = store
        self._image = image
        self._ledger = ledger

    async def publish(
        self, topic_id: bytes, index: int, leader_epoch: int, pointer: Pointer, known_rev: int
    ) -> Published | NotPublished:
        """`known_rev` is that of the pointer which this one follows, 0 for the first. Raises MetadataStoreError."""
        return await self._write(topic_id, index, leader_epoch, known_rev, pointer)

    async def announce(self, topic_id: bytes, index: int, leader_epoch: int) -> bool:
        """There will be objects of this topic: so that they are found when it is gone. Before the first is stored.

        Raises MetadataStoreError, OutcomeUnknown. False: this node does not lead the partition.
        """
        topic, key = self._image.topics_by_id.get(topic_id), records.tier_topic_key(topic_id)
        fence = await self._read_fence(topic_id, index, leader_epoch)
        if topic is None or fence is None:
            return False
        if topic_id in self._image.tier_topics:
            return True
        put = Put(key, records.encode(TierTopicRecord(topic.name)))
        if (await self._store.txn([Cmp(key, 0), fence], [put])).ok:
            return True
        return any(kv.key == key for kv in (await self._store.load(key)).kvs)

    async def withdraw(
        self, topic_id: bytes, index: int, leader_epoch: int, known_rev: int
    ) -> Published | NotPublished:
        """Nothing of the partition is in the tier any more. Raises MetadataStoreError."""
        return await self._write(topic_id, index, leader_epoch, known_rev, None)

    async def _write(
        self, topic_id: bytes, index: int, leader_epoch: int, known_rev: int, pointer: Pointer | None
    ) -> Published | NotPublished:
        key = records.pointer_key(topic_id, index)
        puts = [] if pointer is None else [Put(key, records.encode(pointer))]
        deletes = [key] if pointer is None else []
        fence = self._fence(topic_id, index, leader_epoch)
        while fence is not None:
            try:
                ok, rev = await self._store.txn([Cmp(key, known_rev), fence], puts, deletes)
            except OutcomeUnknown:
                return NotPublished.IN_DOUBT
            if ok:
                return Published(rev)
            stored = await self.read(topic_id, index)
            if (0 if stored is None else stored.rev) != known_rev:
                return NotPublished.MOVED
            # The record has changed, which the image may not know yet: with the ISR, or because another node leads.
            found = await self._read_fence(topic_id, index, leader_epoch)
            if found == fence:
                return NotPublished.MOVED  # it was, and was moved back: nobody does that
            fence = found
        return NotPublished.NOT_LEADER

    async def read(self, topic_id: bytes, index: int) -> StoredPointer | None:
        """As the store has it now. Raises MetadataStoreError."""
        key = records.pointer_key(topic_id, index)
        found = next((kv for kv in (await self._store.load(key)).kvs if kv.key == key), None)
        return None if found is None else StoredPointer(records.decode(Pointer, key, found.value), found.mod_rev)

    async def is_led(self, topic_id: bytes, index: int, leader_epoch: int) -> bool:
        """By this node, as the store has it now. Raises MetadataStoreError."""
        return await self._read_fence(topic_id, index, leader_epoch) is not None

    async def forget(self, topic_id: bytes, index: int, known_rev: int) -> bool:
        """For the controller: the topic is gone, and its objects are. Raises MetadataStoreError, OutcomeUnknown."""
        if not self._ledger.epoch:
            return False
        return await self._delete(records.pointer_key(topic_id, index), known_rev)

    async def forget_topic(self, topic_id: bytes, known_rev: int) -> bool:
        """For the controller, in the end. Raises MetadataStoreError, OutcomeUnknown."""
        return bool(self._ledger.epoch) and await self._delete(records.tier_topic_key(topic_id), known_rev)

    async def _delete(self, key: bytes, known_rev: int) -> bool:
        office = Cmp(records.CONTROLLER_KEY, self._ledger.epoch, "create")
        return (await self._store.txn([Cmp(key, known_rev), office], deletes=[key])).ok

    def _fence(self, topic_id: bytes, index: int, leader_epoch: int) -> Cmp | None:
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None or not self._leads(topic.partitions[index], leader_epoch):
            return None
        return Cmp(records.partition_key(topic_id, index), topic.partition_revs[index])

    async def _read_fence(self, topic_id: bytes, index: int, leader_epoch: int) -> Cmp | None:
        key = records.partition_key(topic_id, index)
        found = next((kv for kv in (await self._store.load(key)).kvs if kv.key == key), None)
        if found is None or not self._leads(records.decode(PartitionRecord, key, found.value), leader_epoch):
            return None
        return Cmp(key, found.mod_rev)

    def _leads(self, record: PartitionRecord, leader_epoch: int) -> bool:
        return record.leader == self._image.node_id and record.leader_epoch == leader_epoch
