"""Clients of a simulated cluster: the real ones of `headrace.client`, and what they write down in the history."""

import asyncio
from collections.abc import Sequence
from random import Random

from headrace.client import Admin, Consumer, Outside, Producer, RecordMetadata
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.sim.history import Acked, Final, GivenUp, History, Read, Sent, ToldEnd, TopicsFound

RECORDS_PER_SEND_MAX = 4


class Work:
    """What the clients of one world share."""

    def __init__(self, bootstrap: str, partitions: Sequence[TopicPartition], history: History, until_s: float) -> None:
        self.bootstrap = bootstrap
        self.partitions = partitions
        self.history = history
        self.until_s = until_s

    @property
    def is_over(self) -> bool:
        return self.history.now_s() >= self.until_s


async def produce(work: Work, name: str, outside: Outside, random: Random) -> None:
    """Until the work is over; then until each record is acknowledged or given up."""
    pace_s = random.choice((0.1, 0.2, 0.6))
    number = 0
    async with Producer(
        work.bootstrap, outside=outside, client_id=name, delivery_ms_max=12_000, request_ms_max=4_000, linger_ms=1
    ) as producer:
        while not work.is_over:
            await asyncio.sleep(random.expovariate(1 / pace_s))
            partition = random.choice(work.partitions)
            for _ in range(random.randint(1, RECORDS_PER_SEND_MAX)):
                number += 1
                send(work.history, name, producer, partition, f"{name}-{number}".encode())


def send(
    history: History, name: str, producer: Producer, partition: TopicPartition, value: bytes
) -> "asyncio.Future[RecordMetadata]":
    history.add(Sent(history.now_s(), name, partition, value))

    def settled(future: "asyncio.Future[RecordMetadata]") -> None:
        if future.cancelled() or future.exception() is not None:
            history.add(GivenUp(history.now_s(), name, partition, value))
        else:
            history.add(Acked(history.now_s(), name, partition, future.result().offset, value))

    future = producer.send(partition.topic, value, partition=partition.partition)
    future.add_done_callback(settled)
    return future


async def consume(work: Work, name: str, outside: Outside) -> None:
    """From the beginning, on and on."""
    history = work.history
    async with Consumer(work.bootstrap, outside=outside, client_id=name, max_wait_ms=2_000) as consumer:
        consumer.assign(work.partitions)
        while not work.is_over:
            try:
                records = await consumer.poll(2_000)
            except KafkaError:
                await asyncio.sleep(0.5)
                continue
            for record in records:
                partition = TopicPartition(record.topic, record.partition)
                history.add(Read(history.now_s(), name, partition, record.offset, record.value or b""))


async def ask_ends(work: Work, name: str, outside: Outside, random: Random) -> None:
    """Asks for the latest offsets, now and then."""
    history = work.history
    async with Consumer(work.bootstrap, outside=outside, client_id=name) as consumer:
        while not work.is_over:
            await asyncio.sleep(random.expovariate(2))
            partition = random.choice(work.partitions)
            asked_s = history.now_s()
            try:
                async with asyncio.timeout(10):
                    offsets = await consumer.end_offsets([partition])
            except (KafkaError, TimeoutError):
                continue
            history.add(ToldEnd(asked_s, history.now_s(), name, partition, offsets[partition]))


async def find_topics(history: History, admin: Admin) -> None:
    """When everything has healed: before, a node may be behind."""
    asked_s = history.now_s()
    topics = await admin.describe_topics(await admin.list_topics())
    history.add(TopicsFound(asked_s, frozenset(topic.topic_id for topic in topics)))


async def read_everything(work: Work, outside: Outside) -> None:
    """What is there in the end. KafkaError when it cannot be read."""
    async with Consumer(work.bootstrap, outside=outside, client_id="reader") as consumer:
        ends = await consumer.end_offsets(work.partitions)
        begins = await consumer.beginning_offsets(work.partitions)
        left = {partition for partition in work.partitions if ends[partition] > begins[partition]}
        consumer.assign(work.partitions)
        while left:
            for record in await consumer.poll(1_000):
                partition = TopicPartition(record.topic, record.partition)
                work.history.add(Final(partition, record.offset, record.value or b""))
                if record.offset >= ends[partition] - 1:
                    left.discard(partition)
