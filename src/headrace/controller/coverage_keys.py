"""What is remembered of replicas' own disks is forgotten with the replica: its topic is gone, or its log was lost."""

import asyncio
import logging

from headrace.controller import writing
from headrace.controller.fence import NotController
from headrace.controller.ledger import Ledger
from headrace.controller.writing import BATCH, CoverageChange
from headrace.core.cluster import ClusterImage, Diff
from headrace.core.coverage import merged
from headrace.metadata import records
from headrace.metadata.store import Cmp

log = logging.getLogger(__name__)

AGAIN_S = 60.0


class CoverageKeys:
    def __init__(self, image: ClusterImage, ledger: Ledger) -> None:
        self._image = image
        self._ledger = ledger
        self._wake = asyncio.Event()

    def after(self, diff: Diff) -> None:
        if self._image.coverage and (diff.topics_deleted or diff.brokers_changed or diff.controller_changed):
            self._wake.set()

    async def sweep(self) -> None:
        """Forever. Elections do not wait for it: what no longer holds does not count for them."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                settled = not self._ledger.epoch or not self._is_due() or await self._ledger.settle(self._attempt)
            except NotController:
                continue  # another node does it
            if not settled:
                await asyncio.sleep(AGAIN_S)
                self._wake.set()

    def _is_due(self) -> bool:
        return bool(self._orphans() or self._outdated())

    async def _attempt(self) -> bool:
        store = self._ledger.store
        for batch in writing.batches(self._orphans(), BATCH):
            if not (await store.txn(batch, deletes=[compare.key for compare in batch])).ok:
                return False
        return await writing.write_coverage(store, self._outdated())

    def _orphans(self) -> list[Cmp]:
        known = self._image.topics_by_id
        return [
            Cmp(records.coverage_key(topic_id, index), stored.rev)
            for (topic_id, index), stored in self._image.coverage.items()
            if topic_id not in known
        ]

    def _outdated(self) -> list[CoverageChange]:
        image, changed = self._image, []
        for (topic_id, index), stored in image.coverage.items():
            topic = image.topics_by_id.get(topic_id)
            if topic is None:
                continue
            replicas = topic.partitions[index].replicas
            left = merged(stored.record, {}, stored.record.log_start, {}, replicas, image.brokers)
            if left != stored.record:
                changed.append(CoverageChange(topic_id, index, left, stored.rev))
        return changed
