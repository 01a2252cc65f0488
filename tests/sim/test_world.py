"""Real nodes and real clients in a simulated world."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.client import Admin, Consumer, NewTopic, Outside, Producer
from headrace.model import TopicPartition
from headrace.sim.world import World

Scenario = Callable[[World, Outside], Coroutine[Any, Any, None]]
T0 = TopicPartition("t", 0)


def play(scenario: Scenario, seed: int = 1, until_s: float = 300) -> World:
    """As a client of a world with one node that serves."""
    world = World(seed)
    process, outside = world.new_client("client")

    async def main() -> None:
        world.nodes[0].start()
        await world.until_serving()
        await world.loop.spawn(process, scenario(world, outside))

    try:
        world.loop.run(main(), until_s)
        assert world.loop.failures == []
    finally:
        world.close()
    return world


async def create(world: World, outside: Outside, **configs: str) -> None:
    async with Admin(world.bootstrap, outside=outside) as admin:
        await admin.create_topics([NewTopic("t", 1, configs=configs)])


async def produce(world: World, outside: Outside, values: list[bytes]) -> None:
    async with Producer(world.bootstrap, outside=outside) as producer:
        await asyncio.gather(*[producer.send("t", value, partition=0) for value in values])


async def consume(world: World, outside: Outside, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    async with Consumer(world.bootstrap, outside=outside) as consumer:
        consumer.assign([T0])
        while len(values) < count:
            values += [record.value for record in await consumer.poll(1000)]
    return values


def start_if_dead(world: World) -> None:
    if not world.nodes[0].is_alive:
        world.nodes[0].start()


async def round_trip(world: World, outside: Outside) -> None:
    values = [b"%d" % number for number in range(100)]
    await create(world, outside)
    await produce(world, outside, values)
    assert await consume(world, outside, 100) == values


def test_a_node_and_its_clients_run_on_virtual_time() -> None:
    play(round_trip)


def test_a_killed_node_has_everything_when_it_comes_back() -> None:
    async def scenario(world: World, outside: Outside) -> None:
        await create(world, outside)
        await produce(world, outside, [b"1", b"2"])
        world.nodes[0].kill()
        await asyncio.sleep(3)
        world.nodes[0].start()
        await world.until_serving()
        await produce(world, outside, [b"3"])
        assert await consume(world, outside, 3) == [b"1", b"2", b"3"]

    play(scenario)


def test_power_loss_takes_what_was_not_synced_and_leaves_what_was() -> None:
    async def scenario(world: World, outside: Outside) -> None:
        await create(world, outside, **{"flush.messages": "1"})
        await produce(world, outside, [b"1", b"2"])
        boot_id = world.nodes[0].machine.clock.boot_id()
        world.nodes[0].lose_power()
        await asyncio.sleep(3)
        assert world.nodes[0].machine.clock.boot_id() != boot_id
        world.nodes[0].power_on()
        world.nodes[0].start()
        await world.until_serving()
        await produce(world, outside, [b"3"])
        assert await consume(world, outside, 3) == [b"1", b"2", b"3"]

    play(scenario)


def test_a_paused_node_answers_later() -> None:
    async def scenario(world: World, outside: Outside) -> None:
        await create(world, outside)
        world.nodes[0].pause()
        began_s = world.loop.time()
        world.loop.call_later(7, world.nodes[0].resume)
        await produce(world, outside, [b"1"])
        assert world.loop.time() - began_s > 7

    play(scenario)


@pytest.mark.parametrize("changes", range(0, 20, 3))
def test_a_node_that_dies_in_a_write_comes_back(changes: int) -> None:
    async def scenario(world: World, outside: Outside) -> None:
        await create(world, outside)
        world.nodes[0].kill_in_write(changes, 10)
        world.loop.call_later(20, start_if_dead, world)
        await produce(world, outside, [b"1"])
        start_if_dead(world)
        await world.until_serving()
        assert await consume(world, outside, 1) == [b"1"]

    play(scenario)


def test_a_clean_stop_and_a_start() -> None:
    async def scenario(world: World, outside: Outside) -> None:
        await create(world, outside)
        await produce(world, outside, [b"1"])
        await world.nodes[0].stop()
        assert not world.nodes[0].is_alive
        world.nodes[0].start()
        await world.until_serving()
        assert await consume(world, outside, 1) == [b"1"]

    play(scenario)


def test_equal_seeds_are_equal_worlds() -> None:
    assert play(round_trip, 5).loop.digest == play(round_trip, 5).loop.digest
    assert play(round_trip, 5).loop.digest != play(round_trip, 6).loop.digest


def idle(brokers: int) -> int:
    world = World(1, brokers)

    async def main() -> None:
        for node in world.nodes:
            node.start()
        await world.until_serving()
        await asyncio.sleep(20)

    try:
        world.loop.run(main(), 100)
    finally:
        world.close()
    return world.loop.digest


def test_three_nodes_that_share_a_store_go_the_same_way_twice() -> None:
    assert idle(3) == idle(3)
