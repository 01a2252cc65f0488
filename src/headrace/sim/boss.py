"""A client that administers a simulated cluster: topics come and go, leaders are elected, settings change."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from headrace.client import Admin, ElectionType, NewTopic, Outside, Resource, ResourceType
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.sim.clients import Work
from headrace.sim.history import History, TopicChanged

PACE_S = 1.5
ANSWER_S_MAX = 6.0
TIMEOUT_MS = 3_000


async def command(work: Work, name: str, outside: Outside, random: Random) -> None:
    """Creates topics and deletes them again, each name once, and asks for something else in between."""
    number = 0
    async with Admin(work.bootstrap, outside=outside, client_id=name, timeout_ms=TIMEOUT_MS) as admin:
        while not work.is_over:
            await asyncio.sleep(random.expovariate(1 / PACE_S))
            number += 1
            topic = f"x{number}"
            if await _change(work.history, topic, True, admin.create_topics([NewTopic(topic, 1, 1)])):
                await asyncio.sleep(random.choice((0.0, 0.0, 0.3)))
                await _try(random.choice(WISHES)(admin, topic, random))
                await _change(work.history, topic, False, admin.delete_topics([topic]))


async def _change(history: History, topic: str, created: bool, change: Awaitable[object]) -> bool:
    is_certain = await _try(change)
    history.add(TopicChanged(history.now_s(), topic, created, is_certain))
    return is_certain


async def _try(wish: Awaitable[object]) -> bool:
    """Whether it certainly happened."""
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            await wish
    except (KafkaError, TimeoutError):
        return False
    return True


async def _configure(admin: Admin, topic: str, random: Random) -> None:
    resource = Resource(ResourceType.TOPIC, topic)
    await admin.alter_configs(resource, set={"retention.ms": str(random.randrange(1, 1 << 40))})
    await admin.describe_configs([resource])
    await admin.alter_configs(resource, delete=["retention.ms"])


async def _grow(admin: Admin, topic: str, random: Random) -> None:
    await admin.create_partitions({topic: random.randint(2, 4)})
    await admin.describe_topics([topic])


async def _look_around(admin: Admin, topic: str, random: Random) -> None:
    for broker in (await admin.describe_cluster()).brokers:
        await admin.inspect(random.choice(("failed", "sessions", "guard", "replicas")), broker.node_id)
    await admin.describe_log_dirs()
    await admin.delete_records({TopicPartition(topic, 0): -1})


async def _elect(admin: Admin, _topic: str, _random: Random) -> None:
    await admin.elect_leaders(ElectionType.PREFERRED)


WISHES: tuple[Callable[[Admin, str, Random], Awaitable[None]], ...] = (_configure, _grow, _look_around, _elect, _elect)
