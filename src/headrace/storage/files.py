"""The only way to data files. `OsFiles` is the disk; `MemoryFiles` is its twin that fails on demand.

Every call may raise OSError. A `File` is used by one thread, except for its `syncer`; what `Files` does by path may be
done in any. Paths are absolute or relative as the caller likes, with `/` between names.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from headrace.model import Buffer


def parent_of(path: str) -> str:
    parent, slash, _ = path.rstrip("/").rpartition("/")
    return parent or slash or "."


class AlreadyLocked(Exception):
    """Somebody else holds the lock file."""


class File(Protocol):
    """One file, used by position. It costs no descriptor while nobody uses it."""

    @property
    def path(self) -> str: ...

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        """All parts, one after the other, from `position` on. After an OSError any number of bytes may be there."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Fewer than `size` bytes only at the end of the file."""
        ...

    def copy_from(self, source: str, start: int, length: int, position: int) -> None:
        """So many bytes of the file `source`, from its byte `start` on, to `position` of this one, by the kernel
        where it can. OSError if `source` is shorter."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Content and length survive power loss from here on; the name does not (see `Files.sync_directory`)."""
        ...

    def syncer(self) -> Callable[[], None]:
        """A sync of this very file for another thread, valid whatever happens to `self` meanwhile. Call it once."""
        ...

    def moved(self, path: str) -> None:
        """Somebody gave the file this name: that is where it is found from now on."""
        ...

    def close(self) -> None: ...


class ReadFile(Protocol):
    """A file that is open to be read for as long as somebody has this, whatever its name is by then. For any thread."""

    def read(self, position: int, size: int) -> bytes:
        """Fewer than `size` bytes only at the end of the file."""
        ...

    def read_at_once(self, position: int, into: memoryview) -> int:
        """How many bytes of it there were in memory: 0 if none, or if nobody can say without waiting for the disk."""
        ...


class Lock(Protocol):
    def release(self) -> None: ...


class Tree(Protocol):
    def sync(self) -> None:
        """Every file and name in it survives power loss: one wait for all. Tells of errors since the tree was taken."""
        ...

    def close(self) -> None: ...


class Space(NamedTuple):
    """Of the disk below a directory: how large it is, and how much of it is free for us."""

    total_bytes: int
    usable_bytes: int


class Files(Protocol):
    def open(self, path: str) -> File:
        """A file that exists; that it does is noticed on first use."""
        ...

    def create(self, path: str) -> File:
        """An empty file, whatever was there before."""
        ...

    def read(self, path: str) -> bytes: ...

    def open_to_read(self, path: str) -> ReadFile:
        """Needs no permission to write, as `open` does."""
        ...

    def replace(self, path: str, content: Buffer, *, durable: bool = True) -> None:
        """All or nothing: written beside, synced, renamed over, and the directory synced.

        Without `durable` nothing is synced: a death of the process leaves the old or the new content, a power loss
        may leave neither.
        """
        ...

    def names(self, directory: str) -> list[str]:
        """What the directory holds, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """Wall-clock time of the last change of the content."""
        ...

    def make_directory(self, path: str) -> None:
        """With its parents; no error if it is there."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def link(self, old: str, new: str) -> None:
        """The file has a second name. FileExistsError, and nothing happened, if there is something of that name."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Only an empty one: otherwise OSError."""
        ...

    def sync_directory(self, path: str) -> None:
        """Names created, renamed and removed in it so far survive power loss."""
        ...

    def tree(self, directory: str) -> Tree:
        """Everything below `directory`, from now on."""
        ...

    def reserve(self, path: str, size: int) -> None:
        """A file that holds this much space on the disk."""
        ...

    def space(self, directory: str) -> Space: ...

    def apart(self) -> "Files":
        """The same disk for another thread, or, pickled, for another process: its `File`s are nobody else's."""
        ...

    def lock(self, path: str) -> Lock:
        """Raises AlreadyLocked. The lock ends with the process at the latest."""
        ...
