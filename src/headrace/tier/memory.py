"""An object store in memory that is slow, fails and loses answers on demand: for tests and the simulator.

A `MemoryBucket` is what all nodes share; each has a `MemoryStore` of its own, with its own files.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple, NoReturn

from headrace.storage.files import Files
from headrace.tier.sources import pieces
from headrace.tier.store import (
    ObjectExists,
    ObjectMissing,
    RangeMissing,
    Source,
    StoreUnavailable,
    check_key,
    check_prefix,
)

PIECE_BYTES_MAX = 1 << 20
LISTED_AT_ONCE = 2
"""Few, so that others change the bucket in the middle of a listing."""


class Mishap(NamedTuple):
    """What happens to one call: how long it takes, whether it fails before it does anything, or its answer is lost."""

    delay_ms: int = 0
    fails: bool = False
    answer_lost: bool = False
    late_ms: int = 0
    """Of a put or delete: it is told as failed, and happens so much later nevertheless."""


NO_MISHAP = Mishap()


class MemoryBucket:
    def __init__(self, mishap: Callable[[str, str], Mishap] = lambda *_: NO_MISHAP) -> None:
        """`mishap` is asked with the operation ("put", "get", "size", "delete", "list") and the name."""
        self.objects: dict[str, bytes] = {}
        self.mishap = mishap
        self.is_create_only = True
        """Otherwise it is a store of the kind that a probe refuses."""
        self.calls: dict[str, int] = {}
        self.bytes_read = 0

    def put(self, key: str, content: bytes) -> None:
        if self.is_create_only and key in self.objects:
            raise ObjectExists(key)
        self.objects[key] = content

    def get(self, key: str, start: int, end: int) -> bytes:
        content = self.objects.get(key)
        if content is None:
            raise ObjectMissing(key)
        if end > len(content):
            raise RangeMissing(f"{key} has {len(content)} bytes, {start} to {end} are asked for.")
        self.bytes_read += end - start
        return content[start:end]


async def _sleep_ms(delay_ms: int) -> None:
    await asyncio.sleep(delay_ms / 1000)


class MemoryStore:
    def __init__(
        self, bucket: MemoryBucket, files: Files, sleep_ms: Callable[[int], Awaitable[None]] = _sleep_ms
    ) -> None:
        self._bucket = bucket
        self._files = files
        self._sleep_ms = sleep_ms

    async def begin(self) -> None:
        pass

    async def put(self, key: str, parts: Sequence[Source]) -> None:
        check_key(key)
        content = b"".join(pieces(self._files, parts, PIECE_BYTES_MAX))
        mishap = await self._begin("put", key)
        if mishap.late_ms:
            self._later(mishap, "put", key, lambda: self._bucket.objects.setdefault(key, content))
        self._bucket.put(key, content)
        _end("put", key, mishap)

    async def get(self, key: str, start: int, end: int) -> bytes:
        check_key(key)
        assert 0 <= start < end, (start, end)
        mishap = await self._begin("get", key)
        content = self._bucket.get(key, start, end)
        _end("get", key, mishap)
        return content

    async def size(self, key: str) -> int:
        check_key(key)
        mishap = await self._begin("size", key)
        if key not in self._bucket.objects:
            raise ObjectMissing(key)
        size = len(self._bucket.objects[key])
        _end("size", key, mishap)
        return size

    async def delete(self, key: str) -> None:
        check_key(key)
        mishap = await self._begin("delete", key)
        if mishap.late_ms:
            self._later(mishap, "delete", key, lambda: self._bucket.objects.pop(key, None))
        self._bucket.objects.pop(key, None)
        _end("delete", key, mishap)

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        check_prefix(prefix)
        after = ""
        while True:
            mishap = await self._begin("list", prefix)
            keys = sorted(key for key in self._bucket.objects if key.startswith(prefix) and key > after)
            page = [(key, len(self._bucket.objects[key])) for key in keys[:LISTED_AT_ONCE]]
            _end("list", prefix, mishap)
            for entry in page:
                yield entry
            if len(keys) <= LISTED_AT_ONCE:
                return
            after = page[-1][0]

    async def close(self) -> None:
        pass

    def _later(self, mishap: Mishap, operation: str, key: str, work: Callable[[], object]) -> NoReturn:
        asyncio.get_running_loop().call_later(mishap.late_ms / 1000, work)
        raise StoreUnavailable(f"The object store does not answer {operation} of {key} in time.")

    async def _begin(self, operation: str, key: str) -> Mishap:
        self._bucket.calls[operation] = self._bucket.calls.get(operation, 0) + 1
        mishap = self._bucket.mishap(operation, key)
        if mishap.delay_ms:
            await self._sleep_ms(mishap.delay_ms)
        if mishap.fails:
            raise StoreUnavailable(f"The object store fails at {operation} of {key}.")
        return mishap


def _end(operation: str, key: str, mishap: Mishap) -> None:
    if mishap.answer_lost:
        raise StoreUnavailable(f"The answer of the object store to {operation} of {key} is lost.")
