"""Readers that are assigned to partitions: at no instant are two of them served.

Somebody, here the story, says who reads which partition, and with which generation: that of the reader before. Whoever
reads owns the partition of the work and the partition of its results, so that another reader of the same work is
turned away by the broker, and its results too. The last result tells where the next reader begins.

    python examples/assigned_readers.py                         tells a story, with a broker of its own
    python examples/assigned_readers.py 127.0.0.1:9092 anna 0   reads partition 0, if nobody does
    python examples/assigned_readers.py 127.0.0.1:9092 ben 0 1  takes it over from generation 1
"""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace import own
from headrace.client import Admin, Consumer, NewTopic, Producer
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.testing import Cluster

WORK, RESULTS = "work", "results"
PARTITIONS = 2
GROUP = "readers"


def say(text: str) -> None:
    print(text, flush=True)


@dataclass
class Reader:
    """Somebody who may be assigned to a partition, and what they know of its generations."""

    name: str
    partition: int
    generation: int | Mapping[str, int] | None = None
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it was granted."""

    async def be_assigned(self, bootstrap: str) -> None:
        """Reads until another reader is assigned: on after a change of leaders, if nobody else has been meanwhile."""
        resources = [TopicPartition(WORK, self.partition), TopicPartition(RESULTS, self.partition)]
        while True:
            try:
                async with own.claim(bootstrap, GROUP, resources, self.generation, client_id=self.name) as ownership:
                    self.generation = dict(ownership.generations)
                    say(f"{self.name} reads {resources[0]} at generation {self.generation[str(resources[0])]}")
                    self.reads.set()
                    await self._work_through(ownership, *resources)
            except own.AlreadyOwned as error:
                say(f"{self.name} is not assigned any more: {error}")
                return
            except KafkaError as error:
                say(f"{self.name} has lost it: {error}")

    async def _work_through(self, ownership: own.Ownership, work: TopicPartition, results: TopicPartition) -> None:
        begin = 0
        async for record in ownership.backlog(results, max(0, ownership.fence_offsets[str(results)] - 1)):
            begin = int((record.value or b"").split()[0]) + 1
        async with ownership.consumer(max_wait_ms=100) as consumer, ownership.producer(linger_ms=0) as producer:
            consumer.assign([work])
            consumer.seek(work, begin)
            while True:
                for record in await consumer.poll(1_000):
                    result = b"%d by %s" % (record.offset, self.name.encode())
                    await producer.send(RESULTS, result, partition=self.partition)


async def create_topics(bootstrap: str) -> bool:
    """Only their owners in the group read the work, and write results. False: they are there already."""
    async with Admin(bootstrap) as admin:
        if WORK in await admin.list_topics():
            return False
        await admin.create_topics(
            [
                NewTopic(WORK, partitions=PARTITIONS, configs={"own.fetch.group": GROUP}),
                NewTopic(RESULTS, partitions=PARTITIONS, configs={"own.produce.group": GROUP}),
            ]
        )
        return True


async def add_work(bootstrap: str, count: int) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(WORK, b"%d" % number, partition=number % PARTITIONS)


async def results_of(bootstrap: str, partition: int, count: int) -> list[str]:
    found: list[str] = []
    async with Consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(RESULTS, partition)])
        while len(found) < count:
            found += [(record.value or b"").decode() for record in await consumer.poll(1_000)]
    return found


async def move(bootstrap: str, before: Reader, name: str) -> asyncio.Task[None]:
    """Another one reads the partition. Who read it before may have had to claim it again meanwhile: then once more."""
    after = Reader(name, before.partition)
    while True:
        after.generation = before.generation
        task = asyncio.create_task(after.be_assigned(bootstrap))
        granted = asyncio.create_task(after.reads.wait())
        await asyncio.wait((task, granted), return_when=asyncio.FIRST_COMPLETED)
        if granted.done():
            return task
        granted.cancel()


async def story(bootstrap: str) -> list[list[str]]:
    """Anna reads both partitions; one of them is moved to Ben while she works on."""
    if not await create_topics(bootstrap):
        sys.exit(f"The story begins with new topics: delete {WORK} and {RESULTS} first, or tell it without an address.")
    anna = [Reader("anna", partition) for partition in range(PARTITIONS)]
    tasks = [asyncio.create_task(reader.be_assigned(bootstrap)) for reader in anna]
    await add_work(bootstrap, 400)
    await results_of(bootstrap, 1, 50)
    tasks.append(await move(bootstrap, anna[1], "ben"))
    await add_work(bootstrap, 400)
    found = [await results_of(bootstrap, partition, 400) for partition in range(PARTITIONS)]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    say(f"of partition 1, anna did {sum('anna' in result for result in found[1])}")
    for results in found:
        assert [int(result.split()[0]) for result in results] == list(range(400))
    return found


async def main(bootstrap: str = "", name: str = "", partition: str = "0", generation: str = "") -> None:
    if name:
        await create_topics(bootstrap)
        await Reader(name, int(partition), int(generation) if generation else None).be_assigned(bootstrap)
    elif bootstrap:
        await story(bootstrap)
    else:
        async with Cluster() as cluster:
            await story(cluster.bootstrap)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
