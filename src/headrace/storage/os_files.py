"""Files of the operating system, with a bounded number of descriptors open at a time."""

import ctypes
import errno
import fcntl
import os
import shutil
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress

from headrace.model import Buffer
from headrace.storage.files import AlreadyLocked, Space, parent_of
from headrace.storage.residency import Residency

PARTS_MAX = 1024
"""Linux takes no more buffers in one writev."""

FILES_APART_MAX = 8
"""Descriptors of work that is done apart from the loop."""

COPY_BYTES_MAX = 8 << 20
"""The kernel is asked for no more in one call, which nothing interrupts."""

CHUNK_BYTES = 1 << 20

READ_AT_ONCE = getattr(os, "RWF_NOWAIT", 0)
"""Linux knows what of a file it has in memory."""

_NO_COPY_BY_KERNEL = frozenset({errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})
"""Between some file systems, and in some sandboxes, bytes have to go through the process."""

_FLOCK = struct.Struct("hhqqi")


class OsFile:
    """Opens its descriptor on first use, and again after it was evicted."""

    __slots__ = ("_descriptor", "_open_files", "path", "used")

    def __init__(self, path: str, open_files: Residency, descriptor: int = -1) -> None:
        self.path = path
        self.used = False
        self._open_files = open_files
        self._descriptor = descriptor
        if descriptor >= 0:
            open_files.admit(self)

    def _open(self) -> int:
        # Never creates: a file that vanished is an error, not an empty file.
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._open_files.admit(self)
        return self._descriptor

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        descriptor = self._descriptor if self._descriptor >= 0 else self._open()
        self.used = True
        if len(parts) == 1:
            size = len(parts[0])
            written = os.pwrite(descriptor, parts[0], position)
        else:
            parts = parts if len(parts) <= PARTS_MAX else _joined(parts)
            size = sum(map(len, parts))
            written = os.pwritev(descriptor, parts, position)
        if written != size:
            rest = memoryview(b"".join(parts))
            while written < size:
                written += os.pwrite(descriptor, rest[written:], position + written)

    def read(self, position: int, size: int) -> bytes:
        descriptor = self._descriptor if self._descriptor >= 0 else self._open()
        self.used = True
        return os.pread(descriptor, size, position)

    def copy_from(self, source: str, start: int, length: int, position: int) -> None:
        target = self._descriptor if self._descriptor >= 0 else self._open()
        self.used = True
        origin = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while length:
                copied = _copy(origin, target, min(length, COPY_BYTES_MAX), start, position)
                if not copied:
                    raise OSError(errno.EIO, "is shorter than what is to be copied", source)
                start, position, length = start + copied, position + copied, length - copied
        finally:
            os.close(origin)

    def size(self) -> int:
        return os.fstat(self._descriptor if self._descriptor >= 0 else self._open()).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor if self._descriptor >= 0 else self._open(), size)

    def sync(self) -> None:
        os.fdatasync(self._descriptor if self._descriptor >= 0 else self._open())

    def syncer(self) -> Callable[[], None]:
        # A duplicate shares the kernel's memory of write-back errors, which a descriptor opened later may miss.
        descriptor = os.dup(self._descriptor if self._descriptor >= 0 else self._open())

        def sync() -> None:
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

        return sync

    def moved(self, path: str) -> None:
        self.path = path

    def close(self) -> None:
        self._open_files.forget(self)
        self.evict()

    def evict(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class OsReadFile:
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, position)

    def read_at_once(self, position: int, into: memoryview) -> int:
        if not READ_AT_ONCE:
            return 0
        try:
            return os.preadv(self._descriptor, [into], position, READ_AT_ONCE)
        except OSError:
            return 0  # it would have to wait, the file system cannot tell, or it failed: a plain read finds out

    def __del__(self) -> None:
        # Not earlier: a thread that reads would read from whatever gets the number next.
        os.close(self._descriptor)


def _copy(origin: int, target: int, size: int, start: int, position: int) -> int:
    try:
        return os.copy_file_range(origin, target, size, start, position)
    except OSError as error:
        if error.errno not in _NO_COPY_BY_KERNEL:
            raise
    return os.pwrite(target, os.pread(origin, min(size, CHUNK_BYTES), start), position)


def _joined(parts: Sequence[Buffer]) -> list[Buffer]:
    return [b"".join(parts)]


class OsLock:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class OsTree:
    """The whole file system of a directory. The kernel tells of errors since the descriptor was opened."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def sync(self) -> None:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(self._descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class OsFiles:
    """The disk. `open_files_max` bounds the descriptors of all files that it hands out."""

    def __init__(self, open_files_max: int) -> None:
        self._open_files = Residency(open_files_max)

    @property
    def open_files(self) -> int:
        return len(self._open_files)

    def open(self, path: str) -> OsFile:
        return OsFile(path, self._open_files)

    def create(self, path: str) -> OsFile:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        return OsFile(path, self._open_files, descriptor)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def open_to_read(self, path: str) -> OsReadFile:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        file = OsReadFile(descriptor)
        if hasattr(os, "posix_fadvise"):
            # Nothing is read but what is asked for: a read at once would otherwise begin with the next megabytes, and
            # wait until that is under way.
            with suppress(OSError):  # some sandboxes know no such call, and it is advice alone
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return file

    def replace(self, path: str, content: Buffer, *, durable: bool = True) -> None:
        beside = path + ".tmp"
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fdatasync(file.fileno())
        os.rename(beside, path)
        if durable:
            self.sync_directory(parent_of(path))

    def names(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def tree(self, directory: str) -> OsTree:
        return OsTree(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def reserve(self, path: str, size: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(descriptor, size)
            if size:
                os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)

    def space(self, directory: str) -> Space:
        disk = os.statvfs(directory)
        return Space(disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize)

    def apart(self) -> "OsFiles":
        return OsFiles(FILES_APART_MAX)

    def lock(self, path: str) -> OsLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock_whole_file(descriptor)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise AlreadyLocked(path) from None
            raise
        return OsLock(descriptor)


def _lock_whole_file(descriptor: int) -> None:
    """A lock of this one open file: excludes other nodes of this process too, and Apache Kafka's own lock."""
    if hasattr(fcntl, "F_OFD_SETLK"):
        whole_file = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, whole_file)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
