"""What the controller does without being asked: leaderships go back to first replicas, and leave nodes that shut down.

Every node runs these; on one that is not the controller they do nothing.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from headrace.controller.elections import Elections
from headrace.controller.fence import NotController
from headrace.controller.ledger import Ledger
from headrace.controller.moves import Moves
from headrace.core.cluster import ClusterImage, Diff, PartitionRecord, Topic
from headrace.core.election import elect_preferred, is_preferred_available, move_from
from headrace.core.thin import thin_of
from headrace.errors import ErrorCode

MOVES_MAX = 1_000
"""In one pass of the rebalancer."""
NEXT_PASS_S = 0.01
AGAIN_S = 1.0
"""When a leadership of a node that shuts down did not move."""


def preferred(image: ClusterImage, topic: Topic, index: int, wall_ms: int) -> PartitionRecord | ErrorCode:
    return elect_preferred(topic.partitions[index], topic.id, index, image, thin_of(image, topic, index, wall_ms))


def moved_from(
    image: ClusterImage, broker_id: int, topic: Topic, index: int, wall_ms: int
) -> PartitionRecord | ErrorCode:
    thin = thin_of(image, topic, index, wall_ms)
    moved = move_from(topic.partitions[index], topic.id, index, image, broker_id, thin)
    return ErrorCode.ELECTION_NOT_NEEDED if moved is None else moved


def movable_from(image: ClusterImage, broker_id: int) -> Iterator[tuple[Topic, int]]:
    """Partitions that the node leads and that another could lead."""
    for topic, index in image.led_by(broker_id):
        if move_from(topic.partitions[index], topic.id, index, image, broker_id) is not None:
            yield topic, index


class Duties:
    def __init__(self, ledger: Ledger, elections: Elections, moves: Moves, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._ledger = ledger
        self._elections = elections
        self._moves = moves
        self._departing = asyncio.Event()
        self._stayed: set[tuple[bytes, int]] = set()
        """Of the last pass of the rebalancer, at most `MOVES_MAX`: others come before them in the next one."""

    def after(self, diff: Diff) -> None:
        changed = diff.brokers_changed or diff.partitions_changed or diff.controller_changed
        if changed and any(broker.is_shutting_down for broker in self._ledger.image.brokers.values()):
            self._departing.set()

    async def rebalance(self) -> None:
        """Forever."""
        while True:
            await asyncio.sleep(self._ledger.image.broker_config.leader_imbalance_check_interval_seconds)
            while self._ledger.epoch and self._ledger.image.broker_config.auto_leader_rebalance_enable:
                if not await self._rebalance_once():
                    break
                await asyncio.sleep(NEXT_PASS_S)

    async def _rebalance_once(self) -> bool:
        """Whether there may be more to do at once."""
        image, now_ms = self._ledger.image, self._wall_ms()
        imbalanced = [
            (topic, index)
            for topic in image.topics.values()
            for index, record in enumerate(topic.partitions)
            if record.leader != record.replicas[0]
            and is_preferred_available(record, topic.id, index, image, thin_of(image, topic, index, now_ms))
        ]
        chosen = sorted(imbalanced, key=lambda one: (one[0].id, one[1]) in self._stayed)[:MOVES_MAX]
        with contextlib.suppress(NotController):
            moved = await self._moves.move(chosen, lambda topic, index: preferred(image, topic, index, self._wall_ms()))
            self._stayed = {partition for partition, code in moved.items() if code is not ErrorCode.NONE}
            return len(chosen) == MOVES_MAX and ErrorCode.NONE in moved.values()
        return False

    async def sweep(self) -> None:
        """Forever: partitions whose elections nothing else has brought about."""
        while True:
            await asyncio.sleep(self._ledger.image.broker_config.unclean_leader_election_interval_ms / 1000)
            self._elections.all()

    async def see_off(self) -> None:
        """Forever: moves leaderships away from nodes that shut down."""
        while True:
            await self._departing.wait()
            self._departing.clear()
            if not self._ledger.epoch:
                continue
            image = self._ledger.image
            leaving = [broker.id for broker in image.brokers.values() if broker.is_shutting_down]
            done = [await self._see_off(image, broker_id) for broker_id in leaving]
            if not all(done):
                await asyncio.sleep(AGAIN_S)
                self._departing.set()

    async def _see_off(self, image: ClusterImage, broker_id: int) -> bool:
        movable = list(movable_from(image, broker_id))
        if not movable:
            return True
        with contextlib.suppress(NotController):
            moved = await self._moves.move(
                movable, lambda topic, index: moved_from(image, broker_id, topic, index, self._wall_ms())
            )
            return all(code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED) for code in moved.values())
        return True
