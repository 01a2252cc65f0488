"""Watches the metadata store of a world, and tells of each change of a tiered partition's leader who could have led.

It has an image of its own, which hears of every revision at once. A controller hears later, and its decisions may be
written later still: what changed a moment ago is therefore not known for sure, and nothing is while its way to the
store is disturbed.
"""

import asyncio
from collections.abc import Callable, Collection

from headrace.controller.deltas import Deltas
from headrace.core.cluster import ClusterImage, PartitionPut, PartitionRecord, Topic
from headrace.core.coverage import LocalCoverage
from headrace.core.tier_pointer import PointerPut
from headrace.metadata import records
from headrace.metadata.store import Revision
from headrace.model import TopicPartition
from headrace.sim.history import History
from headrace.sim.tier_history import Elected, PointerMoved
from headrace.sim.world import World

SETTLED_S = 1.5
"""What has not changed for so long is known to every controller."""
HEARD_S = 0.2
"""What a controller writes itself it hears of so soon."""
MUDDLED_S = 2.0
"""How long what disturbs a controller can have effects."""


class ElectionObserver:
    def __init__(self, world: World, history: History, topics: Collection[str], muddled_s: Callable[[], float]) -> None:
        """`muddled_s`: when something last happened that delays what controllers know or write."""
        self._world = world
        self._history = history
        self._topics = topics
        self._muddled_s = muddled_s
        self._image = ClusterImage(0, world.nodes[0].config.settings)
        self._deltas = Deltas(self._image)
        self._nodes_changed_s: dict[int, float] = {}
        self._coverage_changed_s: dict[tuple[bytes, int], float] = {}

    def start(self) -> None:
        loop = self._world.loop
        loop.spawn(loop.outside, self._watch())

    async def _watch(self) -> None:
        data, woken = self._world.data, asyncio.Event()
        data.watches.add(woken)
        snapshot = data.load(b"/")
        self._image.apply(self._deltas.of_snapshot(snapshot), snapshot.rev)
        while True:
            while (revision := data.next_revision(self._image.rev)) is not None:
                self._look(revision)
            await woken.wait()
            woken.clear()

    def _look(self, revision: Revision) -> None:
        changes = self._deltas.of_revision(revision)
        for change in changes:
            if isinstance(change, PartitionPut):
                topic = self._image.topics_by_id.get(change.topic_id)
                if topic is not None and topic.name in self._topics:
                    self._see(topic, change.partition, topic.partitions[change.partition], change.record)
            elif isinstance(change, PointerPut):
                self._see_pointer(change)
        diff = self._image.apply(changes, revision.rev)
        now_s = self._world.loop.now_s
        for event in revision.events:
            if event.key.startswith(records.COVERAGE):
                self._coverage_changed_s[records.coverage_in(event.key)] = now_s
        for node in diff.brokers_changed | diff.offline_changed:
            self._nodes_changed_s[node] = now_s

    def _see(self, topic: Topic, index: int, before: PartitionRecord, after: PartitionRecord) -> None:
        if before.leader == after.leader:
            return
        now_s, image = self._world.loop.now_s, self._image
        intact = {m.broker_id for m in before.isr if _is_intact(image, m.broker_id, m.broker_epoch)}
        able = frozenset(node for node in intact if image.is_live(node, topic.id, index))
        members = frozenset(before.isr_ids)
        changed = {node for node, at_s in self._nodes_changed_s.items() if now_s - at_s < SETTLED_S}
        thin, perhaps_thin = self._thin(topic, index, before.replicas)
        if now_s - self._muddled_s() < MUDDLED_S:
            changed, perhaps_thin = set(members), frozenset(before.replicas)
        self._history.add(
            Elected(
                now_s,
                TopicPartition(topic.name, index),
                before.replicas,
                before.leader,
                after.leader,
                frozenset(able - changed),
                members & (changed | able),
                frozenset(thin - perhaps_thin),
                perhaps_thin,
                after.recovering or not intact,
            )
        )

    def _see_pointer(self, change: PointerPut) -> None:
        topic = self._image.topics_by_id.get(change.topic_id)
        if topic is not None:
            place, epoch = TopicPartition(topic.name, change.partition), change.stored.pointer.leader_epoch
            leaders_epoch = topic.partitions[change.partition].leader_epoch
            self._history.add(PointerMoved(self._world.loop.now_s, place, epoch, leaders_epoch))

    def _thin(self, topic: Topic, index: int, replicas: tuple[int, ...]) -> tuple[frozenset[int], frozenset[int]]:
        stored = self._image.coverage.get((topic.id, index))
        config = topic.config
        ms, size = config.leader_election_eligible_local_log_ms, config.leader_election_eligible_local_log_bytes
        if stored is None or max(ms, size) <= 0:
            return frozenset(), frozenset()
        known = {
            replica.broker_id: replica.local
            for replica in stored.record.replicas
            if _is_intact(self._image, replica.broker_id, replica.broker_epoch)
        }
        start = stored.record.log_start
        clocks = [node.machine.clock.wall_ms() for node in self._world.nodes]
        early_ms, late_ms = min(clocks) - int(SETTLED_S * 1000), max(clocks)
        at_first = {node for node in replicas if _is_thin(known.get(node), start, ms, size, early_ms)}
        at_last = {node for node in replicas if _is_thin(known.get(node), start, ms, size, late_ms)}
        changed_s = self._coverage_changed_s.get((topic.id, index), 0.0)
        if self._world.loop.now_s - changed_s < HEARD_S:
            return frozenset(), frozenset(replicas)
        return frozenset(at_first), frozenset(at_first ^ at_last)


def _is_intact(image: ClusterImage, node: int, epoch: int) -> bool:
    broker = image.brokers.get(node)
    if broker is None:
        return True
    return broker.intact_since <= epoch and (epoch <= broker.last_epoch or epoch == broker.epoch)


def _is_thin(local: LocalCoverage | None, log_start: int, ms: int, size: int, now_ms: int) -> bool:
    """The rule, written down a second time."""
    if local is None or local.at_local_retention or 0 <= local.local_log_start <= log_start:
        return False
    return not (0 < ms <= now_ms - local.coverage_since_ms or 0 < size <= local.local_bytes)
