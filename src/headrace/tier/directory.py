"""A directory as object store, on a disk of this machine or one that all nodes have mounted.

An object is written under a name of its own in `.incoming`, synced, and then linked to its real name, which fails if
that is taken: so it is there whole or not at all, once. All work is done in lanes beside the loop.

`.incoming` is made when the store is begun, and never again. Where it is missing there is no store, but the place where
its disk is to be mounted: nothing is written there, and nothing counts as missing.
"""

import errno
from collections.abc import AsyncIterator, Callable, MutableSequence, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from headrace.runtime import Offload, Random
from headrace.storage.files import File, Files, ReadFile, parent_of
from headrace.tier.directory_objects import OpenObjects
from headrace.tier.directory_reserve import FULL, SMALL_BYTES_MAX, Reserve
from headrace.tier.layout import new_id
from headrace.tier.store import (
    FilePart,
    ObjectExists,
    ObjectMissing,
    RangeMissing,
    Source,
    SourceUnreadable,
    StoreUnavailable,
    check_key,
    check_prefix,
)

T = TypeVar("T")

INCOMING = ".incoming"
ABANDONED_MS = 24 * 3_600_000
"""What came in and was not written to for so long is of a process that died."""

SWEEP_MS = 3_600_000
"""How often it is looked for such files, at most."""

LINK_ATTEMPTS = 5
READ_LANES = 4
WRITE_LANE = "tier-write"


class Found(NamedTuple):
    """In one directory."""

    directories: list[str]
    objects: list[tuple[str, int]]


class DirectoryStore:
    def __init__(self, root: str, files: Files, offload: Offload, random: Random) -> None:
        self._root = root.rstrip("/")
        self._offload = offload
        self._random = random
        # Each lane is a thread, and files belong to one.
        self._files = {lane: files.apart() for lane in (WRITE_LANE, *map(_read_lane, range(READ_LANES)))}
        self._opened = OpenObjects(self._close_soon)
        self._reads = 0
        self._deletions = 0
        self._swept_ms = 0
        self._reserve = Reserve(self._root)

    async def begin(self) -> None:
        await self._run(WRITE_LANE, INCOMING, self._begin)

    async def put(self, key: str, parts: Sequence[Source]) -> None:
        check_key(key)
        beside = f"{self._root}/{INCOMING}/{new_id(self._random.bits(128))}"
        await self._run(WRITE_LANE, key, lambda files: self._put_by_reserve(files, beside, self._path(key), parts))

    async def get(self, key: str, start: int, end: int) -> bytes:
        """By its name, each time: an object that was repaired, or is on another disk now, is seen at once."""
        lane = self._lane_to_read(key, start, end)
        found = await self._look(lane, key, lambda files: files.open_to_read(self._path(key)).read(start, end - start))
        return _whole(key, found, start, end)

    async def get_and_keep(self, key: str, start: int, end: int) -> bytes:
        """The same of an object that stays open, for `read_at_once`. Who finds something wrong in it forgets it."""
        lane, deletions = self._lane_to_read(key, start, end), self._deletions
        opened = self._opened.take(key)  # unless all is well, it is opened anew the next time

        def read(files: Files) -> tuple[ReadFile, bytes]:
            file = opened or files.open_to_read(self._path(key))
            return file, file.read(start, end - start)

        file, found = await self._look(lane, key, read)
        whole = _whole(key, found, start, end)
        if self._deletions == deletions:  # it may be gone otherwise
            self._opened.keep(key, file)
        return whole

    def _lane_to_read(self, key: str, start: int, end: int) -> str:
        check_key(key)
        assert 0 <= start < end, (start, end)
        self._reads += 1
        return _read_lane(self._reads % READ_LANES)

    def read_at_once(self, key: str, start: int, into: memoryview) -> bool:
        """Fills `into`, if that is in memory and was read from before. If not, what it holds is anything."""
        opened = self._opened.get(key)
        return opened is not None and opened.read_at_once(start, into) == len(into)

    def forget(self, key: str) -> None:
        """What was read of it is not what it should be: it is opened anew before it is read again."""
        self._opened.forget(key)

    async def size(self, key: str) -> int:
        check_key(key)
        return await self._look(_read_lane(0), key, lambda files: files.size(self._path(key)))

    async def delete(self, key: str) -> None:
        check_key(key)
        self._deletions += 1
        opened = [self._opened.take(key)]

        def remove(files: Files) -> None:
            try:
                self._delete(files, self._path(key))
            finally:
                opened.clear()  # here: the disk is busy for a while when the last one closes a large file

        with suppress(ObjectMissing):
            await self._look(WRITE_LANE, key, remove)

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        check_prefix(prefix)
        waiting = [prefix]
        while waiting:
            directory = waiting.pop()
            found = await self._run(_read_lane(0), directory, partial(self._list, directory))
            waiting += reversed(found.directories)
            for entry in found.objects:
                yield entry

    async def close(self) -> None:
        await self._offload.run(WRITE_LANE, self._opened.take_all().clear)

    def _close_soon(self, opened: MutableSequence[ReadFile]) -> None:
        self._offload.run(WRITE_LANE, opened.clear)

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    async def _run(self, lane: str, key: str, job: Callable[[Files], T]) -> T:
        files = self._files[lane]
        try:
            return await self._offload.run(lane, lambda: job(files))
        except OSError as error:
            sentence = f"The directory {self._root} fails at {key}: {error.strerror}."
            if error.errno in FULL:
                sentence += " Nothing is copied before something expires, or somebody makes room."
            raise StoreUnavailable(sentence) from error

    async def _look(self, lane: str, key: str, job: Callable[[Files], T]) -> T:
        """Raises ObjectMissing if there is no such object, in a store that is there."""

        def look(files: Files) -> T:
            try:
                return job(files)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._check_there(files)
                raise ObjectMissing(key) from None

        return await self._run(lane, key, look)

    # In a lane.

    def _begin(self, files: Files) -> None:
        files.make_directory(f"{self._root}/{INCOMING}")
        self._reserve.keep(files)
        files.sync_directory(self._root)
        files.sync_directory(parent_of(self._root))

    def _list(self, prefix: str, files: Files) -> Found:
        found = _names(self._root, prefix, files)
        if not found.directories and not found.objects:
            self._check_there(files)
        return found

    def _check_there(self, files: Files) -> None:
        if not files.is_directory(f"{self._root}/{INCOMING}"):
            raise StoreUnavailable(
                f"The directory {self._root} holds no object store (it has no {INCOMING}): its disk is not mounted, "
                "or it is another directory than the one that was used."
            )

    def _put_by_reserve(self, files: Files, beside: str, path: str, parts: Sequence[Source]) -> None:
        """What is small, and is no segment, may use what is kept for it."""
        try:
            self._put(files, beside, path, parts)
        except OSError as error:
            small = [part for part in parts if not isinstance(part, FilePart)]
            is_small = len(small) == len(parts) and sum(map(len, small)) <= SMALL_BYTES_MAX
            if error.errno not in FULL or not is_small or not self._reserve.spend(files):
                raise
            self._put(files, beside, path, parts)

    def _put(self, files: Files, beside: str, path: str, parts: Sequence[Source]) -> None:
        try:
            file = files.create(beside)
        except FileNotFoundError:
            self._check_there(files)
            raise
        try:
            if any(isinstance(part, FilePart) for part in parts) and not self._reserve.keep(files):
                raise OSError(errno.ENOSPC, "No space left on device", path)
            _fill(file, parts)
            file.sync()
            file.close()
            self._sweep(files, beside)
            self._link(files, beside, path)
            self._sync_directories(files, parent_of(path))
        finally:
            file.close()
            with suppress(FileNotFoundError):
                files.remove(beside)

    def _link(self, files: Files, beside: str, path: str) -> None:
        for _ in range(LINK_ATTEMPTS):
            try:
                files.make_directory(parent_of(path))
                return _link(files, beside, path)
            except FileNotFoundError:
                self._check_there(files)  # and if it is, somebody removed the directory, which was empty
        raise StoreUnavailable(f"The directory of {path} goes again and again.")

    def _delete(self, files: Files, path: str) -> None:
        """With the directories of its partition and its topic, once they are empty."""
        _remove(files, path)
        if self._reserve.is_spent:
            self._reserve.keep(files)
        empty = parent_of(path)
        with suppress(OSError):  # it is not empty, or somebody else was faster
            while parent_of(parent_of(empty)).startswith(self._root):
                files.remove_directory(empty)
                empty = parent_of(empty)

    def _sync_directories(self, files: Files, path: str) -> None:
        """A name is durable when all directories above it are, whoever made them."""
        while len(path) > len(self._root):
            files.sync_directory(path)
            path = parent_of(path)
        files.sync_directory(self._root)

    def _sweep(self, files: Files, newest: str) -> None:
        """What others left behind when they died, by the clock of the disk itself."""
        now_ms = files.modified_ms(newest)
        if 0 <= now_ms - self._swept_ms < SWEEP_MS:
            return
        self._swept_ms = now_ms
        self._reserve.keep(files)
        for name in files.names(parent_of(newest)):
            path = f"{parent_of(newest)}/{name}"
            with suppress(FileNotFoundError):  # others sweep too
                if files.modified_ms(path) < now_ms - ABANDONED_MS:
                    _remove(files, path)


def _whole(key: str, found: bytes, start: int, end: int) -> bytes:
    if len(found) < end - start:
        raise RangeMissing(f"{key} ends before byte {end}.")
    return found


def _read_lane(number: int) -> str:
    return f"tier-read-{number}"


def _fill(file: File, parts: Sequence[Source]) -> None:
    position = 0
    for part in parts:
        if isinstance(part, FilePart):
            _copy(file, part, position)
            position += part.length
        elif part:
            file.write(position, [part])
            position += len(part)


def _copy(file: File, part: FilePart, position: int) -> None:
    try:
        file.copy_from(part.path, part.start, part.length, position)
    except OSError as error:
        if error.filename != part.path:
            raise
        raise SourceUnreadable(f"{part.path} cannot be stored: {error.strerror}.") from error


def _link(files: Files, old: str, new: str) -> None:
    try:
        files.link(old, new)
    except FileExistsError:
        raise ObjectExists(new) from None
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EOPNOTSUPP):
            raise OSError(error.errno, "the file system has no hard links, which create-only writes need") from error
        raise


def _remove(files: Files, path: str) -> None:
    files.remove(path)
    files.sync_directory(parent_of(path))


def _names(root: str, prefix: str, files: Files) -> Found:
    """What vanishes meanwhile is not there."""
    found = Found([], [])
    try:
        names = [name for name in files.names(f"{root}/{prefix}") if not name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return found
    for name in names:
        path = f"{root}/{prefix}{name}"
        if files.is_directory(path):
            found.directories.append(f"{prefix}{name}/")
            continue
        with suppress(FileNotFoundError):
            found.objects.append((f"{prefix}{name}", files.size(path)))
    return found
