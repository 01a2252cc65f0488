"""Files in memory that fail on demand, for tests and the simulator.

They know what is durable and what is not: `lose_power` takes back whatever was not synced, bytes and directory entries
alike, or lets a part of it survive sector by sector. `die_at` ends the process in the middle of an operation.
"""

import errno as errnos
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from headrace.model import Buffer
from headrace.storage.files import AlreadyLocked, Space, parent_of
from headrace.storage.memory_nodes import Directory, Inode, Node, Survives

CHANGES = frozenset(
    {"create", "write", "truncate", "sync", "make_directory", "rename", "link", "remove", "sync_directory", "sync_all"}
)
"""Operations after which a dead process leaves something else behind than before."""


DISK_BYTES = 1 << 40
"""Of the disk that all files lie on."""


class ProcessDied(BaseException):
    """Not an Exception: nothing in a process handles its own death."""


@dataclass(slots=True)
class Fault:
    """The `nth` matching call from now on, and `times` calls in all, raise `errno`."""

    operation: str
    pattern: str
    errno: int
    nth: int = 1
    times: int = 1
    bytes_written: int = 0
    """Of a failing write, so many bytes are there nevertheless."""

    def strikes(self, operation: str, path: str) -> bool:
        if operation != self.operation or not fnmatchcase(path, self.pattern) or self.times <= 0:
            return False
        self.nth -= 1
        if self.nth > 0:
            return False
        self.times -= 1
        return True


class MemoryFile:
    __slots__ = ("_files", "_inode", "_life", "path")

    def __init__(self, files: "MemoryFiles", path: str, inode: Inode | None) -> None:
        self._files = files
        self._life = files.life
        self._inode = inode
        self.path = path

    def _open(self, operation: str, size: int = 0) -> tuple[Inode, int]:
        """The content, and how many bytes of a write will happen before the process dies or the disk fails."""
        allowed = self._files.enter(operation, self.path, size, self._life)
        if self._inode is None:
            self._inode = self._files.inode(self.path)
        return self._inode, allowed

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        content = b"".join(parts)
        inode, allowed = self._open("write", len(content))
        inode.write(position, content[:allowed], self._files.now_ms())
        self._files.leave()

    def read(self, position: int, size: int) -> bytes:
        inode, _ = self._open("read")
        return bytes(inode.data[position : position + size])

    def copy_from(self, source: str, start: int, length: int, position: int) -> None:
        content = self._files.read(source)[start : start + length]
        if len(content) < length:
            raise _error(errnos.EIO, source)
        self.write(position, [content])

    def size(self) -> int:
        return len(self._open("size")[0].data)

    def truncate(self, size: int) -> None:
        inode, _ = self._open("truncate")
        inode.truncate(size, self._files.now_ms())

    def sync(self) -> None:
        inode, _ = self._open("sync")
        inode.sync()

    def syncer(self) -> Callable[[], None]:
        if self._inode is None:
            self._inode = self._files.inode(self.path)
        twin = MemoryFile(self._files, self.path, self._inode)
        return twin.sync

    def moved(self, path: str) -> None:
        self.path = path

    def close(self) -> None:
        pass


class MemoryReadFile:
    def __init__(self, files: "MemoryFiles", path: str, inode: Inode) -> None:
        self._files = files
        self._path = path
        self._inode = inode

    def read(self, position: int, size: int) -> bytes:
        self._files.enter("read", self._path)
        return bytes(self._inode.data[position : position + size])

    def read_at_once(self, position: int, into: memoryview) -> int:
        try:
            found = self.read(position, len(into))
        except OSError:
            return 0
        into[: len(found)] = found
        return len(found)


class MemoryLock:
    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)


class MemoryTree:
    def __init__(self, files: "MemoryFiles", path: str) -> None:
        self._files = files
        self._path = path

    def sync(self) -> None:
        self._files.enter("sync_all", self._path)
        self._files.directory(self._path).sync_all()

    def close(self) -> None:
        pass


class MemoryFiles:
    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.now_ms = now_ms
        self.changes = 0
        """Operations so far that change something; `die_at` counts them."""
        self.life = 0
        """How often the process died. Handles of an earlier life are of no use."""
        self.faults: list[Fault] = []
        self._root = Directory()
        self._locked: set[str] = set()
        self._dies_at: int | None = None
        self._bytes_before_death = 0
        self._raise_after: BaseException | None = None

    # What tests do

    def fail(
        self, operation: str, pattern: str, errno: int, *, nth: int = 1, times: int = 1, bytes_written: int = 0
    ) -> Fault:
        """Makes calls of `operation` ("write", "sync", ...) on matching paths fail. Returns what `faults` now holds."""
        fault = Fault(operation, pattern, errno, nth, times, bytes_written)
        self.faults.append(fault)
        return fault

    def die_at(self, change: int | None, *, bytes_written: int = 0) -> None:
        """ProcessDied instead of the change with that number; of a write, `bytes_written` bytes still happen."""
        self._dies_at = change
        self._bytes_before_death = bytes_written

    def restart(self) -> None:
        """After a process death: everything written is there, nothing is open or locked."""
        self.life += 1
        self._dies_at = None
        self._raise_after = None
        self._locked.clear()

    def lose_power(self, survives: Survives | None = None) -> None:
        """After a machine death: only what was synced is there, and whatever else `survives` says yes to."""
        self.restart()
        self._root.lose_power(survives or (lambda: False))

    # What files do

    def enter(self, operation: str, path: str, size: int = 0, life: int | None = None) -> int:
        """Every operation passes here: it may die or fail. Returns how many of `size` bytes are to be written."""
        if life is not None and life != self.life:
            raise ProcessDied
        if operation in CHANGES:
            if self._dies_at is not None and self.changes >= self._dies_at:
                # Nothing happens any more in this life: not even what a `finally` tries.
                first = self.changes == self._dies_at
                self.changes += 1
                if operation != "write" or not first:
                    raise ProcessDied
                self._raise_after = ProcessDied()
                return min(size, self._bytes_before_death)
            self.changes += 1
        for fault in self.faults:
            if fault.strikes(operation, path):
                error = OSError(fault.errno, os.strerror(fault.errno), path)
                if operation != "write":
                    raise error
                self._raise_after = error
                return min(size, fault.bytes_written)
        return size

    def leave(self) -> None:
        error, self._raise_after = self._raise_after, None
        if error is not None:
            raise error

    def inode(self, path: str) -> Inode:
        node = self._find(path)
        if not isinstance(node, Inode):
            raise _error(errnos.EISDIR, path)
        return node

    def open(self, path: str) -> MemoryFile:
        return MemoryFile(self, path, None)

    def create(self, path: str) -> MemoryFile:
        self.enter("create", path)
        directory, name = self._parent(path)
        existing = directory.entries.get(name)
        if isinstance(existing, Directory):
            raise _error(errnos.EISDIR, path)
        if existing is None:
            existing = directory.entries[name] = Inode(self.now_ms())
        else:
            existing.truncate(0, self.now_ms())
        return MemoryFile(self, path, existing)

    def read(self, path: str) -> bytes:
        self.enter("read", path)
        return bytes(self.inode(path).data)

    def open_to_read(self, path: str) -> MemoryReadFile:
        self.enter("read", path)
        return MemoryReadFile(self, path, self.inode(path))

    def replace(self, path: str, content: Buffer, *, durable: bool = True) -> None:
        beside = self.create(path + ".tmp")
        beside.write(0, [content])
        if durable:
            beside.sync()
        self.rename(path + ".tmp", path)
        if durable:
            self.sync_directory(parent_of(path))

    def names(self, directory: str) -> list[str]:
        self.enter("names", directory)
        return sorted(self.directory(directory).entries)

    def exists(self, path: str) -> bool:
        try:
            self._find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_directory(self, path: str) -> bool:
        return self.exists(path) and isinstance(self._find(path), Directory)

    def size(self, path: str) -> int:
        return len(self.inode(path).data)

    def modified_ms(self, path: str) -> int:
        return self.inode(path).modified_ms

    def make_directory(self, path: str) -> None:
        at = self._root
        for name in _names(path):
            node = at.entries.get(name)
            if node is None:
                self.enter("make_directory", path)
                node = at.entries[name] = Directory()
            if not isinstance(node, Directory):
                raise _error(errnos.ENOTDIR, path)
            at = node

    def rename(self, old: str, new: str) -> None:
        self.enter("rename", old)
        node = self._find(old)
        directory, name = self._parent(new)
        directory.entries[name] = node
        directory, name = self._parent(old)
        del directory.entries[name]

    def link(self, old: str, new: str) -> None:
        self.enter("link", new)
        node = self.inode(old)
        directory, name = self._parent(new)
        if name in directory.entries:
            raise _error(errnos.EEXIST, new)
        directory.entries[name] = node

    def remove(self, path: str) -> None:
        self.enter("remove", path)
        self.inode(path)
        directory, name = self._parent(path)
        del directory.entries[name]

    def remove_tree(self, path: str) -> None:
        self.directory(path)
        self.enter("remove", path)
        directory, name = self._parent(path)
        del directory.entries[name]

    def remove_directory(self, path: str) -> None:
        if self.directory(path).entries:
            raise OSError(errnos.ENOTEMPTY, os.strerror(errnos.ENOTEMPTY), path)
        self.remove_tree(path)

    def sync_directory(self, path: str) -> None:
        self.enter("sync_directory", path)
        self.directory(path).sync()

    def tree(self, directory: str) -> MemoryTree:
        self.directory(directory)
        return MemoryTree(self, directory)

    def reserve(self, path: str, size: int) -> None:
        self.create(path).truncate(size)

    def space(self, directory: str) -> Space:
        self.enter("space", directory)
        self.directory(directory)
        return Space(DISK_BYTES, DISK_BYTES - self._root.size_bytes)

    def apart(self) -> "MemoryFiles":
        return self

    def lock(self, path: str) -> MemoryLock:
        if path in self._locked:
            raise AlreadyLocked(path)
        if not self.exists(path):
            self.create(path)
        self._locked.add(path)
        return MemoryLock(self._locked, path)

    def _find(self, path: str) -> Node:
        at: Node = self._root
        for name in _names(path):
            if not isinstance(at, Directory):
                raise _error(errnos.ENOTDIR, path)
            if name not in at.entries:
                raise _error(errnos.ENOENT, path)
            at = at.entries[name]
        return at

    def directory(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise _error(errnos.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        directory, _, name = path.rstrip("/").rpartition("/")
        return self.directory(directory), name


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name and name != "."]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
