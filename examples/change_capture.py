"""A change-capture reader with a standby.

The changes of a database, here the lines of a file, are copied to a topic: each once, in order. Two processes could do
it; the one that owns the partition does, the other waits. It takes over within milliseconds when the first one dies,
and finds in the topic how far that one came: up to its fence, nothing is missing, and nothing more will arrive.

    python examples/change_capture.py                              tells a story, with a broker of its own
    python examples/change_capture.py 127.0.0.1:9092 anna changes  copies the file `changes`; start two, and kill one
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace import own
from headrace.client import Admin, Consumer, NewTopic, RecordMetadata
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.testing import Cluster

CHANGES = TopicPartition("changes", 0)
LOOK_S = 0.05
TOGETHER = 100


async def capture(bootstrap: str, name: str, source: Path) -> None:
    """Waits its turn, and copies changes until the partition is lost."""
    async with own.claim(bootstrap, "capture", CHANGES, wait=True, exclusive="produce", client_id=name) as ownership:
        print(f"{name} copies, at generation {ownership.generation}", flush=True)
        copied = 0
        async for record in ownership.backlog(CHANGES, start=max(0, ownership.fence_offset - 1)):
            copied = int(record.key or b"") + 1
        async with ownership.producer() as producer:
            sent: list[asyncio.Future[RecordMetadata]] = []
            async for number, change in changes_from(source, copied):
                sent.append(producer.send(CHANGES.topic, change, key=b"%d" % number, partition=CHANGES.partition))
                if len(sent) == TOGETHER:
                    await asyncio.gather(*sent)
                    sent.clear()


async def changes_from(source: Path, number: int) -> AsyncIterator[tuple[int, bytes]]:
    """For ever: what a database would tell of its changes, from that one on."""
    with source.open("rb") as lines:
        for _ in range(number):
            lines.readline()
        while True:
            if line := lines.readline():
                yield number, line.rstrip(b"\n")
                number += 1
            else:
                await asyncio.sleep(LOOK_S)


async def copies(bootstrap: str, count: int) -> list[bytes]:
    """The first records of the topic, as anybody can read them."""
    found: list[bytes] = []
    async with Consumer(bootstrap) as consumer:
        consumer.assign([CHANGES])
        while len(found) < count:
            found += [record.value or b"" for record in await consumer.poll(1_000)]
    return found


async def create_topic(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        if CHANGES.topic not in await admin.list_topics():
            await admin.create_topics([NewTopic(CHANGES.topic, partitions=1)])


async def be_a_reader(bootstrap: str, name: str, source: Path) -> None:
    """For ever: copies when it is its turn."""
    while True:
        try:
            await capture(bootstrap, name, source)
        except KafkaError as error:
            print(f"{name} has lost it: {error}", flush=True)


async def story(bootstrap: str) -> list[bytes]:
    """Anna copies, Ben waits; Anna dies in the middle of it, Ben goes on."""
    await create_topic(bootstrap)
    with TemporaryDirectory() as directory:
        source = Path(directory) / "changes"
        source.write_bytes(b"".join(b"row %d\n" % number for number in range(1_000)))
        anna = asyncio.create_task(be_a_reader(bootstrap, "anna", source))
        await copies(bootstrap, 200)
        ben = asyncio.create_task(be_a_reader(bootstrap, "ben", source))
        anna.cancel()
        found = await copies(bootstrap, 1_000)
        ben.cancel()
        await asyncio.gather(anna, ben, return_exceptions=True)
    print(f"{len(found)} changes, {len(set(found))} of them different")
    assert found == [b"row %d" % number for number in range(1_000)]
    return found


async def main(bootstrap: str = "", name: str = "", source: str = "") -> None:
    if name:
        await create_topic(bootstrap)
        await be_a_reader(bootstrap, name, Path(source))
    elif bootstrap:
        await story(bootstrap)
    else:
        async with Cluster() as cluster:
            await story(cluster.bootstrap)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
