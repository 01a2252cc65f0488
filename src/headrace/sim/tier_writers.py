"""Clients of a simulated cluster that give its tier work: what they write is lost, deleted, or goes with its topic."""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from headrace.client import Admin, NewTopic, Outside, Producer, Resource, ResourceType
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.sim.boss import create_topic, delete_topic, try_for_a_while
from headrace.sim.clients import Work
from headrace.sim.tier_history import DeleteAsked, DeleteDone
from headrace.sim.tier_readers import LogStart

SCRIBBLE_S = 0.15
TIMEOUT_MS = 3_000
BATCHES_MAX = 8
CHANGES = (
    {"remote.log.copy.disable": "true"},
    {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"},
    {"local.retention.bytes": "-2"},
    {"retention.bytes": "1"},
)


async def scribble(
    work: Work, name: str, outside: Outside, random: Random, partitions: Sequence[TopicPartition]
) -> None:
    """What becomes of these records is nobody's business, as long as it is the same for all who read them."""
    number = 0
    async with Producer(
        work.bootstrap, outside=outside, client_id=name, delivery_ms_max=4_000, request_ms_max=2_000, linger_ms=1
    ) as producer:
        while not work.is_over:
            await asyncio.sleep(random.expovariate(1 / SCRIBBLE_S))
            number += 1
            topic, partition = random.choice(partitions)
            future = producer.send(topic, f"{name}-{number}".encode(), partition=partition)
            future.add_done_callback(lambda done: done.cancelled() or done.exception())


async def delete_oldest(
    work: Work,
    name: str,
    outside: Outside,
    random: Random,
    partitions: Sequence[TopicPartition],
    log_start: LogStart,
) -> None:
    history = work.history
    async with Admin(work.bootstrap, outside=outside, client_id=name, timeout_ms=TIMEOUT_MS) as admin:
        while not work.is_over:
            await asyncio.sleep(random.expovariate(1 / 1.5))
            partition = random.choice(partitions)
            offset = log_start(partition) + random.randint(1, 15)
            history.add(DeleteAsked(history.now_s(), partition, offset))
            try:
                async with asyncio.timeout(2 * TIMEOUT_MS / 1000):
                    begins = await admin.delete_records({partition: offset})
            except (KafkaError, TimeoutError):
                continue
            history.add(DeleteDone(history.now_s(), partition, begins[partition]))


async def come_and_go(
    work: Work, name: str, outside: Outside, random: Random, configs: Mapping[str, str], copies: int
) -> None:
    """Tiered topics that are deleted, or are tiered no more, when a part of them has been copied."""
    number = 0
    async with Admin(work.bootstrap, outside=outside, client_id=name, timeout_ms=TIMEOUT_MS) as admin:
        while not work.is_over:
            await asyncio.sleep(random.expovariate(1.0))
            number += 1
            topic = f"y{number}"
            new = NewTopic(topic, 1, copies, configs=dict(configs))
            topic_id = await create_topic(work.history, admin, new)
            if topic_id is not None:
                await _fill(work, name, outside, random, topic)
                await asyncio.sleep(random.choice((0.0, 0.3, 1.0)))
                if random.random() < 0.4:
                    wish = admin.alter_configs(Resource(ResourceType.TOPIC, topic), set=random.choice(CHANGES))
                    await try_for_a_while(wish)
                    await asyncio.sleep(random.choice((0.0, 0.5)))
                if random.random() < 0.8:
                    await delete_topic(work.history, admin, topic, topic_id)


async def _fill(work: Work, name: str, outside: Outside, random: Random, topic: str) -> None:
    async with Producer(
        work.bootstrap, outside=outside, client_id=f"{name} {topic}", delivery_ms_max=2_000, linger_ms=0
    ) as producer:
        for batch in range(random.randint(1, BATCHES_MAX)):
            try:
                await producer.send(topic, f"{topic} {batch}".encode() * 9, partition=0)
            except KafkaError:
                return
