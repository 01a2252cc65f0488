"""Producer ids for this node, from blocks that it takes out of the store. No id is ever given twice."""

import asyncio

from headrace.metadata import records
from headrace.metadata.store import Cmp, MetadataStoreError, MetaStore, OutcomeUnknown, Put

BLOCK = 1_000
PREFETCH_BELOW = BLOCK // 10
WAIT_S = 10
"""How long a caller waits for a block before it hears that there is none."""
_ATTEMPTS = 10
_LAST_ID = 2**63 - 1


class ProducerIds:
    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._block = iter(range(0))
        self._left = 0
        self._reserve: range | None = None
        self._fetching: asyncio.Task[bool] | None = None

    async def next(self) -> int | None:
        """None when no id is left and the store gives no block."""
        while (taken := self.take()) is None:
            fetch = self._fetch()
            await asyncio.wait([fetch], timeout=WAIT_S)
            if not fetch.done() or fetch.cancelled() or not fetch.result():
                return None
        return taken

    def take(self) -> int | None:
        """One that is here already; None: it has to be waited for."""
        if self._left == 0:
            if self._reserve is None:
                return None
            self._block, self._left, self._reserve = iter(self._reserve), len(self._reserve), None
        self._left -= 1
        if self._left < PREFETCH_BELOW and self._reserve is None:
            self._fetch()
        return next(self._block)

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    def _fetch(self) -> asyncio.Task[bool]:
        """One at a time, whoever asks for it."""
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fill_reserve())
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    def _fetched(self, task: asyncio.Task[bool]) -> None:
        self._fetching = None
        if not task.cancelled():
            task.result()  # raises what is a bug

    async def _fill_reserve(self) -> bool:
        for _ in range(_ATTEMPTS):
            try:
                self._reserve = await self._take_block()
            except OutcomeUnknown:
                continue  # that block is lost, or never was: only one whose write is known to have succeeded counts
            except MetadataStoreError:
                return False
            if self._reserve is not None:
                return True
        return False

    async def _take_block(self) -> range | None:
        key = records.PRODUCER_IDS_KEY
        kvs, _ = await self._store.load(key)
        first, rev = 0, 0
        if kvs:
            first, rev = records.decode(records.ProducerIdsRecord, key, kvs[0].value).next, kvs[0].mod_rev
        after = first + BLOCK
        if after > _LAST_ID:
            raise MetadataStoreError("No producer ids are left")
        ok, _ = await self._store.txn([Cmp(key, rev)], [Put(key, records.encode(records.ProducerIdsRecord(after)))])
        return range(first, after) if ok else None
