"""The objects of deleted topics go, by the node that is the controller.

A key in the metadata store tells which topics have any. Leaders that were in the middle of a copy may store something
late: so a deleted topic is looked at until nothing has come for a while.
"""

import logging

from headrace.broker.tier import Tier
from headrace.controller.controller import Controller
from headrace.metadata.store import MetadataStoreError, OutcomeUnknown
from headrace.tier import layout
from headrace.tier.store import StoreUnavailable

log = logging.getLogger(__name__)

ROUNDS_BETWEEN = 10


class TierTopics:
    def __init__(self, controller: Controller, tier: Tier) -> None:
        self._controller = controller
        self._tier = tier
        self._rounds_left: dict[bytes, int] = {}
        """Of topics whose objects have been deleted before, until they are looked at again."""

    async def look(self) -> None:
        """One round."""
        image = self._controller.image
        gone = {topic_id for topic_id in image.tier_topics if topic_id not in image.topics_by_id}
        if not self._controller.is_controller:
            gone.clear()
        self._rounds_left = {topic_id: left - 1 for topic_id, left in self._rounds_left.items() if topic_id in gone}
        for topic_id in sorted(gone):
            if self._rounds_left.get(topic_id, 0) > 0:
                continue
            try:
                await self._look_at(topic_id)
            except (StoreUnavailable, MetadataStoreError, OutcomeUnknown) as failure:
                log.info("objects of a deleted topic are deleted later: %s", failure)
                self._rounds_left.pop(topic_id, None)

    async def _look_at(self, topic_id: bytes) -> None:
        is_first = topic_id not in self._rounds_left
        store, deleted = self._tier.store, 0
        async for key, _ in store.list(layout.topic_prefix(self._controller.image.cluster_id, topic_id)):
            await store.delete(key)
            deleted += 1
        self._rounds_left[topic_id] = ROUNDS_BETWEEN
        if deleted:
            log.info("deleted %d objects of a topic that was deleted", deleted)
        if is_first or deleted:
            return
        pointers, known = self._controller.tier_pointers, self._controller.image
        for (known_id, index), stored in list(known.tier.items()):
            if known_id == topic_id and not await pointers.forget(topic_id, index, stored.rev):
                return
        if topic_id in known.tier_topics:
            await pointers.forget_topic(topic_id, known.tier_topics[topic_id])
