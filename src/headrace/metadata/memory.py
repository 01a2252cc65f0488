"""The metadata store in memory: the model that other stores are tested against, and one that fails on demand.

It has no threads and no clock of its own: it runs on any event loop, also on one whose time is not real.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from enum import Enum
from typing import TypeAlias

from headrace.metadata.keeping import Keepers
from headrace.metadata.memory_data import LoopClock, MemoryData
from headrace.metadata.store import (
    Cmp,
    Lease,
    MetadataStoreError,
    OutcomeUnknown,
    Put,
    Revision,
    Snapshot,
    TxnResult,
    check_txn,
)
from headrace.runtime import Clock

__all__ = ["Fault", "MemoryData", "MemoryStore"]

_Txn: TypeAlias = tuple[Sequence[Cmp], Sequence[Put], Sequence[bytes]]


class Fault(Enum):
    """What the next transaction meets instead of an answer."""

    UNAVAILABLE = "nothing is written, and the caller is told so"
    UNKNOWN_DROPPED = "nothing is written, and the caller cannot know"
    UNKNOWN_APPLIED = "it is written, and the caller cannot know"
    UNKNOWN_LATE = "it is tried at the next apply_late(), and the caller cannot know"
    UNKNOWN_LATE_BY_ITSELF = "it is tried late_ms later, and the caller cannot know"
    UNKNOWN_TWICE = "it is written, a copy of it is tried late_ms later, and the caller cannot know"


class MemoryStore:
    """One client of the shared data: each node has its own, with faults of its own."""

    def __init__(self, data: MemoryData | None = None, clock: Clock | None = None) -> None:
        self.data = MemoryData(clock) if data is None else data
        self.faults: deque[Fault | None] = deque()
        """One is taken by each transaction; None lets it pass."""
        self.revoke_faults: deque[Fault | None] = deque()
        """One is taken by each revoke; there are no late ones."""
        self.late_ms = 1000
        self.delay_ms = 0
        """How long each operation takes, half of it before it is done; also how late a watch hears of changes."""
        self.beats_lost = False
        self._unavailable = False
        self._watch_held = False
        self._late: list[_Txn] = []
        self._watches: set[asyncio.Event] = set()
        self._clock = LoopClock() if clock is None else clock
        self._keepers = Keepers(self._clock, self._beat)
        self._closed = False

    @property
    def unavailable(self) -> bool:
        """No operation and no beat gets through, and watches are silent."""
        return self._unavailable

    @unavailable.setter
    def unavailable(self, is_unavailable: bool) -> None:
        self._unavailable = is_unavailable
        self.wake_watches()

    def hold_watch(self, held: bool = True) -> None:
        """Watches are silent while everything else works."""
        self._watch_held = held
        self.wake_watches()

    def wake_watches(self) -> None:
        """Also without a reason: a watch that is woken twice still tells everything once."""
        for woken in self._watches:
            woken.set()

    async def load(self, prefix: bytes) -> Snapshot:
        await self._reach()
        snapshot = self.data.load(prefix)
        await self._return()
        return snapshot

    async def txn(self, when: Sequence[Cmp], puts: Sequence[Put] = (), deletes: Sequence[bytes] = ()) -> TxnResult:
        check_txn(when, puts, deletes)
        await self._reach()
        match self.faults.popleft() if self.faults else None:
            case None:
                result = self.data.txn(when, puts, deletes)
                await self._return()
                return result
            case Fault.UNAVAILABLE:
                raise MetadataStoreError("The metadata store is not available")
            case Fault.UNKNOWN_APPLIED:
                self._apply((when, puts, deletes))
            case Fault.UNKNOWN_LATE:
                self._late.append((when, puts, deletes))
            case Fault.UNKNOWN_LATE_BY_ITSELF:
                self._apply_by_itself((when, puts, deletes))
            case Fault.UNKNOWN_TWICE:
                self._apply((when, puts, deletes))
                self._apply_by_itself((when, puts, deletes))
            case Fault.UNKNOWN_DROPPED:
                pass
        await self._return()
        raise OutcomeUnknown("The metadata store did not say whether it wrote")

    def apply_late(self) -> list[bool]:
        """Whether each late transaction was still possible, in order."""
        late, self._late = self._late, []
        return [self._apply(txn) for txn in late]

    async def watch(self, prefix: bytes, after_rev: int) -> AsyncGenerator[Revision, None]:
        woken, position = asyncio.Event(), after_rev
        self._watches.add(woken)
        self.data.watches.add(woken)
        try:
            while not self._closed:
                await asyncio.sleep(self.delay_ms / 1000)
                while revision := self._next_revision(position):
                    position = revision.rev
                    events = tuple(event for event in revision.events if event.key.startswith(prefix))
                    if events:
                        yield Revision(revision.rev, events)
                        await asyncio.sleep(0)
                if not self._closed:
                    await self._woken(woken)
        finally:
            self._watches.discard(woken)
            self.data.watches.discard(woken)

    async def grant(self, ttl_ms: int, beat_ms: int) -> Lease:
        sent_ms = self._clock.boot_ms()
        await self._reach()
        lease = Lease(self.data.grant(ttl_ms), ttl_ms, sent_ms)
        await self._return()
        self._keepers.keep(lease, beat_ms)
        return lease

    async def revoke(self, lease_id: int) -> None:
        given_up = await self._keepers.give_up(lease_id)
        await self._reach()
        fault = self.revoke_faults.popleft() if self.revoke_faults else None
        if fault is Fault.UNAVAILABLE:
            raise MetadataStoreError("The metadata store is not available")
        if fault is not Fault.UNKNOWN_DROPPED:
            self.data.revoke(lease_id)
        if fault is not None:
            raise OutcomeUnknown("The metadata store did not say whether it revoked the lease")
        if given_up is not None:
            given_up.lost.set()
        await self._return()

    async def compact(self, rev: int) -> None:
        await self._reach()
        self.data.compact(rev)

    async def close(self) -> None:
        self._closed = True
        self.wake_watches()
        await self._keepers.close()

    def _apply_by_itself(self, txn: _Txn) -> None:
        # In the data's context: what a node sent arrives though the node be dead by then.
        loop = asyncio.get_running_loop()
        loop.call_later(self.late_ms / 1000, self._apply, txn, context=self.data.context)

    def _apply(self, txn: _Txn) -> bool:
        try:
            return self.data.txn(*txn).ok
        except MetadataStoreError:  # its lease has gone meanwhile
            return False

    def _next_revision(self, position: int) -> Revision | None:
        if self._closed or self._unavailable or self._watch_held:
            return None
        self.data.expire()
        return self.data.next_revision(position)

    async def _woken(self, woken: asyncio.Event) -> None:
        # Whoever watches is the timer by which leases run out while nobody does anything.
        # One that hears nothing is none: it is woken when it hears again.
        expiry_ms = None if self._unavailable else self.data.next_expiry_ms()
        wait_ms = None if expiry_ms is None else max(1, expiry_ms - self.data.clock.boot_ms())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):  # wait_for may lose a cancellation
                await woken.wait()
        woken.clear()

    async def _beat(self, lease_id: int) -> bool:
        await self._reach()
        if self.beats_lost:
            raise MetadataStoreError("The metadata store did not answer")
        is_alive = self.data.beat(lease_id)
        await self._return()
        return is_alive

    async def _reach(self) -> None:
        # Every real store lets other tasks run here; so does its model, or tests would miss what they do meanwhile.
        await asyncio.sleep(self.delay_ms / 2000)
        if self._closed:
            raise MetadataStoreError("The metadata store is closed")
        if self._unavailable:
            raise MetadataStoreError("The metadata store is not available")

    async def _return(self) -> None:
        if self.delay_ms:
            await asyncio.sleep(self.delay_ms / 2000)
