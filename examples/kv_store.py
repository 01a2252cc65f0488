"""A replicated key-value store whose commit log is one partition.

Every replica applies the log. One of them, the master, also writes it: it owns the partition. When the log falls silent
another replica takes it over, and reads it up to its fence: whatever the old master got in before is there, and nothing
of it can come after. A master that was only paused comes back, is told so, and is a replica again.

    python examples/kv_store.py                      tells a story, with a broker of its own
    python examples/kv_store.py 127.0.0.1:9092 anna  is a replica named anna; start several, and pause the master
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace import own
from headrace.client import Admin, Consumer, ConsumerRecord, NewTopic
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.testing import Cluster

LOG = TopicPartition("kv-log", 0)
SILENCE_MS = 2_000


class Replica:
    """One copy of the data."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.data: dict[str, str] = {}
        self.generation = 0  # of the last master that this replica knows of
        self.next_offset = 0

    def apply(self, record: ConsumerRecord) -> None:
        change = json.loads(record.value or b"")
        self.data[change["key"]] = change["value"]
        self.generation = max(self.generation, change["generation"])
        self.next_offset = record.offset + 1

    async def follow(self) -> None:
        """Until the log is silent: the master is gone, or seems to be."""
        async with Consumer(self.bootstrap) as consumer:
            consumer.assign([LOG])
            consumer.seek(LOG, self.next_offset)
            while records := await consumer.poll(SILENCE_MS):
                for record in records:
                    self.apply(record)

    @asynccontextmanager
    async def mastership(self) -> AsyncIterator["Master"]:
        """Takes over from the last known master. AlreadyOwned: there is a newer one."""
        try:
            async with own.claim(
                self.bootstrap, "kv", LOG, self.generation or None, exclusive="produce", client_id=self.name
            ) as ownership:
                async for record in ownership.backlog(LOG, self.next_offset):
                    self.apply(record)
                async with ownership.producer() as producer:
                    yield Master(self, ownership.generation, producer)
        except own.AlreadyOwned as refused:
            self.generation = refused.generation
            raise


class Master:
    def __init__(self, replica: Replica, generation: int, producer: own.OwnedProducer) -> None:
        self.replica = replica
        self.generation = generation
        self.producer = producer

    async def put(self, key: str, value: str) -> None:
        """Returns when it is in the log. OwnershipLost, or another KafkaError: others may have written since."""
        change = {"key": key, "value": value, "generation": self.generation, "by": self.replica.name}
        await self.producer.send(LOG.topic, json.dumps(change).encode(), partition=LOG.partition)
        self.replica.data[key] = value


async def create_log(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        if LOG.topic not in await admin.list_topics():
            await admin.create_topics([NewTopic(LOG.topic, partitions=1)])


async def be_a_replica(bootstrap: str, name: str) -> None:
    """For ever: follows, and leads when nobody does."""
    replica = Replica(bootstrap, name)
    while True:
        await replica.follow()
        try:
            async with replica.mastership() as master:
                print(f"{name} is the master, at generation {master.generation}", flush=True)
                for number in range(sys.maxsize):
                    await master.put(f"{name}-{number % 10}", str(number))
                    print(f"acknowledged {master.generation} {number}", flush=True)
                    await asyncio.sleep(0.1)
        except KafkaError as error:
            print(f"{name} is a replica: {error}", flush=True)


async def story(bootstrap: str) -> dict[str, str]:
    """Anna is the master and goes silent; Ben takes over; Anna comes back."""
    await create_log(bootstrap)
    anna, ben = Replica(bootstrap, "anna"), Replica(bootstrap, "ben")
    async with anna.mastership() as old:
        await old.put("colour", "red")
        await old.put("shape", "round")
        await ben.follow()
        print("anna has been silent for a while; ben knows", ben.data)
        async with ben.mastership() as new:
            await new.put("colour", "blue")
            try:
                await old.put("colour", "green")
            except own.OwnershipLost as error:
                print("anna is not the master any more:", error)
            await new.put("size", "small")
    await anna.follow()
    print("both know:", anna.data)
    assert anna.data == ben.data
    return anna.data


async def main(bootstrap: str = "", name: str = "") -> None:
    if name:
        await create_log(bootstrap)
        await be_a_replica(bootstrap, name)
    elif bootstrap:
        await story(bootstrap)
    else:
        async with Cluster() as cluster:
            await story(cluster.bootstrap)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
