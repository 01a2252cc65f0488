"""Internal topics get more replicas when nodes join: a cluster whose first consumer came early would keep its offsets
on one node for ever.

Leaderships are spread with them: another replica becomes the first of some partitions, and gets the leadership when
leaderships are next moved back to the first replicas.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from headrace.controller import writing
from headrace.controller.fence import NotController
from headrace.controller.ledger import Ledger
from headrace.controller.writing import Changed
from headrace.core.cluster import Diff, PartitionRecord, Topic
from headrace.core.internal_topics import INTERNAL_TOPICS, replication_factor

log = logging.getLogger(__name__)

AGAIN_S = 1.0


class InternalReplicas:
    """Every node runs this; on one that is not the controller it does nothing."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._wake = asyncio.Event()

    def after(self, diff: Diff) -> None:
        if diff.brokers_changed or diff.topics_created or diff.controller_changed:
            self._wake.set()

    async def run(self) -> None:
        """Forever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._ledger.epoch and not await self._settle():
                await asyncio.sleep(AGAIN_S)
                self._wake.set()

    async def _settle(self) -> bool:
        if not any(True for _ in self._due()):
            return True

        async def attempt() -> bool:
            due = list(self._due())
            written = await writing.write_partitions(self._ledger.store, due)
            if written and due:
                log.info("%d partitions of internal topics get more replicas", len(due))
            return written

        try:
            return await self._ledger.settle(attempt)
        except NotController:
            return True

    def _due(self) -> Iterator[Changed]:
        image = self._ledger.image
        nodes = sorted(node.id for node in image.brokers.values() if not node.is_shutting_down)
        for name in sorted(INTERNAL_TOPICS):
            topic = image.topics.get(name)
            if topic is not None:
                factor = min(replication_factor(name, image.broker_config), len(nodes))
                yield from _raised(topic, nodes, factor)


def _raised(topic: Topic, nodes: list[int], factor: int) -> Iterator[Changed]:
    if all(len(record.replicas) >= factor for record in topic.partitions):
        return
    held = Counter(replica for record in topic.partitions for replica in record.replicas)
    first = Counter(record.replicas[0] for record in topic.partitions)
    for index, record in enumerate(topic.partitions):
        if len(record.replicas) >= factor:
            continue
        replicas = _more(record.replicas, nodes, factor, held)
        held.update(replicas[len(record.replicas) :])
        first[record.replicas[0]] -= 1
        replicas = _first_least(replicas, first)
        first[replicas[0]] += 1
        yield Changed(topic, index, _with(record, replicas), topic.partition_revs[index])


def _more(replicas: tuple[int, ...], nodes: Iterable[int], factor: int, held: Counter[int]) -> tuple[int, ...]:
    """Of the others, those that hold least."""
    others = sorted((held[node], node) for node in nodes if node not in replicas)
    return *replicas, *(node for _, node in others[: factor - len(replicas)])


def _first_least(replicas: tuple[int, ...], first: Counter[int]) -> tuple[int, ...]:
    """Whoever is the first of fewest partitions becomes that of this one; the others keep their order."""
    chosen = min(replicas, key=lambda node: first[node])
    return chosen, *(node for node in replicas if node != chosen)


def _with(record: PartitionRecord, replicas: tuple[int, ...]) -> PartitionRecord:
    return replace(record, replicas=replicas, partition_epoch=record.partition_epoch + 1)
