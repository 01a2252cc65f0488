"""A node and the directory that is its store: one that is not mounted, is another, cannot be made, or is full."""

import asyncio
import errno

import pytest

from headrace.broker import tier
from headrace.storage.memory_files import MemoryFiles
from headrace.tier import directory_reserve
from headrace.tier.directory import INCOMING
from headrace.tier.marking import MARK_PREFIX
from headrace.tier.memory import MemoryStore
from headrace.tier.store import StoreUnavailable
from tests.broker.copying import TIERED, TieredWorld, copied, fill, partition_of, tier_log_of
from tests.broker.support import EARLIEST, TOPIC, until
from tests.broker.test_tier_expiry import alter
from tests.broker.test_tier_inspection import inspect


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier, "RETRY_S", 0.01)
    monkeypatch.setattr(tier, "RETRY_S_MAX", 0.01)


def directory_world() -> TieredWorld:
    world = TieredWorld()
    world.open_object_store = None  # so it is a directory
    return world


@pytest.mark.parametrize("other", ["nothing", "bare", "begun"])
async def test_a_node_that_starts_without_the_disk_of_its_store_waits_for_it(other: str) -> None:
    with directory_world() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings=TIERED)
            await fill(client, 10)
            await copied(served)
            await until(lambda: partition_of(served).local_log_start_offset > 0)
        world.memory.rename("/objects", "/away")
        if other != "nothing":
            world.memory.make_directory("/objects" if other == "bare" else f"/objects/{INCOMING}")
        async with world.started() as served:
            client = await served.client()
            await fill(client, 10)
            (told,) = await inspect(client)
            assert "its disk is not mounted" in told["failure"]
            local, end = partition_of(served).local_log_start_offset, partition_of(served).log_end_offset
            await asyncio.sleep(0.05)
            assert partition_of(served).local_log_start_offset == local < end - 10
            if other == "nothing":
                assert not world.memory.exists("/objects")
            else:
                assert world.memory.names("/objects") == ([] if other == "bare" else [INCOMING])
                world.memory.remove_tree("/objects")
            world.memory.rename("/away", "/objects")
            await copied(served)
            (told,) = await inspect(client)
            assert told["failure"] is None and tier_log_of(served).highest_remote_offset == told["highest_remote"]
            assert await client.offset(EARLIEST) == 0


async def test_a_node_serves_though_the_directory_of_its_store_cannot_be_made_yet() -> None:
    with directory_world() as world:
        world.memory.fail("make_directory", "/objects*", errno.EROFS, times=1_000_000)
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings=TIERED)
            await fill(client, 10)
            (told,) = await inspect(client)
            assert "Read-only" in told["failure"]
            world.memory.faults.clear()
            await copied(served)


async def test_the_objects_of_a_topic_are_not_forgotten_while_their_store_is_away() -> None:
    with directory_world() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings=TIERED)
            await fill(client, 10)
            await copied(served)
            broker = served.node.broker
            assert broker is not None and broker.tier is not None
            world.memory.rename("/objects", "/away")
            world.memory.make_directory("/objects")
            await client.delete_topic(TOPIC)
            await asyncio.sleep(0.3)  # many rounds
            assert broker.image.tier_topics
            world.memory.remove_tree("/objects")
            world.memory.rename("/away", "/objects")
            await until(lambda: not broker.image.tier_topics)
            left = [key async for key, _ in broker.tier.store.list("")]
            assert [key for key in left if not key.startswith(MARK_PREFIX)] == []


class SmallDisk(MemoryFiles):
    """So much fits below /objects."""

    room_bytes = 1 << 40

    def _check(self, path: str, size: int) -> None:
        if path.startswith("/objects/") and self.directory("/objects").size_bytes + size > self.room_bytes:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def enter(self, operation: str, path: str, size: int = 0, life: int | None = None) -> int:
        if operation == "write":
            self._check(path, size)
        return super().enter(operation, path, size, life)

    def reserve(self, path: str, size: int) -> None:
        self._check(path, size)
        super().reserve(path, size)


async def test_a_full_store_is_emptied_by_expiry_and_copies_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_reserve, "RESERVE_BYTES", 20_000)
    with directory_world() as world:
        disk = world.files = SmallDisk(world.clock.wall_ms)
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings=TIERED)
            await fill(client, 30)
            await copied(served)
            disk.room_bytes = disk.directory("/objects").size_bytes
            await fill(client, 10)
            broker = served.node.broker
            assert broker is not None and broker.tier is not None
            failed = broker.tier.metrics.of(TOPIC)
            await until(lambda: failed.copy_errors > 0)
            assert await alter(served, retention_bytes="600") == 0
            await copied(served)
            assert partition_of(served).log_start_offset > 0
            assert disk.exists(f"/objects/{directory_reserve.RESERVE}")


async def test_a_store_that_stays_away_is_told_once_and_another_reason_again(caplog: pytest.LogCaptureFixture) -> None:
    """What a cloud says names the object that was tried, and how long it took: both differ at every attempt."""
    attempts, is_denied = 0, False

    async def fail(key: str, _: object) -> None:
        nonlocal attempts
        attempts += 1
        reason = "403 Forbidden" if is_denied else f"error sending request in {attempts * 77.5}ms, after 2 retries"
        raise StoreUnavailable(f"s3://bucket fails at put of {key}: {reason}")

    def warnings() -> int:
        return sum("cannot be used yet" in record.getMessage() for record in caplog.records)

    with TieredWorld() as world, pytest.MonkeyPatch.context() as patched:
        patched.setattr(MemoryStore, "put", lambda _, key, parts: fail(key, parts))
        async with world.started():
            await until(lambda: attempts > 5)
            assert warnings() == 1
            is_denied = True
            await until(lambda: warnings() == 2)
            count = attempts
            await until(lambda: attempts > count + 5)
            assert warnings() == 2
