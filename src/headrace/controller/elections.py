"""Elections that nobody asked for: after every change of nodes or partitions each record is what it must be.

Levels are compared, not events: whatever changed, the partitions that it may concern are looked at as they are now. So
nothing is missed by a controller that was not there when it happened.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from headrace.controller import writing
from headrace.controller.fence import NotController
from headrace.controller.ledger import Ledger
from headrace.controller.writing import Changed
from headrace.core.cluster import NO_LEADER, ClusterImage, Diff, PartitionRecord, Topic
from headrace.core.election import Election, elect
from headrace.core.thin import thin_of

log = logging.getLogger(__name__)

AGAIN_S = 1.0
NAMED_MAX = 5
"""Partitions that one line of the log names."""


class Elections:
    def __init__(self, ledger: Ledger, wall_ms: Callable[[], int]) -> None:
        self.deprioritized = 0
        """Leaders that would have been others if all replicas had had enough on their own disks."""
        self._wall_ms = wall_ms
        self.held: Counter[str] = Counter()
        """By kind, since the start."""
        self._ledger = ledger
        self._wake = asyncio.Event()
        self._everything = False
        self._nodes: set[int] = set()
        self._partitions: dict[Topic, set[int] | None] = {}
        """To be looked at; None stands for all of a topic."""

    def all(self) -> None:
        self._everything = True
        self._wake.set()

    def after(self, diff: Diff) -> None:
        if not self._ledger.epoch:
            return
        self._nodes |= diff.brokers_changed | diff.offline_changed
        for topic, index in (*diff.partitions_changed, *diff.partitions_created):
            chosen = self._partitions.setdefault(topic, set())
            if chosen is not None:
                chosen.add(index)
        for topic in (*diff.topics_created, *diff.topics_configured):
            self._partitions[topic] = None
        if self._nodes or self._partitions:
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self.settle():
                await asyncio.sleep(AGAIN_S)
                self.all()  # it was not done, and what was looked at is forgotten

    async def settle(self) -> bool:
        """Holds the elections that are due. True when none is left, or another node decides."""
        is_new = self._everything
        candidates = self._candidates()
        # A new controller also settles what the one before left unfinished, which is part of every decision.
        if not is_new and not any(True for _ in self._due(candidates)):
            return True

        async def attempt() -> bool:
            due = list(self._due(candidates))
            passed_over = sum(self._passes_over(changed, elected) for changed, elected in due)
            written = await writing.write_partitions(self._ledger.store, [changed for changed, _ in due])
            if written:
                self.deprioritized += passed_over
                self.tell(due)
            return written

        try:
            return await self._ledger.settle(attempt)
        except NotController:
            return True

    def _candidates(self) -> list[tuple[Topic, Iterable[int]]]:
        image = self._ledger.image
        nodes, partitions, everything = self._nodes, self._partitions, self._everything
        self._nodes, self._partitions, self._everything = set(), {}, False
        if everything:
            return [(topic, range(len(topic.partitions))) for topic in image.topics.values()]
        if nodes:
            for topic in image.topics.values():
                chosen = partitions.setdefault(topic, set())
                if chosen is not None:
                    chosen.update(_hosted_by(nodes, topic))
        return [
            (topic, range(len(topic.partitions)) if chosen is None else sorted(chosen))
            for topic, chosen in partitions.items()
        ]

    def _due(self, candidates: list[tuple[Topic, Iterable[int]]]) -> Iterator[tuple[Changed, Election]]:
        image = self._ledger.image
        now_ms = self._wall_ms()
        verdicts: dict[tuple[int, bool, frozenset[int]], Election | None] = {}  # few records are distinct
        for topic, indexes in candidates:
            if image.topics_by_id.get(topic.id) is not topic:
                continue
            unclean = topic.config.unclean_leader_election_enable
            for index in indexes:
                record = topic.partitions[index]
                thin = thin_of(image, topic, index, now_ms)
                known = (id(record), unclean, thin)
                if known in verdicts:
                    elected = verdicts[known]
                else:
                    elected = elect(record, topic.id, index, image, unclean, thin)
                    if not _has_offline_replica(image, record):
                        verdicts[known] = elected
                if elected is not None:
                    yield Changed(topic, index, elected.record, topic.partition_revs[index]), elected

    def _passes_over(self, changed: Changed, elected: Election) -> bool:
        """The first replica that could be elected was passed over."""
        image, (topic, index, record, _) = self._ledger.image, changed
        if elected.kind != "clean" or topic.partitions[index].leader == record.leader:
            return False
        if not thin_of(image, topic, index, self._wall_ms()):
            return False
        able = [r for r in record.replicas if r in record.isr_ids and image.is_live(r, topic.id, index)]
        return bool(able) and able[0] != record.leader

    def tell(self, due: list[tuple[Changed, Election]]) -> None:
        """They were held."""
        kinds = Counter(elected.kind for _, elected in due)
        self.held.update(kinds)
        for kind, count in kinds.items():
            named = [f"{changed.topic.name}-{changed.partition}" for changed, elected in due if elected.kind == kind]
            shown = ", ".join(named[:NAMED_MAX]) + (", ..." if count > NAMED_MAX else "")
            if kind == "not intact":
                log.warning("%d partitions are led by a replica that may have lost records: %s", count, shown)
            elif kind == "unclean":
                log.warning("%d partitions are led by a replica that was not in sync: %s", count, shown)
            elif kind == "none":
                log.warning("%d partitions have no leader: %s", count, shown)
            else:
                log.info("%d partitions: %s election: %s", count, kind, shown)


def leaderless(image: ClusterImage) -> int:
    return sum(record.leader == NO_LEADER for topic in image.topics.values() for record in topic.partitions)


def _hosted_by(nodes: set[int], topic: Topic) -> Iterator[int]:
    for index, record in enumerate(topic.partitions):
        if not nodes.isdisjoint(record.replicas):
            yield index


def _has_offline_replica(image: ClusterImage, record: PartitionRecord) -> bool:
    return bool(image.offline) and not image.offline.keys().isdisjoint(record.replicas)
