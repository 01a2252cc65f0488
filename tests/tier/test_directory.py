"""A directory as object store: whole objects or none, whatever dies, and nothing left behind."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headrace.storage.memory_files import MemoryFiles, ProcessDied
from headrace.storage.os_files import OsFiles
from headrace.tier import directory_objects
from headrace.tier.directory import ABANDONED_MS, INCOMING, WRITE_LANE, DirectoryStore
from headrace.tier.directory_reserve import RESERVE
from headrace.tier.probing import probe
from headrace.tier.store import FilePart, ObjectExists, ObjectMissing, ObjectStore, RangeMissing, StoreUnavailable

T = TypeVar("T")
KEY = "c/t/0/a.segment"
CONTENT = b"x" * 3_000 + b"tail"


class AtOnce:
    """Does the job before it returns: files in memory do not block."""

    def run(self, lane: str, job: Callable[[], T]) -> asyncio.Future[T]:
        assert lane.startswith("tier-")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(job())
        except Exception as error:  # handed on to whoever waits
            future.set_exception(error)
        return future


class Counting:
    def __init__(self) -> None:
        self.drawn = 0

    def bits(self, count: int) -> int:
        self.drawn += 1
        return self.drawn % (1 << count)


def opened(files: MemoryFiles, random: Counting | None = None) -> DirectoryStore:
    return DirectoryStore("/objects", files, AtOnce(), random or Counting())


def made() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(f"/objects/{INCOMING}")
    files.sync_directory("/objects")
    files.sync_directory("/")
    files.create("/a.log").write(0, [CONTENT])
    return files


def run(work: Coroutine[Any, Any, T]) -> T:
    """Deaths are no Exceptions: a loop of its own ends with each."""
    with asyncio.Runner() as runner:
        return runner.run(work)


async def stored(store: ObjectStore) -> dict[str, bytes]:
    return {key: await store.get(key, 0, size) async for key, size in store.list("")}


def put(store: ObjectStore) -> Coroutine[Any, Any, None]:
    return store.put(KEY, [FilePart("/a.log", 0, 3_000), b"tail"])


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_death_at_any_step_of_a_put_leaves_all_of_the_object_or_nothing(loses_power: bool) -> None:
    whole = made()
    before = whole.changes
    run(put(opened(whole)))
    steps = whole.changes - before
    seen = set()
    for step in range(steps):
        files = made()
        files.die_at(files.changes + step, bytes_written=1_000)
        with pytest.raises(ProcessDied):
            run(put(opened(files)))
        if loses_power:
            files.lose_power()
        else:
            files.restart()
        found = run(stored(opened(files)))
        assert found in ({}, {KEY: CONTENT}), f"step {step}"
        seen.add(bool(found))
    assert steps > 6 and seen == {False, True}


def test_what_was_put_survives_a_power_loss_and_what_was_deleted_stays_gone() -> None:
    files = made()
    run(put(opened(files)))
    files.lose_power()
    assert run(stored(opened(files))) == {KEY: CONTENT}
    run(opened(files).delete(KEY))
    files.lose_power()
    assert run(stored(opened(files))) == {}


async def test_a_put_that_loses_or_fails_leaves_no_file_behind() -> None:
    files = made()
    store = opened(files)
    await put(store)
    with pytest.raises(ObjectExists):
        await put(store)
    for operation in ("write", "sync", "link", "sync_directory"):
        with suppress(FileNotFoundError):
            files.remove(f"/objects/{RESERVE}")
        files.fail(operation, "*", errno.ENOSPC)
        with pytest.raises(StoreUnavailable, match=r"No space left .* makes room"):
            await store.put("c/other", [b"abc"])
        files.faults.clear()
        await store.delete("c/other")
    assert files.names(f"/objects/{INCOMING}") == []
    assert await stored(store) == {KEY: CONTENT}


async def test_a_disk_that_fails_is_unavailable_and_not_empty() -> None:
    files = made()
    store = opened(files)
    await put(store)
    files.fail("read", "/objects/*", errno.EIO)
    with pytest.raises(StoreUnavailable):
        await store.get(KEY, 0, 1)
    files.fail("names", "/objects/*", errno.EIO)
    with pytest.raises(StoreUnavailable):
        await stored(store)


async def test_a_file_system_without_links_says_so() -> None:
    files = made()
    files.fail("link", "*", errno.EPERM)
    with pytest.raises(StoreUnavailable, match="no hard links"):
        await probe(opened(files), 1)


async def test_what_a_dead_process_left_is_swept_when_it_is_old_enough() -> None:
    now_ms = 10 * ABANDONED_MS
    files = MemoryFiles(lambda: now_ms)
    files.make_directory(f"/objects/{INCOMING}")
    for name, age_ms in (("old", ABANDONED_MS + 1), ("young", ABANDONED_MS - 1)):
        files.create(f"/objects/{INCOMING}/{name}")
        files.inode(f"/objects/{INCOMING}/{name}").modified_ms = now_ms - age_ms
    await opened(files).put("c/a", [b"abc"])
    assert files.names(f"/objects/{INCOMING}") == ["young"]
    assert [key async for key, _ in opened(files).list("")] == ["c/a"]


async def test_a_directory_is_no_object() -> None:
    files = made()
    store = opened(files)
    await put(store)
    with pytest.raises(ObjectMissing):
        await store.get("c/t", 0, 1)
    with pytest.raises(ObjectMissing):
        await store.get(f"{KEY}/below", 0, 1)


async def test_nothing_is_stored_where_a_disk_was_mounted_that_is_gone(tmp_path: Path) -> None:
    """Objects there would be hidden when it is back."""
    root = tmp_path / "objects"
    root.mkdir()
    store, restarted = (DirectoryStore(str(root), OsFiles(8), AtOnce(), Counting()) for _ in range(2))
    await store.begin()
    await store.put(KEY, [b"1"])
    root.rename(tmp_path / "away")
    root.mkdir()
    for one in (store, restarted):
        with pytest.raises(StoreUnavailable, match="not mounted"):
            await one.put("c/t/0/b.segment", [b"2"])
    assert not list(root.iterdir())
    root.rmdir()
    (tmp_path / "away").rename(root)
    await store.put("c/t/0/b.segment", [b"2"])
    assert await store.get(KEY, 0, 1) == b"1"


async def test_an_object_that_is_kept_is_read_again_without_a_thread(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path / "objects"), OsFiles(8), AtOnce(), Counting())
    await store.begin()
    await store.put(KEY, [b"0123456789"])
    found = bytearray(4)
    assert await store.get(KEY, 0, 1) == b"0"
    assert not store.read_at_once(KEY, 2, memoryview(found))
    assert await store.get_and_keep(KEY, 0, 1) == b"0"
    assert store.read_at_once(KEY, 2, memoryview(found)) and found == b"2345"
    assert not store.read_at_once(KEY, 8, memoryview(found))
    await store.delete(KEY)
    assert not store.read_at_once(KEY, 2, memoryview(found))


async def test_an_object_that_was_repaired_is_read_as_it_is_now(tmp_path: Path) -> None:
    """A manifest that fails its checksum is looked at again and again: by its name, whoever else has it open."""
    root = tmp_path / "objects"
    store = DirectoryStore(str(root), OsFiles(8), AtOnce(), Counting())
    await store.begin()
    await store.put(KEY, [b"0123456789"])
    assert await store.get_and_keep(KEY, 0, 10) == b"0123456789"
    (root / "other").write_bytes(b"9876543210")
    (root / "other").rename(root / KEY)
    assert await store.get(KEY, 0, 10) == b"9876543210"
    store.forget(KEY)
    assert await store.get_and_keep(KEY, 0, 10) == b"9876543210"


async def test_a_kept_object_that_could_not_be_read_is_opened_anew(tmp_path: Path) -> None:
    """Somebody puts a good copy in the place of one that is too short."""
    root = tmp_path / "objects"
    store = DirectoryStore(str(root), OsFiles(8), AtOnce(), Counting())
    await store.begin()
    await store.put(KEY, [b"0123456789"])
    (root / "short").write_bytes(b"01")
    (root / "short").rename(root / KEY)
    assert await store.get_and_keep(KEY, 0, 1) == b"0"
    with pytest.raises(RangeMissing):
        await store.get_and_keep(KEY, 0, 10)
    (root / "good").write_bytes(b"0123456789")
    (root / "good").rename(root / KEY)
    assert await store.get_and_keep(KEY, 0, 10) == b"0123456789"


class ReadsHeld(AtOnce):
    """Reads at once, and answers when it is told to."""

    def __init__(self) -> None:
        self.answers: list[Callable[[], None]] = []

    def run(self, lane: str, job: Callable[[], T]) -> asyncio.Future[T]:
        done = super().run(lane, job)
        if lane == WRITE_LANE:
            return done
        later: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.answers.append(lambda: later.set_result(done.result()))
        return later


async def test_an_object_that_is_deleted_while_it_is_read_is_not_kept(tmp_path: Path) -> None:
    offload = ReadsHeld()
    store = DirectoryStore(str(tmp_path / "objects"), OsFiles(8), offload, Counting())
    await store.begin()
    await store.put(KEY, [b"0123456789"])
    reading = asyncio.ensure_future(store.get_and_keep(KEY, 0, 10))
    await asyncio.sleep(0)
    await store.delete(KEY)
    offload.answers.pop()()
    assert await reading == b"0123456789"
    assert not store.read_at_once(KEY, 0, memoryview(bytearray(1)))


async def test_few_objects_are_open_and_none_that_nobody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_objects, "OBJECTS_MAX", 3)
    monkeypatch.setattr(directory_objects, "IDLE_S", 0.05)
    root = tmp_path / "objects"
    store = DirectoryStore(str(root), OsFiles(8), AtOnce(), Counting())
    await store.begin()
    for number in range(5):
        await store.put(f"c/{number}", [b"1"])
        await store.get_and_keep(f"c/{number}", 0, 1)
        assert len(descriptors_below(root)) <= 3
    assert len(descriptors_below(root)) == 3
    async with asyncio.timeout(20):
        while descriptors_below(root):  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.01)
    assert await store.get_and_keep("c/0", 0, 1) == b"1"
    await store.close()
    assert not descriptors_below(root)


def descriptors_below(root: Path) -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [path for path in found if path.startswith(str(root))]


async def test_objects_are_read_by_who_may_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that became read-only, and a task of Spark's or a command that runs as another user."""
    root = str(tmp_path / "objects")
    store = DirectoryStore(root, OsFiles(8), AtOnce(), Counting())
    await store.begin()
    await store.put(KEY, [b"1234"])
    opens = os.open

    def read_only(path: str, flags: int, *mode: int) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, "Read-only file system", path)
        return opens(path, flags, *mode)

    monkeypatch.setattr(os, "open", read_only)
    assert await store.get(KEY, 1, 3) == b"23"
    assert await stored(store) == {KEY: b"1234"}
    with pytest.raises(RangeMissing):
        await store.get(KEY, 3, 5)
    with pytest.raises(StoreUnavailable, match="Read-only"):
        await store.put("c/t/0/b.segment", [b"2"])


@pytest.mark.parametrize("is_bare", [True, False])
async def test_nothing_is_missing_or_deleted_where_the_store_is_away(tmp_path: Path, is_bare: bool) -> None:
    """A topic's objects would be forgotten that are there when the disk is back."""
    root = tmp_path / "objects"
    store = DirectoryStore(str(root), OsFiles(8), AtOnce(), Counting())
    await store.begin()
    await store.put(KEY, [b"1"])
    root.rename(tmp_path / "away")
    if is_bare:
        root.mkdir()
    for call in (store.get(KEY, 0, 1), store.size(KEY), store.delete(KEY)):
        with pytest.raises(StoreUnavailable, match="not mounted"):
            await call
    for prefix in ("", "c/", "c/t/"):
        with pytest.raises(StoreUnavailable, match="not mounted"):
            [key async for key, _ in store.list(prefix)]


async def test_a_place_that_cannot_be_made_is_a_store_that_is_away() -> None:
    files = MemoryFiles()
    files.fail("make_directory", "*", errno.EROFS)
    with pytest.raises(StoreUnavailable, match="Read-only"):
        await opened(files).begin()


async def test_a_process_that_lives_long_sweeps_more_than_once() -> None:
    now_ms = 10 * ABANDONED_MS
    files = MemoryFiles(lambda: now_ms)
    store = opened(files)
    await store.begin()
    await store.put("c/a", [b"abc"])
    files.create(f"/objects/{INCOMING}/left")
    now_ms += ABANDONED_MS + 1
    await store.put("c/b", [b"abc"])
    assert files.names(f"/objects/{INCOMING}") == []


async def test_nothing_stays_of_a_topic_whose_objects_are_gone() -> None:
    files = MemoryFiles()
    store = opened(files)
    await store.begin()
    for key in ("c/t/0/a", "c/t/0/b", "c/t/1/a"):
        await store.put(key, [b"abc"])
    await store.delete("c/t/0/a")
    assert files.names("/objects/c/t/0") == ["b"]
    await store.delete("c/t/0/b")
    assert files.names("/objects/c/t") == ["1"]
    await store.delete("c/t/1/a")
    assert sorted(files.names("/objects")) == [INCOMING, RESERVE, "c"] and files.names("/objects/c") == []
    await store.delete("c/t/1/a")
    await store.put("c/t/0/a", [b"again"])
    assert await store.get("c/t/0/a", 0, 5) == b"again"


async def test_a_directory_that_is_removed_before_it_is_used_is_made_again() -> None:
    class Hasty(MemoryFiles):
        hurry = 2

        def link(self, old: str, new: str) -> None:
            if self.hurry:
                self.hurry -= 1
                self.remove_directory(new.rpartition("/")[0])
            super().link(old, new)

    store = opened(Hasty())
    await store.begin()
    await store.put("c/t/0/a", [b"abc"])
    assert await store.get("c/t/0/a", 0, 3) == b"abc"


async def test_room_is_kept_for_what_is_small_and_comes_back_when_something_is_deleted() -> None:
    files = made()
    store = opened(files)
    await store.begin()
    reserve = f"/objects/{RESERVE}"
    files.fail("write", "*", errno.ENOSPC)
    with pytest.raises(StoreUnavailable, match="No space left"):
        await put(store)
    assert files.exists(reserve)
    files.fail("write", "*", errno.ENOSPC)
    await store.put("c/small", [b"a manifest"])
    assert not files.exists(reserve)
    files.fail("write", "*", errno.ENOSPC)
    with pytest.raises(StoreUnavailable, match="No space left"):
        await store.put("c/other", [b"a manifest"])
    await store.delete("c/small")
    assert files.exists(reserve) and await stored(store) == {}
