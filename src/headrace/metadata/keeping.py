"""Keeps leases alive, for every kind of store."""

import asyncio
from collections.abc import Awaitable, Callable

from headrace.metadata.store import Lease, MetadataStoreError
from headrace.runtime import Clock

_RETRY_MS = 200
"""How soon a beat that failed is followed by the next."""


class Keepers:
    """The leases of one store's client, each with the task that beats for it.

    `beat` asks the store to prolong a lease; it says False when the lease is gone, and raises MetadataStoreError when
    the store cannot be asked.
    """

    def __init__(self, clock: Clock, beat: Callable[[int], Awaitable[bool]]) -> None:
        self._clock = clock
        self._beat = beat
        self._kept: dict[int, tuple[Lease, asyncio.Task[None]]] = {}

    def keep(self, lease: Lease, beat_ms: int) -> None:
        self._kept[lease.id] = lease, asyncio.create_task(self._keep(lease, beat_ms))

    async def give_up(self, lease_id: int) -> Lease | None:
        """From here on the lease is not prolonged, and its holder must not rely on it."""
        if lease_id not in self._kept:
            return None
        lease, task = self._kept.pop(lease_id)
        lease.is_given_up = True
        await _end(task)
        return lease

    async def close(self) -> None:
        kept, self._kept = self._kept, {}
        for _, task in kept.values():
            await _end(task)

    async def _keep(self, lease: Lease, beat_ms: int) -> None:
        wait_ms = beat_ms
        while True:
            await asyncio.sleep(wait_ms / 1000)
            sent_ms = self._clock.boot_ms()
            try:
                is_alive = await self._beat(lease.id)
            except MetadataStoreError:
                wait_ms = min(beat_ms, _RETRY_MS)
                continue
            if not is_alive:
                lease.lost.set()
                return
            lease.beat_sent_ms = sent_ms
            wait_ms = beat_ms


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
