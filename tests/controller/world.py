"""A controller on a store in memory, and what the store must always look like."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.controller.controller import Controller
from headrace.controller.loading import changes_since, decode_snapshot
from headrace.controller.registration import Past
from headrace.core.cluster import ClusterImage, Diff
from headrace.metadata import records
from headrace.metadata.memory import MemoryData, MemoryStore
from headrace.metadata.store import Cmp, Put, TxnResult
from headrace.system import SystemClock


class SeededRandom:
    def __init__(self, seed: int = 1) -> None:
        self._chance = random.Random(seed)

    def bits(self, count: int) -> int:
        return self._chance.getrandbits(count)


class Died(Exception):
    """The process of this store is no more."""


class MortalStore(MemoryStore):
    """A store whose process dies before, or just after, a given transaction."""

    def __init__(self, data: MemoryData, lives: int, *, dies_after: bool = False) -> None:
        super().__init__(data)
        self.lives = lives
        self._dies_after = dies_after

    async def txn(self, when: Sequence[Cmp], puts: Sequence[Put] = (), deletes: Sequence[bytes] = ()) -> TxnResult:
        self.lives -= 1
        if self.lives < 0:
            if self._dies_after and self.lives == -1:
                await super().txn(when, puts, deletes)
            raise Died
        return await super().txn(when, puts, deletes)


async def nothing() -> bool:
    """A decision that changes nothing: those before it are made when it is."""
    return True


async def started(
    store: MemoryStore,
    node_id: int = 1,
    settings: dict[str, str] | None = None,
    on_change: Callable[[Diff], None] | None = None,
    is_intact: bool = True,
) -> Controller:
    """A node's controller after its start. Nodes with one number on one store have one data directory, too."""
    image = ClusterImage(node_id, settings or {})
    pasts: dict[int, Past] = vars(store.data).setdefault("pasts", {})
    living: dict[int, Controller] = vars(store.data).setdefault("living", {})
    if node_id in living:
        await living[node_id].abandon()

    def remember(past: Past) -> None:
        pasts[node_id] = past

    past = pasts.get(node_id, Past())
    if not is_intact:
        past = replace(past, intact_since=0)
    random = SeededRandom(store.data.rev)
    controller = Controller(store, image, SystemClock(), random, past=past, remember=remember)
    living[node_id] = controller
    await controller.start()
    await controller.register("127.0.0.1", 9092, origin=f"machine/{node_id}")
    assert await controller.ready(30)
    if controller.is_controller:
        await controller.ledger.settle(nothing)
    if on_change is not None:
        controller.listen(on_change)
    return controller


def check_store(data: MemoryData) -> dict[str, int]:
    """Nothing half done is left. Topics and their counts of partitions."""
    loaded = decode_snapshot(data.load(b"/").kvs)
    list(changes_since(ClusterImage(1, {}), loaded))  # complains if a partition is missing
    assert not loaded.unfinished
    counted = {topic_id: count for topic_id, count, _ in loaded.topics.values()}
    assert {topic_id: len(partitions) for topic_id, partitions in loaded.partitions.items()} == counted
    assert loaded.topic_overrides.keys() <= loaded.topics.keys()
    return {name: count for name, (_, count, _) in loaded.topics.items()}


def check_image(image: ClusterImage, data: MemoryData) -> None:
    """The image is what a new node would load."""
    assert list(changes_since(image, decode_snapshot(data.load(b"/").kvs))) == []


def topic_count(data: MemoryData) -> int:
    return len(data.load(records.TOPICS).kvs)
