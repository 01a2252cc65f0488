"""The port to an object store, as brokers use it: objects are created once, read by ranges, and deleted."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

KEY_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.=/")


class ObjectExists(Exception):
    """There is an object of that name: somebody else's, or of an earlier attempt whose answer was lost."""


class ObjectMissing(Exception):
    """There is no such object."""


class RangeMissing(ObjectMissing):
    """The object is shorter than what is asked for."""


def what_is_missing(failure: ObjectMissing) -> str:
    """A clause, for somebody who reads a log."""
    return str(failure).rstrip(".") if isinstance(failure, RangeMissing) else f"there is no object {failure}"


class StoreUnavailable(Exception):
    """The store did not do it, or its answer was lost: a write may have happened. The text is one sentence."""


class SourceUnreadable(Exception):
    """A local file that was to be stored cannot be read, or is shorter. Nothing was stored; the text is a sentence."""


class Refused(Exception):
    """This store cannot be used at all. The text is one sentence that says why."""


class FilePart(NamedTuple):
    """Bytes of a local file, which nobody changes meanwhile."""

    path: str
    start: int
    length: int


Source: TypeAlias = bytes | FilePart


class ObjectStore(Protocol):
    """Names are `/`-separated, of letters, digits and `-_.=`; no part of one begins with a dot."""

    async def begin(self) -> None:
        """Makes the place, if it is one that has to be made: once in the life of a store, before anything is put.

        Never again: a place that is gone is a store that is away, and objects would land somewhere else.
        """
        ...

    async def put(self, key: str, parts: Sequence[Source]) -> None:
        """One object of all parts, or nothing; durable when it returns. Raises ObjectExists, SourceUnreadable.

        After StoreUnavailable the object may be there nevertheless, or appear yet, but never a part of it.
        """
        ...

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Exactly the bytes [start, end), at least one. Raises ObjectMissing, and RangeMissing beyond its end."""
        ...

    async def size(self, key: str) -> int:
        """Raises ObjectMissing."""
        ...

    async def delete(self, key: str) -> None:
        """It is no error if there is none."""
        ...

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """Names and sizes below `prefix`, which is empty or ends with `/`, in no promised order."""
        ...

    async def close(self) -> None: ...


def check_key(key: str) -> None:
    """Names are ours: a bad one is a bug."""
    assert key and KEY_CHARACTERS.issuperset(key), key
    assert all(part and not part.startswith(".") for part in key.split("/")), key


def check_prefix(prefix: str) -> None:
    assert not prefix or prefix.endswith("/"), prefix
    if prefix:
        check_key(prefix[:-1])


def source_bytes(source: Source) -> int:
    return source.length if isinstance(source, FilePart) else len(source)
