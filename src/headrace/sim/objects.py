"""An object store on virtual time, which all nodes of a world share.

It is nobody's process: what a node has sent arrives though the node be dead by then, and its objects outlive every
power cut. How well it is reached, and whether its answers come back, is another matter for each node.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar

from headrace.sim.loop import Process, SimLoop
from headrace.storage.files import Files
from headrace.tier.memory import LISTED_AT_ONCE, PIECE_BYTES_MAX, MemoryBucket
from headrace.tier.sources import pieces
from headrace.tier.store import ObjectMissing, Source, StoreUnavailable, check_key, check_prefix

T = TypeVar("T")

DELAY_S_MIN, DELAY_S_MAX = 0.002, 0.03
LATE_S_MAX = 4.0
WRITES = ("put", "delete")


@dataclass(slots=True)
class Weather:
    """How one node reaches the store. Shares are of its calls, from 0 to 1."""

    away: bool = False
    """Nothing arrives."""
    slow_s: float = 0.0
    """A call takes up to so much longer."""
    failing: float = 0.0
    """So many do nothing, and say so."""
    silent: float = 0.0
    """So many are done, and their answers are lost."""
    late: float = 0.0
    """So many writes are told as failed, and are done seconds later nevertheless."""

    def clear(self) -> None:
        self.away = False
        self.slow_s = self.failing = self.silent = self.late = 0.0


class SimObjects:
    """The store itself."""

    def __init__(self, loop: SimLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.bucket = MemoryBucket()
        self.under_way = 0
        """Writes that were sent, and are not done yet."""

    def open(self, process: Process, files: Files, weather: Weather) -> "SimObjectStore":
        return SimObjectStore(self, process, files, weather)


class SimObjectStore:
    """A client of it, in one process."""

    def __init__(self, objects: SimObjects, process: Process, files: Files, weather: Weather) -> None:
        self._objects = objects
        self._bucket = objects.bucket
        self._process = process
        self._files = files
        self._weather = weather

    async def begin(self) -> None:
        pass

    async def put(self, key: str, parts: Sequence[Source]) -> None:
        check_key(key)
        content = b"".join(pieces(self._files, parts, PIECE_BYTES_MAX))
        await self._ask("put", key, lambda: self._bucket.put(key, content))

    async def get(self, key: str, start: int, end: int) -> bytes:
        check_key(key)
        assert 0 <= start < end, (start, end)
        return await self._ask("get", key, lambda: self._bucket.get(key, start, end))

    async def size(self, key: str) -> int:
        check_key(key)
        return await self._ask("size", key, lambda: self._size(key))

    async def delete(self, key: str) -> None:
        check_key(key)
        await self._ask("delete", key, lambda: self._bucket.objects.pop(key, None))

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        check_prefix(prefix)
        after = ""
        while True:
            page = await self._ask("list", prefix, partial(_page, self._bucket.objects, prefix, after))
            for entry in page:
                yield entry
            if len(page) < LISTED_AT_ONCE:
                return
            after = page[-1][0]

    async def close(self) -> None:
        pass

    def _size(self, key: str) -> int:
        content = self._bucket.objects.get(key)
        if content is None:
            raise ObjectMissing(key)
        return len(content)

    async def _ask(self, operation: str, key: str, work: Callable[[], T]) -> T:
        """Sent now, done at the store, and answered, each at a time of its own."""
        objects, weather, random = self._objects, self._weather, self._objects.random
        loop = objects.loop
        self._bucket.calls[operation] = self._bucket.calls.get(operation, 0) + 1
        there_s = loop.now_s + random.uniform(DELAY_S_MIN, DELAY_S_MAX) + random.random() * weather.slow_s
        back_s = there_s + random.uniform(DELAY_S_MIN, DELAY_S_MAX)
        fails, is_silent, is_late = (
            random.random() < share for share in (weather.failing, weather.silent, weather.late)
        )
        answer = loop.create_future()
        if weather.away or fails:
            loop.at(back_s, self._process, _settle, answer, None, _unavailable("fails at", operation, key))
            return await answer  # type: ignore[no-any-return]  # the future of the loop holds anything
        is_write = operation in WRITES

        def arrive() -> None:
            objects.under_way -= is_write
            result, failure = None, None
            try:
                result = work()
            except Exception as error:  # as a server answers with it
                failure = error
            if is_silent or is_late:
                failure = _unavailable("does not answer", operation, key)
            if not (is_late and is_write):
                loop.at(back_s, self._process, _settle, answer, result, failure)

        objects.under_way += is_write
        if is_late and is_write:
            loop.at(back_s, self._process, _settle, answer, None, _unavailable("does not answer", operation, key))
            there_s += random.random() * LATE_S_MAX
        loop.at(there_s, loop.outside, arrive)
        return await answer  # type: ignore[no-any-return]  # the future of the loop holds anything


def _page(objects: dict[str, bytes], prefix: str, after: str) -> list[tuple[str, int]]:
    keys = sorted(key for key in objects if key.startswith(prefix) and key > after)
    return [(key, len(objects[key])) for key in keys[:LISTED_AT_ONCE]]


def _unavailable(does: str, operation: str, key: str) -> StoreUnavailable:
    return StoreUnavailable(f"The object store {does} {operation} of {key}.")


def _settle(answer: Any, result: object, failure: Exception | None) -> None:
    if answer.cancelled():
        return
    if failure is not None:
        answer.set_exception(failure)
    else:
        answer.set_result(result)
