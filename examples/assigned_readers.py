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


async def read(bootstrap: str, name: str, partition: int, generation: int | None) -> None:
    """Works through one partition until another reader is assigned to it. AlreadyOwned: one is already."""
    work, results = TopicPartition(WORK, partition), TopicPartition(RESULTS, partition)
    async with own.claim(bootstrap, GROUP, [work, results], generation, client_id=name) as ownership:
        say(f"{name} reads {work} at generation {ownership.generations[str(work)]}")
        begin = 0
        async for record in ownership.backlog(results, max(0, ownership.fence_offsets[str(results)] - 1)):
            begin = int((record.value or b"").split()[0]) + 1
        async with ownership.consumer(max_wait_ms=100) as consumer, ownership.producer(linger_ms=0) as producer:
            consumer.assign([work])
            consumer.seek(work, begin)
            while True:
                for record in await consumer.poll(1_000):
                    result = b"%d by %s" % (record.offset, name.encode())
                    await producer.send(RESULTS, result, partition=partition)


async def be_assigned(bootstrap: str, name: str, partition: int, generation: int | None) -> None:
    """Reads on after a change of leaders, if nobody else has been assigned meanwhile."""
    while True:
        try:
            await read(bootstrap, name, partition, generation)
        except own.AlreadyOwned as error:
            say(f"{name} is not assigned any more: {error}")
            return
        except KafkaError as error:
            say(f"{name} has lost it: {error}")
            generation = None


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


async def story(bootstrap: str) -> list[list[str]]:
    """Anna reads both partitions; one of them is moved to Ben while she works on."""
    if not await create_topics(bootstrap):
        sys.exit(f"The story begins with new topics: delete {WORK} and {RESULTS} first, or tell it without an address.")
    anna = [asyncio.create_task(read(bootstrap, "anna", partition, None)) for partition in range(PARTITIONS)]
    await add_work(bootstrap, 400)
    await results_of(bootstrap, 1, 50)
    ben = asyncio.create_task(read(bootstrap, "ben", 1, 1))
    await add_work(bootstrap, 400)
    found = [await results_of(bootstrap, partition, 400) for partition in range(PARTITIONS)]
    for task in (*anna, ben):
        task.cancel()
    ends = await asyncio.gather(*anna, ben, return_exceptions=True)
    say(f"of partition 1, anna did {sum('anna' in result for result in found[1])}; then: {ends[1]}")
    for results in found:
        assert [int(result.split()[0]) for result in results] == list(range(400))
    return found


async def main(bootstrap: str = "", name: str = "", partition: str = "0", generation: str = "") -> None:
    if name:
        await create_topics(bootstrap)
        await be_assigned(bootstrap, name, int(partition), int(generation) if generation else None)
    elif bootstrap:
        await story(bootstrap)
    else:
        async with Cluster() as cluster:
            await story(cluster.bootstrap)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
