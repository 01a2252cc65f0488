"""A client that administers a simulated cluster: topics come and go, leaders are elected, settings change."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

from headrace.client import Admin, CreatedTopic, ElectionType, NewTopic, Outside, Resource, ResourceType
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.sim.clients import Work
from headrace.sim.history import History, TopicChanged
from headrace.sim.world import METRICS_PORT

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
            topic_id = await create_topic(work.history, admin, NewTopic(topic, 1, 1))
            if topic_id is not None:
                await asyncio.sleep(random.choice((0.0, 0.0, 0.3)))
                await try_for_a_while(random.choice(WISHES)(admin, topic, random))
                await try_for_a_while(_scrape(outside, random.choice(work.bootstrap.split(","))))
                await delete_topic(work.history, admin, topic, topic_id)


async def create_topic(history: History, admin: Admin, new: NewTopic) -> bytes | None:
    """Its id, if it certainly was created."""
    created: list[CreatedTopic] = []

    async def create() -> None:
        created.extend(await admin.create_topics([new]))

    if not await try_for_a_while(create()):
        return None
    history.add(TopicChanged(history.now_s(), new.name, created[0].topic_id, True, True))
    return created[0].topic_id


async def delete_topic(history: History, admin: Admin, topic: str, topic_id: bytes) -> None:
    is_certain = await try_for_a_while(admin.delete_topics([topic]))
    history.add(TopicChanged(history.now_s(), topic, topic_id, False, is_certain))


async def try_for_a_while(wish: Awaitable[object]) -> bool:
    """Whether it certainly happened."""
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            await wish
    except (KafkaError, TimeoutError):
        return False
    return True


class _Page(asyncio.Protocol):
    """What an HTTP server sends until it closes the connection."""

    def __init__(self, request: bytes) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def connection_lost(self, _exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def _scrape(outside: Outside, address: str) -> None:
    """The metrics of a node, and whether it is ready, as monitoring asks for them."""
    host = address.rpartition(":")[0]
    for path in ("/metrics", "/readyz"):
        request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        try:
            page = await outside.network.connect(host, METRICS_PORT, partial(_Page, request))
        except OSError:
            return
        await page.ended


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
