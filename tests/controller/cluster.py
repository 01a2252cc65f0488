"""Several nodes' controllers on one store in memory, in one loop, and what must be true of their decisions."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headrace.controller.controller import Controller
from headrace.controller.moves import StepDown
from headrace.controller.registration import Past
from headrace.controller.topics import NewTopic
from headrace.controller.writing import TopicPlan
from headrace.core.cluster import ClusterImage, IsrMember, PartitionRecord
from headrace.errors import ErrorCode
from headrace.metadata.memory import MemoryData, MemoryStore
from headrace.system import SystemClock
from tests.controller.world import SeededRandom


class Nodes:
    """Each node has a data directory, which remembers what `Past` says."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.data = MemoryData()
        self.pasts: dict[int, Past] = {}
        self.stores: dict[int, MemoryStore] = {}
        self.nodes: dict[int, Controller] = {}
        self.usurped: list[str] = []
        self.stepped_down: list[tuple[int, StepDown]] = []
        self.answer: Callable[[int], ErrorCode | None] = lambda _: ErrorCode.NONE
        self._settings = {
            "broker.session.timeout.ms": "20000",
            "broker.heartbeat.interval.ms": "100",
            **(settings or {}),
        }

    async def start(self, *node_ids: int, is_intact: bool = True, origin: str = "") -> None:
        for node_id in node_ids:
            await self._start(node_id, is_intact, origin or f"machine/{node_id}")

    async def _start(self, node_id: int, is_intact: bool, origin: str) -> None:
        past = self.pasts.get(node_id, Past())
        if not is_intact:
            past = self.pasts[node_id] = replace(past, intact_since=0)
        store = self.stores[node_id] = MemoryStore(self.data)
        node = Controller(
            store,
            ClusterImage(node_id, self._settings),
            SystemClock(),
            SeededRandom(self.data.rev * 100 + node_id),
            past=past,
            remember=lambda past: self.pasts.__setitem__(node_id, past),
        )
        node.on_end(self.usurped.append)
        node.ask_step_down_by(self._step_down)
        self.nodes[node_id] = node
        await node.start()
        await node.register("127.0.0.1", 9000 + node_id, origin=origin)

    async def _step_down(
        self, broker_id: int, _: int, asked: Sequence[StepDown]
    ) -> Mapping[tuple[bytes, int], ErrorCode]:
        self.stepped_down += [(broker_id, of) for of in asked]
        code = self.answer(broker_id)
        if code is None:
            raise OSError("no answer")
        await asyncio.sleep(0)
        return {(of.topic_id, of.partition): code for of in asked}

    async def kill(self, node_id: int, *, lease_ends: bool = False) -> None:
        """Its lease runs on, unless it ends at once."""
        node = self.nodes.pop(node_id)
        await node.abandon()
        await self.stores[node_id].close()
        if lease_ends:
            self.data.revoke(self.pasts[node_id].lease_id)

    async def stop(self) -> None:
        for node in self.nodes.values():
            await node.abandon()

    async def controller(self) -> Controller:
        await self.until(lambda: any(node.is_controller for node in self.nodes.values()))
        return next(node for node in self.nodes.values() if node.is_controller)

    async def topic(self, replicas: Sequence[Sequence[int]], name: str = "t", **settings: str) -> None:
        controller = await self.controller()
        await self.until(lambda: controller.image.brokers.keys() >= {n for of in replicas for n in of})
        dotted: dict[str, str | None] = {key.replace("_", "."): text for key, text in settings.items()}
        new = NewTopic(name, assignments=list(enumerate(replicas)), settings=dotted)
        (plan,) = await controller.create_topics([new])
        assert isinstance(plan, TopicPlan), plan

    def record(self, index: int = 0) -> PartitionRecord:
        """As the store holds it."""
        image = next(iter(self.nodes.values())).image
        return image.topics["t"].partitions[index]

    def entry(self, node_id: int) -> IsrMember:
        return IsrMember(node_id, self.nodes[node_id].registration.epoch)

    async def settled(self) -> None:
        """Everybody has seen everything, and the controller has nothing left to elect."""
        controller = await self.controller()

        def is_settled() -> bool:
            images = [node.image for node in self.nodes.values()]
            due = controller.elections._due([(t, range(len(t.partitions))) for t in controller.image.topics.values()])
            return all(image.rev == self.data.rev for image in images) and not list(due)

        await self.until(is_settled)

    async def until(self, holds: Callable[[], object], timeout_s: float = 20) -> None:
        async with asyncio.timeout(timeout_s):
            while not holds():  # noqa: ASYNC110  # any condition, not one that somebody could announce
                await asyncio.sleep(0.002)
