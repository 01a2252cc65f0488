"""The image with the store behind it: decisions one at a time, each written, then applied.

After a failed compare or an unknown outcome the image is loaded anew and the decision made again, until it is settled
or the caller's time is over. What is not settled then may still happen: nothing is said of it but that, and the image
is loaded anew before the next decision.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from headrace.controller import writing
from headrace.controller.fence import FencedStore
from headrace.controller.loading import Loaded, changes_since, decode_snapshot, leftover
from headrace.core.cluster import Change, ClusterImage, Diff
from headrace.metadata.store import MetadataStoreError, MetaStore, OutcomeUnknown, UnreadableMetadata
from headrace.runtime import Clock

log = logging.getLogger(__name__)

TIMEOUT_MS = 30_000
"""For requests that name none."""
TIMEOUT_MS_MAX = 600_000
_RETRY_S = 0.05


class Ledger:
    def __init__(self, store: MetaStore, image: ClusterImage, clock: Clock) -> None:
        self.store = FencedStore(store, image.node_id)
        self.image = image
        self.on_change: Callable[[Diff], None] = lambda _: None
        """Called in the same loop turn in which the image changes."""
        self.failure = ""
        """Why the last attempt that failed did so: one sentence."""
        self._clock = clock
        self._turn = asyncio.Lock()
        self._stale = True
        self._running: set[asyncio.Task[bool]] = set()

    def apply(self, changes: Iterable[Change]) -> None:
        self.on_change(self.image.apply(changes))

    async def settle(self, attempt: Callable[[], Awaitable[bool]], timeout_ms: int = 0) -> bool:
        """Repeats the attempt until it says that it is settled; False when time is over.

        An attempt decides on the image as it is, and goes on in the background when its caller no longer waits.
        """
        timeout_ms = min(timeout_ms, TIMEOUT_MS_MAX) if timeout_ms > 0 else TIMEOUT_MS
        task = asyncio.create_task(self._repeat(attempt, self._clock.monotonic_ms() + timeout_ms))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        done, _ = await asyncio.wait([task], timeout=timeout_ms / 1000)
        return bool(done) and task.result()

    async def drain(self, timeout_ms: int) -> None:
        """Waits for decisions under way."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_ms / 1000)

    async def _repeat(self, attempt: Callable[[], Awaitable[bool]], deadline_ms: int) -> bool:
        async with self._turn:
            while self._clock.monotonic_ms() < deadline_ms:
                try:
                    if self._stale:
                        await self._refresh()
                    if await attempt():
                        return True
                except UnreadableMetadata as failure:
                    self.failure = str(failure)
                    log.error("metadata cannot be changed: %s", failure)
                    return False
                except (OutcomeUnknown, MetadataStoreError) as failure:
                    self.failure = str(failure)
                    log.warning("a change of metadata is tried again: %s", failure)
                self._stale = True
                await asyncio.sleep(_RETRY_S)
        return False

    async def _refresh(self) -> None:
        await self.store.move()  # else what an earlier attempt wrote might appear after the image was loaded
        loaded = decode_snapshot((await self.store.load(b"/")).kvs)
        self.apply(list(changes_since(self.image, loaded)))
        self._stale = False
        await self._clean_up(loaded)

    async def _clean_up(self, loaded: Loaded) -> None:
        for topic_id, (record, rev) in loaded.unfinished.items():
            left = leftover(loaded, topic_id, record)
            try:
                if await writing.clean_up(self.store, topic_id, record, rev, left):
                    log.info("removed %d partitions of an unfinished change of topic id %s", len(left), topic_id.hex())
            except (OutcomeUnknown, MetadataStoreError) as failure:
                log.warning("an unfinished change of topic id %s stays for now: %s", topic_id.hex(), failure)
