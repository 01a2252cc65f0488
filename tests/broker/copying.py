"""A node with a tier in memory, whose store stops, fails and loses answers when the test says so."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from headrace.broker.partitions import Hosted
from headrace.broker.tier import TierLog
from headrace.core.tier_pointer import Pointer
from headrace.core.tier_rows import COPY_FINISHED, Manifest, SegmentRow
from headrace.storage.memory_files import MemoryFiles
from headrace.tier.layout import SegmentName, parse_key
from headrace.tier.manifest import decode
from headrace.tier.marking import MARK_PREFIX
from headrace.tier.memory import MemoryBucket, MemoryStore
from headrace.tier.store import Source
from tests.broker.support import TOPIC, Client, Served, World, records_of, until

OFTEN = {
    "remote.log.storage.system.enable": "true",
    "remote.storage.url": "/objects",
    "remote.log.manager.task.interval.ms": "2",
    "log.retention.check.interval.ms": "2",
    "log.flush.scheduler.interval.ms": "2",
}
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "300",
    "local.retention.bytes": "0",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}


class Stopping(MemoryStore):
    """Hangs for ever at one of its calls: before it does anything, or when it is done."""

    def __init__(self, bucket: MemoryBucket, files: MemoryFiles) -> None:
        super().__init__(bucket, files)
        self.calls = 0
        self.stop_before = self.stop_after = -1
        self.has_stopped = asyncio.Event()

    async def _hang(self) -> None:
        self.has_stopped.set()
        await asyncio.get_running_loop().create_future()

    async def _count(self) -> int:
        self.calls += 1
        number = self.calls
        if number == self.stop_before or self.has_stopped.is_set():
            await self._hang()
        return number

    async def _counted(self, number: int) -> None:
        if number == self.stop_after:
            await self._hang()

    async def put(self, key: str, parts: Sequence[Source]) -> None:
        number = await self._count()
        await super().put(key, parts)
        await self._counted(number)

    async def delete(self, key: str) -> None:
        number = await self._count()
        await super().delete(key)
        await self._counted(number)

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        number = await self._count()
        async for entry in super().list(prefix):
            yield entry
        await self._counted(number)


class TieredWorld(World):
    """`bucket` outlives nodes; each has a store of its own, which is the newest of `stores`."""

    bucket: MemoryBucket
    stores: list[Stopping]

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        super().__init__(settings={**OFTEN, **(settings or {})})
        self.bucket = MemoryBucket()
        self.stores = []
        self.open_object_store = self._open

    def _open(self, _: str) -> Stopping:
        self.stores.append(Stopping(self.bucket, self.memory))
        return self.stores[-1]

    def __enter__(self) -> "TieredWorld":
        return self

    @property
    def store(self) -> Stopping:
        return self.stores[-1]

    # What is there, seen from outside.

    def segments(self) -> dict[str, str]:
        """Names of objects by the ids of segments."""
        found = {}
        for key in self.bucket.objects:
            name = parse_key(key)
            if name is not None and isinstance(name.object, SegmentName):
                found[name.object.id] = key
        return found

    def strays(self, pointer: Pointer | None) -> list[str]:
        """Objects that nothing in force names."""
        named = set() if pointer is None else {pointer.manifest}
        rows = {} if pointer is None else {row.id for row in self.manifest(pointer).rows}
        named |= {key for row_id, key in self.segments().items() if row_id in rows}
        return sorted(self.objects().keys() - named)

    def objects(self) -> dict[str, bytes]:
        """All but the mark of the store."""
        return {key: content for key, content in self.bucket.objects.items() if not key.startswith(MARK_PREFIX)}

    def manifest(self, pointer: Pointer) -> Manifest:
        return decode(self.bucket.objects[pointer.manifest])


@asynccontextmanager
async def tiering(
    settings: dict[str, str] | None = None, topic: dict[str, str] | None = None
) -> AsyncIterator[tuple[TieredWorld, Served, Client]]:
    with TieredWorld(settings) as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings={**TIERED, **(topic or {})})
            yield world, served, client


def partition_of(served: Served, topic: str = TOPIC) -> Hosted:
    assert served.node.broker is not None
    partition = served.node.broker.partitions.find_by_name(topic, 0)
    assert isinstance(partition, Hosted)
    return partition


def pointer_of(served: Served) -> Pointer | None:
    broker = served.node.broker
    assert broker is not None
    found = list(broker.image.tier.values())
    return found[0].pointer if found else None


def tier_log_of(served: Served) -> TierLog:
    assert served.node.broker is not None and served.node.broker.tier is not None
    found = served.node.broker.tier.log_of(partition_of(served))
    assert found is not None
    return found


def rows_of(served: Served) -> list[SegmentRow]:
    """Finished ones, by offset."""
    manifest = tier_log_of(served).manifest
    rows = [] if manifest is None else [row for row in manifest.rows if row.state is COPY_FINISHED]
    return sorted(rows, key=lambda row: row.base_offset)


async def fill(client: Client, count: int = 12, topic: str = TOPIC) -> None:
    """So many batches, three of which make a segment."""
    for number in range(count):
        answer = await client.produce(records_of([b"%d" % number + bytes(20)]), topic=topic)
        assert answer.error_code == 0


async def copied(served: Served, up_to: int | None = None) -> None:
    """Until all complete segments are in the tier, or all below `up_to` are."""
    partition = partition_of(served)

    def is_done() -> bool:
        active = partition.log.segments.active
        assert active is not None
        wanted = active.base_offset if up_to is None else up_to
        highest = tier_log_of(served).highest_remote_offset
        return highest is not None and highest + 1 >= wanted

    await until(is_done)
