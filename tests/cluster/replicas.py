"""Three nodes on virtual time, as seen from outside and by their clients."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.broker.partitions import Hosted
from headrace.broker.replicator import Replicator
from headrace.client import Admin, NewTopic, Outside, Producer
from headrace.errors import KafkaError
from headrace.sim.world import World

TOPIC = "t"


class Replicas:
    """`numbers` are those of nodes, from 1 on."""

    def __init__(self, world: World, outside: Outside) -> None:
        self.world = world
        self.outside = outside

    async def create(self, partitions: int = 1, copies: int = 3, **configs: str) -> None:
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        async with Admin(self.world.bootstrap, outside=self.outside) as admin:
            await admin.create_topics([NewTopic(TOPIC, partitions, copies, settings)])
        await self.until(lambda: all(self.leader_of(index) for index in range(partitions)))

    async def produce(self, *values: bytes, partition: int = 0, acks: int = -1, within_s: float = 60) -> bool:
        """Whether all were acknowledged."""
        async with Producer(
            self.world.bootstrap,
            outside=self.outside,
            acks=acks,
            linger_ms=0,
            delivery_ms_max=int(within_s * 1000),
            request_ms_max=min(5_000, int(within_s * 1000)),
        ) as producer:
            sent = [producer.send(TOPIC, value, partition=partition) for value in values]
            done = await asyncio.gather(*sent, return_exceptions=True)
        assert all(isinstance(one, KafkaError) for one in done if isinstance(one, BaseException)), done
        return not any(isinstance(one, BaseException) for one in done)

    def at(self, number: int, index: int = 0) -> Hosted:
        node = self.world.nodes[number - 1].node
        assert node is not None and node.broker is not None
        found = node.broker.partitions.find_by_name(TOPIC, index)
        assert isinstance(found, Hosted)
        return found

    def replicator(self, number: int) -> Replicator:
        node = self.world.nodes[number - 1].node
        assert node is not None and node.broker is not None
        replicator = node.broker.roles.replicator
        assert isinstance(replicator, Replicator)
        return replicator

    def leader_of(self, index: int = 0) -> int:
        """0 if nobody serves it."""
        for node in self.world.nodes:
            if node.is_serving and node.node is not None and node.node.broker is not None:
                found = node.node.broker.partitions.find_by_name(TOPIC, index)
                if isinstance(found, Hosted) and found.is_leading and not found.error:
                    return node.node_id
        return 0

    def content(self, number: int, index: int = 0) -> bytes:
        log = self.at(number, index).log
        return b"".join(segment.log.read(0, segment.size) for segment in log.segments)

    def are_equal(self, index: int = 0, count: int = 3) -> bool:
        """Whether every node serves, and has the same bytes, all of them committed."""
        if not all(node.is_serving for node in self.world.nodes):
            return False
        replicas = [self.at(number, index) for number in range(1, count + 1)]
        ends = {(replica.log_end_offset, replica.high_watermark) for replica in replicas}
        if len(ends) != 1 or len(set(ends.pop())) != 1:
            return False
        return len({self.content(number, index) for number in range(1, count + 1)}) == 1

    async def until(self, condition: Callable[[], Any], within_s: float = 120) -> None:
        end_s = self.world.loop.now_s + within_s
        while not condition():
            assert self.world.loop.now_s < end_s, self.world.story
            await asyncio.sleep(0.05)

    async def until_equal(self, *indexes: int) -> None:
        await self.until(lambda: all(self.are_equal(index) for index in indexes or (0,)))

    async def until_led_by_another(self, than: int, index: int = 0) -> None:
        await self.until(lambda: self.leader_of(index) not in (0, than))

    def cut(self, one: int, other: int) -> None:
        network = self.world.network
        network.cut(f"node{one}", f"node{other}")
        network.cut(f"node{other}", f"node{one}")

    def heal(self) -> None:
        self.world.network.heal_all()

    def kill(self, number: int) -> None:
        self.world.nodes[number - 1].kill()

    def start(self, number: int) -> None:
        self.world.nodes[number - 1].start()


Scenario = Callable[[Replicas], Coroutine[Any, Any, None]]


def play(scenario: Scenario, *, seed: int = 1, brokers: int = 3, until_s: float = 900, **settings: str) -> None:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    world = World(seed, brokers, named)
    process, outside = world.new_client("client")

    async def main() -> None:
        for node in world.nodes:
            node.start()
        await world.until_serving()
        await world.loop.spawn(process, scenario(Replicas(world, outside)))

    try:
        world.loop.run(main(), until_s)
        assert world.loop.failures == []
    finally:
        world.close()
