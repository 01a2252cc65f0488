"""What is on its way from the tier: so many loads at once, each with its room in the cache before it begins.

What somebody waits for goes before what is read ahead. A segment that could not be read is left alone for a while.
"""

import asyncio
import ctypes
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from headrace.broker.tier_metrics import Counts
from headrace.core.tier_rows import Section, SegmentRow
from headrace.errors import CorruptLog, ErrorCode
from headrace.runtime import Clock
from headrace.tier.read_cache import ReadCache
from headrace.tier.store import ObjectMissing, ObjectStore, StoreUnavailable, what_is_missing

log = logging.getLogger(__name__)

BACKOFF_MS = 1_000
FAILURES_MAX = 1_000
ROOM_WAIT_S = 0.25

STEP_BYTES = 1 << 20
"""Of what is in memory and somebody else's requests come before: so much is copied in one turn of the loop. Most loads
are one step: others meet each of them."""


class RemotePartition(Protocol):
    """What is asked of a partition whose older part is in the tier."""

    @property
    def local_log_start_offset(self) -> int: ...


class Want(NamedTuple):
    """What somebody will read next. `is_committed`: with the transactions that it must leave out."""

    partition: RemotePartition
    offset: int
    is_committed: bool


LoadKey: TypeAlias = tuple[str, str | int]
"""The segment, and where in its log, or what else of it."""


class Load(NamedTuple):
    partition: RemotePartition
    key: LoadKey
    row: SegmentRow
    object_key: str
    section: Section
    weight: int
    """Of what is kept of it."""
    keep: Callable[["Loaded"], None]
    """Raises CorruptLog."""


class Loaded(NamedTuple):
    content: bytes | bytearray
    is_ahead: bool = False
    """Nobody waits for it yet."""
    is_near: bool = False
    """It was in memory, and what follows it will be."""
    is_passing: bool = False
    """Who asked for it reads it now, and nobody else waits for it."""


class NearStore(Protocol):
    """A store on this machine."""

    async def get_and_keep(self, key: str, start: int, end: int) -> bytes:
        """As that of an object store; `read_at_once` can be tried from then on."""
        ...

    def read_at_once(self, key: str, start: int, into: memoryview) -> bool:
        """Fills `into`, if that needs no waiting. If not, what it holds is anything."""
        ...

    def forget(self, key: str) -> None:
        """What was read of it is not what it should be."""
        ...


class _Failure(NamedTuple):
    """`error` is told to readers; without one they wait, and it is tried again."""

    until_ms: int
    error: ErrorCode | None


class TierLoads:
    """`next_load` says what must come first for a want, None if nothing need or can; `loaded` is told then."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        store: ObjectStore,
        near: NearStore | None,
        cache: ReadCache,
        next_load: Callable[[Want], Load | None],
        loaded: Callable[[RemotePartition], None],
        counts_of: Callable[[RemotePartition], Counts],
        running_max: int,
        waiting_max: int,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._store = store
        self._near = near
        self._near_turn = asyncio.Lock()
        self._cache = cache
        self._next_load = next_load
        self._loaded = loaded
        self._counts_of = counts_of
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._waiting: dict[Want, None] = {}
        self._running: dict[LoadKey, list[Want]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[str, _Failure] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def idle_share(self) -> float:
        """Of what may run at once."""
        return 1 - len(self._running) / self._running_max

    def ask(self, want: Want) -> bool:
        """Loads what is missing. False when too much is asked for already."""
        if want in self._waiting or any(want in wants for wants in self._running.values()):
            return True
        if len(self._waiting) >= self._waiting_max:
            self._counts_of(want.partition).fetch_errors += 1
            return False
        self._waiting[want] = None
        self._pump()
        return True

    @property
    def is_near(self) -> bool:
        """The store is on this machine."""
        return self._near is not None

    def is_running(self, key: LoadKey) -> bool:
        return key in self._running

    @property
    def can_go_ahead(self) -> bool:
        """Nobody is kept waiting for it."""
        return not self._waiting and len(self._running) < self._running_max

    def ahead(self, load: Load) -> bool:
        """Loads what nobody waits for yet. False if not now."""
        if load.key in self._running:
            return True
        return self.can_go_ahead and not self.is_failed(load.row) and self._start(load, None)

    def is_failed(self, row: SegmentRow) -> bool:
        """It was tried a moment ago."""
        failure = self._failures.get(row.id)
        return failure is not None and failure.until_ms > self._clock.monotonic_ms()

    def error_of(self, row: SegmentRow) -> ErrorCode | None:
        """Why it cannot be read; None if it can, or if that will be tried again by itself."""
        return self._failures[row.id].error if self.is_failed(row) else None

    def fail(self, partition: RemotePartition, row: SegmentRow, error: ErrorCode | None, why: str) -> None:
        self._counts_of(partition).fetch_errors += 1
        log.warning("remote segment %d (%s) cannot be read: %s", row.base_offset, row.id, why)
        if len(self._failures) >= FAILURES_MAX:
            self._failures.clear()
        self._failures[row.id] = _Failure(self._clock.monotonic_ms() + BACKOFF_MS, error)

    def _pump(self) -> None:
        told: dict[RemotePartition, None] = {}
        for want in list(self._waiting):
            if len(self._running) >= self._running_max:
                break
            load = self._next_load(want)
            if load is None:
                del self._waiting[want]
                told[want.partition] = None
            elif load.key in self._running:
                del self._waiting[want]
                self._running[load.key].append(want)
            elif self._start(load, want):
                del self._waiting[want]
            else:
                self._pump_later()
                break
        for partition in told:
            self._loaded(partition)

    def _pump_later(self) -> None:
        """All room is taken by what somebody will read soon, or by what is on its way."""
        if self._timer is None:
            self._timer = self._loop.call_later(ROOM_WAIT_S, self._pump_again)

    def _pump_again(self) -> None:
        self._timer = None
        self._pump()

    def _start(self, load: Load, want: Want | None) -> bool:
        if not self._make_room(load, is_ahead=want is None):
            return False
        self._running[load.key] = [] if want is None else [want]
        task = self._loop.create_task(self._run(load))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def _make_room(self, load: Load, *, is_ahead: bool = False) -> bool:
        now_ms = self._clock.monotonic_ms()
        return self._cache.make_room(load.weight, now_ms, row_id=load.row.id, is_ahead=is_ahead)

    def at_once(self, load: Load) -> bool:
        """Whether it was in memory on this machine, and has been kept."""
        if self._near is None or load.key in self._running or self.is_failed(load.row):
            return False
        if not self._seems_near(load) or not self._make_room(load):
            return False
        start, size = load.section
        try:
            content = _unfilled(size)
            is_there = self._near.read_at_once(load.object_key, start, memoryview(content))
        finally:
            self._cache.give_back(load.weight)
        if is_there:
            self._counts_of(load.partition).fetch_requests += 1
            self._keep(load, Loaded(content, is_near=True, is_passing=True))
        return is_there

    def _seems_near(self, load: Load) -> bool:
        """Its last byte is in memory, and most likely the others are."""
        start, size = load.section
        return (
            self._near is not None
            and size > 0
            and self._near.read_at_once(load.object_key, start + size - 1, memoryview(bytearray(1)))
        )

    async def _in_turn(self, load: Load) -> bytearray | None:
        """The same, but of all that is read in this way only one step in each turn of the loop."""
        if self._near is None or not self._seems_near(load):
            return None
        start, size = load.section
        content = _unfilled(size)
        async with self._near_turn:
            for at in range(0, size, STEP_BYTES):
                if not self._near.read_at_once(load.object_key, start + at, memoryview(content)[at : at + STEP_BYTES]):
                    return None
                await asyncio.sleep(0)
        return content

    async def _run(self, load: Load) -> None:
        start, size = load.section
        loaded: Loaded | None = None
        self._counts_of(load.partition).fetch_requests += 1
        try:
            near = await self._in_turn(load)
            get = self._store.get if self._near is None else self._near.get_and_keep
            far = await get(load.object_key, start, start + size) if near is None and size else b""
            loaded = Loaded(far if near is None else near, is_near=near is not None)
        except StoreUnavailable as failure:
            self.fail(load.partition, load.row, None, str(failure))
        except ObjectMissing as failure:
            self.fail(load.partition, load.row, ErrorCode.KAFKA_STORAGE_ERROR, what_is_missing(failure))
        finally:
            self._cache.give_back(load.weight)
            wants = self._running.pop(load.key)
        if loaded is not None:
            self._keep(load, loaded._replace(is_ahead=not wants))
        self._waiting = dict.fromkeys([*wants, *self._waiting])
        self._pump()

    def _keep(self, load: Load, loaded: Loaded) -> None:
        self._counts_of(load.partition).fetched_bytes += len(loaded.content)
        self._failures.pop(load.row.id, None)
        try:
            load.keep(loaded)
        except CorruptLog as failure:
            if self._near is not None:
                self._near.forget(load.object_key)
            self.fail(load.partition, load.row, ErrorCode.KAFKA_STORAGE_ERROR, str(failure))

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


_byte_array = ctypes.pythonapi.PyByteArray_FromStringAndSize
_byte_array.argtypes, _byte_array.restype = (ctypes.c_void_p, ctypes.c_ssize_t), ctypes.py_object


def _unfilled(size: int) -> bytearray:
    """Its bytes are anything: to fill a megabyte with zeros takes half as long as to read it."""
    made: bytearray = _byte_array(None, size)
    return made
