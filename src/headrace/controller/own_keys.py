"""Generations that outlive their owners: keys in the store, written by whoever leads the resource, and by nobody else.

Every write compares the key itself and what makes the writer the leader: the record of the partition, or the office of
the controller for a resource that is no partition.
"""

import asyncio
import logging

from headrace.controller.ledger import Ledger
from headrace.core.cluster import ClusterImage, Diff, OwnedRecord, PartitionRecord
from headrace.metadata import records
from headrace.metadata.store import Cmp, MetadataStoreError, MetaStore, OutcomeUnknown, Put, TxnResult

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 60.0
"""At the latest: a leader may have written a key for a topic that was being deleted."""


class OwnKeys:
    def __init__(self, store: MetaStore, image: ClusterImage, ledger: Ledger) -> None:
        self._store = store
        self._image = image
        self._ledger = ledger
        self._wake = asyncio.Event()

    # For leaders.

    def partition_fence(self, topic_id: bytes, index: int, leader_epoch: int) -> Cmp | None:
        """None when this node does not lead the partition under that epoch, by what it knows."""
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None or not self._is_led(topic.partitions[index], leader_epoch):
            return None
        return Cmp(records.partition_key(topic_id, index), topic.partition_revs[index])

    async def read_partition_fence(self, topic_id: bytes, index: int, leader_epoch: int) -> Cmp | None:
        """The same by what the store says now. Raises MetadataStoreError."""
        key = records.partition_key(topic_id, index)
        found = next((kv for kv in (await self._store.load(key)).kvs if kv.key == key), None)
        if found is None or not self._is_led(records.decode(PartitionRecord, key, found.value), leader_epoch):
            return None
        return Cmp(key, found.mod_rev)

    def _is_led(self, record: PartitionRecord, leader_epoch: int) -> bool:
        return record.leader == self._image.node_id and record.leader_epoch == leader_epoch

    def office_fence(self, term: int) -> Cmp | None:
        return Cmp(records.CONTROLLER_KEY, term, "create") if term and term == self._ledger.epoch else None

    async def put(self, group: str, resource: str, record: OwnedRecord, rev: int, fence: Cmp) -> TxnResult:
        """Raises MetadataStoreError, OutcomeUnknown."""
        key = records.owned_key(group, resource)
        return await self._store.txn([Cmp(key, rev), fence], [Put(key, records.encode(record))])

    async def delete(self, group: str, resource: str, rev: int, fence: Cmp) -> TxnResult:
        key = records.owned_key(group, resource)
        return await self._store.txn([Cmp(key, rev), fence], deletes=[key])

    async def read(self, group: str, resource: str) -> tuple[OwnedRecord | None, int]:
        """What the store remembers, and its revision. Raises MetadataStoreError."""
        key = records.owned_key(group, resource)
        found = next((kv for kv in (await self._store.load(key)).kvs if kv.key == key), None)
        return (None, 0) if found is None else (records.decode(OwnedRecord, key, found.value), found.mod_rev)

    # For the controller.

    def after(self, diff: Diff) -> None:
        if diff.topics_deleted or diff.controller_changed:
            self._wake.set()

    async def sweep(self) -> None:
        """Forever: what is remembered of partitions that are gone is forgotten."""
        while True:
            try:
                async with asyncio.timeout(SWEEP_EVERY_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            for group, resource, rev in self._orphans():
                fence = self.office_fence(self._ledger.epoch)
                if fence is None:
                    break
                try:
                    await self.delete(group, resource, rev, fence)
                except (MetadataStoreError, OutcomeUnknown) as failure:
                    log.info("%s in group %s is forgotten later: %s", resource, group, failure)
                    break

    def _orphans(self) -> list[tuple[str, str, int]]:
        if not self._ledger.epoch:
            return []
        known = self._image.topics_by_id
        return [
            (group, resource, owned.rev)
            for resource, groups in self._image.owned.items()
            for group, owned in groups.items()
            if owned.record.topic_id and bytes.fromhex(owned.record.topic_id) not in known
        ]
