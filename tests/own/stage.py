"""Claimers in a simulated world: each is a process on a machine of its own, and time is free."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from headrace import own
from headrace.client import Admin, Consumer, NewTopic, Outside, Producer
from headrace.model import TopicPartition
from headrace.sim.loop import Process
from headrace.sim.world import World

T = TypeVar("T")
T0 = TopicPartition("t", 0)
SHORT_LEASE = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


class Claimer:
    """One program that claims."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.process: Process
        self.process, self.outside = world.new_client(name)

    def claim(
        self, resources: own.Resources, generation: int | None = None, **more: Any
    ) -> AbstractAsyncContextManager[own.Ownership]:
        settings = {"client_id": self.name, "outside": self.outside, **more}
        return own.claim(self.world.bootstrap, "g", resources, generation, **settings)

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """In its own process, which can be paused."""
        return self.world.loop.spawn(self.process, work)

    def cut_off(self) -> None:
        """Nothing arrives any more, either way, and no connection notices."""
        for node in self.world.nodes:
            self.world.network.cut(self.name, node.host)
            self.world.network.cut(node.host, self.name)

    def break_connections(self) -> None:
        for node in self.world.nodes:
            self.world.network.reset(self.name, node.host)


class Stage:
    def __init__(self, world: World) -> None:
        self.world = world
        _, self.outside = world.new_client("audience")

    def claimer(self, name: str) -> Claimer:
        return Claimer(self.world, name)

    def now_ms(self) -> float:
        return self.world.loop.now_s * 1000

    async def create(self, topic: str = "t", partitions: int = 1, **configs: str) -> None:
        copies = len(self.world.nodes)
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        async with Admin(self.world.bootstrap, outside=self.outside) as admin:
            await admin.create_topics([NewTopic(topic, partitions, copies, settings)])

    def leader(self, partition: TopicPartition = T0) -> int:
        leader = self.world.truth.leader(partition)
        assert leader is not None
        return leader

    async def write(self, *values: bytes, partition: TopicPartition = T0) -> None:
        async with Producer(self.world.bootstrap, outside=self.outside) as producer:
            await asyncio.gather(*[producer.send(partition.topic, v, partition=partition.partition) for v in values])

    async def read(self, partition: TopicPartition = T0) -> list[bytes]:
        """Everything that is there."""
        values: list[bytes] = []
        async with Consumer(self.world.bootstrap, outside=self.outside) as consumer:
            end = (await consumer.end_offsets([partition]))[partition]
            consumer.assign([partition])
            while await consumer.position(partition) < end:
                values += [record.value or b"" for record in await consumer.poll(1_000)]
        return values

    async def until(self, holds: Callable[[], object], within_s: float = 60.0) -> None:
        async with asyncio.timeout(within_s):
            while not holds():
                await self.world.passing(0.001)


def play(scenario: Callable[[Stage], Coroutine[Any, Any, None]], brokers: int = 1, seed: int = 1) -> None:
    world = World(seed, brokers, SHORT_LEASE)
    process, _ = world.new_client("play")

    async def main() -> None:
        for node in world.nodes:
            node.start()
        await world.until_serving()
        await world.loop.spawn(process, scenario(Stage(world)))

    try:
        world.loop.run(main(), 600)
        assert world.loop.failures == []
    finally:
        world.close()


@asynccontextmanager
async def written_to(ownership: own.Ownership, partition: TopicPartition = T0) -> AsyncIterator[Callable[[bytes], Any]]:
    """A function that writes a value with a producer of that ownership."""
    async with ownership.producer(linger_ms=0) as producer:
        yield lambda value: producer.send(partition.topic, value, partition=partition.partition)


__all__ = ["T0", "Claimer", "Outside", "Stage", "play", "written_to"]
