"""Clients of a simulated cluster that write in transactions, or read only what is committed."""

import asyncio
from collections.abc import Sequence
from random import Random

from headrace.client import Consumer, Fenced, Outside, Producer, TimedOut
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators, KeyType
from headrace.core.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.sim.clients import Work
from headrace.sim.history import (
    CommitAsked,
    CommittedFinal,
    CommittedRead,
    OffsetFinal,
    TxnEnded,
    TxnOffset,
    TxnSent,
)
from headrace.wire.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

RECORDS_MAX = 4
OFFSETS_VERSION = 7
"""The last that asks for one group, and the first that asks for decided offsets only."""
TIMEOUT_MS = 4_000
"""Of a transaction whose producer is gone."""
SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}

INTERNAL_PARTITIONS = {
    TRANSACTION_STATE: "transaction.state.log.num.partitions",
    CONSUMER_OFFSETS: "offsets.topic.num.partitions",
}
"""The settings that say how many partitions each has."""


def producer_of(work: Work, name: str, outside: Outside) -> Producer:
    return Producer(
        work.bootstrap,
        outside=outside,
        client_id=name,
        transactional_id=name,
        transaction_timeout_ms=TIMEOUT_MS,
        delivery_ms_max=12_000,
        request_ms_max=4_000,
        linger_ms=1,
    )


async def transact(work: Work, name: str, outside: Outside, random: Random) -> None:
    """One transaction after another. Now and then another producer takes the id, while the first one is in the middle
    of a transaction and goes on with it."""
    one = _Transactor(work, name, random)
    old: asyncio.Task[None] | None = None
    while not work.is_over:
        async with producer_of(work, name, outside) as producer:
            while not work.is_over:
                if old is not None and old.done():
                    old = None
                if not await one.transaction(producer):
                    break  # fenced, or of no use for another reason
                if random.random() < 0.1 and old is None:
                    rival = producer_of(work, name, outside)
                    old = asyncio.ensure_future(_once(one, rival))
                await asyncio.sleep(random.expovariate(8))
        await asyncio.sleep(0.1)
    if old is not None:
        await asyncio.gather(old, return_exceptions=True)


async def _once(one: "_Transactor", rival: Producer) -> None:
    """Fences whoever has the id, and leaves it."""
    async with rival:
        await one.transaction(rival)


class _Transactor:
    def __init__(self, work: Work, name: str, random: Random) -> None:
        self._work = work
        self._name = name
        self._random = random
        self._count = 0

    async def transaction(self, producer: Producer) -> bool:
        """Whether the producer can go on."""
        try:
            await producer.begin()
        except KafkaError:
            return False
        self._count += 1
        number = self._count
        txn = f"{self._name}#{number}"
        history, now_s = self._work.history, self._work.history.now_s
        ended = "aborted"
        try:
            await self._send(producer, txn)
            if self._random.random() < 0.5:
                history.add(TxnOffset(now_s(), self._name, txn, number))
                await producer.send_offsets({self._work.partitions[0]: number}, self._name)
            if self._random.random() < 0.25:
                await producer.abort()
                return True
            await producer.flush()
            ended = "unknown"
            history.add(CommitAsked(now_s(), self._name, txn))
            await self._commit(producer)
            ended = "committed"
            return True
        except Fenced:
            return False
        except KafkaError:
            return await self._give_up(producer) if ended == "aborted" else False
        finally:
            history.add(TxnEnded(now_s(), self._name, txn, ended))

    async def _send(self, producer: Producer, txn: str) -> None:
        history = self._work.history
        for number in range(self._random.randint(1, RECORDS_MAX)):
            partition = self._random.choice(self._work.partitions)
            value = f"{txn}.{number}".encode()
            history.add(TxnSent(history.now_s(), self._name, txn, partition, value))
            producer.send(partition.topic, value, partition=partition.partition)
            if self._random.random() < 0.3:
                await asyncio.sleep(self._random.expovariate(4))

    async def _commit(self, producer: Producer) -> None:
        while True:
            try:
                await producer.commit()
                return
            except TimedOut:
                if self._work.is_over:
                    raise

    async def _give_up(self, producer: Producer) -> bool:
        try:
            await producer.abort()
        except KafkaError:
            return False
        return True


async def consume_committed(work: Work, name: str, outside: Outside) -> None:
    """From the beginning, on and on."""
    history = work.history
    async with Consumer(
        work.bootstrap, outside=outside, client_id=name, isolation="read_committed", max_wait_ms=1_000
    ) as consumer:
        consumer.assign(work.partitions)
        while not work.is_over:
            try:
                records = await consumer.poll(1_000)
            except KafkaError:
                await asyncio.sleep(0.5)
                continue
            for record in records:
                partition = TopicPartition(record.topic, record.partition)
                history.add(CommittedRead(history.now_s(), name, partition, record.offset, record.value or b""))


async def prepare(work: Work, outside: Outside) -> None:
    """The first transactional producer has the internal topics made."""
    async with producer_of(work, "first", outside) as producer, producer.transaction():
        await producer.send_offsets({work.partitions[0]: 1}, "first")


async def find_offsets(work: Work, groups: Sequence[str], outside: Outside) -> None:
    """When everything has healed and ended."""
    topic, index = work.partitions[0]
    cluster = Cluster(work.bootstrap, "offsets", outside, creates_topics=False)
    coordinators = Coordinators(cluster)
    try:
        for group in groups:
            asked = OffsetFetchRequest(
                group_id=group,
                topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[index])],
                require_stable=True,
            )
            while True:
                try:
                    answer = await coordinators.ask(KeyType.GROUP, group, asked, OffsetFetchResponse, OFFSETS_VERSION)
                except KafkaError:
                    await asyncio.sleep(0.2)
                    continue
                (told,) = answer.topics[0].partitions if answer.topics else (None,)
                if told is not None and not answer.error_code and not told.error_code:
                    work.history.add(OffsetFinal(group, told.committed_offset))
                    break
                coordinators.forget_all()
                await asyncio.sleep(0.2)
    finally:
        await cluster.close()


async def read_committed_in_the_end(work: Work, outside: Outside) -> None:
    """When nobody writes any more: every transaction ends, those of dead producers by their time-out. Then all that is
    committed is read. Whoever waits for it too long finds that a transaction hangs."""
    ends = await _ends_when_all_have_ended(work.bootstrap, work.partitions, outside)
    async with Consumer(work.bootstrap, outside=outside, client_id="reader", isolation="read_committed") as consumer:
        consumer.assign(work.partitions)
        left = {partition for partition in work.partitions if ends[partition] > 0}
        while left:
            for record in await consumer.poll(200):
                partition = TopicPartition(record.topic, record.partition)
                work.history.add(CommittedFinal(partition, record.offset, record.value or b""))
            # Behind the last record there may be markers, and what was rolled back.
            left = {partition for partition in left if await consumer.position(partition) < ends[partition]}


async def _ends_when_all_have_ended(
    bootstrap: str, partitions: Sequence[TopicPartition], outside: Outside
) -> dict[TopicPartition, int]:
    async with (
        Consumer(bootstrap, outside=outside, client_id="stable", isolation="read_committed") as stable,
        Consumer(bootstrap, outside=outside, client_id="all") as everything,
    ):
        while True:
            decided, ends = await stable.end_offsets(partitions), await everything.end_offsets(partitions)
            if decided == ends:
                return ends
            await asyncio.sleep(0.2)
