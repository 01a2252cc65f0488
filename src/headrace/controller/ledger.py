"""The controller's decisions: one at a time, each written, then awaited in the image.

After a failed compare or an unknown outcome the controller's key is moved, so that nothing written before can still
happen, the image is awaited that holds what did, and the decision is made again, until it is settled or the caller's
time is over. What is not settled then may still happen: nothing is said of it but that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headrace.controller import writing
from headrace.controller.feed import Feed
from headrace.controller.fence import FencedStore, NotController
from headrace.controller.loading import Office
from headrace.core.cluster import ClusterImage
from headrace.metadata.store import MetadataStoreError, MetaStore, OutcomeUnknown, UnreadableMetadata

log = logging.getLogger(__name__)

TIMEOUT_MS = 30_000
"""For requests that name none."""
TIMEOUT_MS_MAX = 600_000
_RETRY_S = 0.05


class Ledger:
    def __init__(self, store: MetaStore, feed: Feed) -> None:
        self.store = FencedStore(store)
        self.feed = feed
        self.failure = ""
        """Why the last attempt that failed did so: one sentence."""
        self.on_deposed: Callable[[], None] = lambda: None
        self._turn = asyncio.Lock()
        self._stale = False
        self._running: set[asyncio.Task[bool]] = set()

    @property
    def image(self) -> ClusterImage:
        return self.feed.image

    @property
    def epoch(self) -> int:
        """Of this node as controller; 0 when it is not."""
        return self.store.epoch

    def open(self, office: Office, lease_id: int) -> None:
        """This node decides from here on. The image holds the office."""
        self.store.take(office, lease_id)
        self._stale = bool(self.feed.deltas.unfinished)

    def shut(self) -> None:
        self.store.drop()

    def doubt(self) -> None:
        """Something was written whose outcome is not known: it is settled before the next decision."""
        self._stale = True

    async def settle(self, attempt: Callable[[], Awaitable[bool]], timeout_ms: int = 0) -> bool:
        """Repeats the attempt until it says that it is settled; False when time is over.

        An attempt decides on the image as it is, and goes on in the background when its caller no longer waits.
        Raises NotController when another node decides, and nothing of this attempt can still happen.
        """
        if not self.epoch:
            raise NotController
        timeout_s = (min(timeout_ms, TIMEOUT_MS_MAX) if timeout_ms > 0 else TIMEOUT_MS) / 1000
        task = asyncio.create_task(self._repeat(attempt, timeout_s))
        self._running.add(task)
        task.add_done_callback(self._finished)
        done, _ = await asyncio.wait([task], timeout=timeout_s)
        return bool(done) and task.result()

    def _finished(self, task: asyncio.Task[bool]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may no longer be there to hear of it

    async def drain(self, timeout_ms: int) -> None:
        """Waits for decisions under way; those that are not done then are given up."""
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=timeout_ms / 1000)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _repeat(self, attempt: Callable[[], Awaitable[bool]], timeout_s: float) -> bool:
        time = asyncio.get_running_loop().time
        deadline = time() + timeout_s
        in_doubt = False
        told = ""
        async with self._turn:
            while time() < deadline:
                try:
                    if await self._try(attempt, deadline):
                        return True
                except UnreadableMetadata as failure:
                    self.failure = str(failure)
                    log.error("metadata cannot be changed: %s", failure)
                    return False
                except NotController:
                    if in_doubt:
                        return False
                    raise
                except (OutcomeUnknown, MetadataStoreError) as failure:
                    in_doubt |= isinstance(failure, OutcomeUnknown)
                    level = logging.DEBUG if told == str(failure) else logging.WARNING
                    self.failure = told = str(failure)
                    log.log(level, "a change of metadata is tried again: %s", failure)
                self._stale = True
                await asyncio.sleep(_RETRY_S)
        return False

    async def _try(self, attempt: Callable[[], Awaitable[bool]], deadline: float) -> bool:
        await self._catch_up(deadline)
        if not self.epoch:
            raise NotController
        if self._stale:
            await self._refresh(deadline)
        if not await attempt():
            return False
        await self._catch_up(deadline)
        return True

    async def _catch_up(self, deadline: float) -> None:
        """Raises MetadataStoreError when the image does not hold in time what was written."""
        try:
            async with asyncio.timeout_at(deadline):
                await self.feed.reached(self.store.written_rev)
        except TimeoutError:
            raise MetadataStoreError(self.feed.failure or "the metadata store does not tell what was written") from None

    async def _refresh(self, deadline: float) -> None:
        try:
            await self.store.move()  # else what an earlier attempt wrote might appear later
        except NotController:
            self.store.drop()
            self.on_deposed()
            raise
        await self._catch_up(deadline)
        self._stale = False
        await self._clean_up()
        await self._catch_up(deadline)

    async def _clean_up(self) -> None:
        deltas = self.feed.deltas
        for topic_id, (record, rev) in list(deltas.unfinished.items()):
            left = deltas.leftover(topic_id, record)
            try:
                if await writing.clean_up(self.store, topic_id, record, rev, left):
                    log.info("removed %d partitions of an unfinished change of topic id %s", len(left), topic_id.hex())
            except (OutcomeUnknown, MetadataStoreError) as failure:
                self._stale = True
                log.warning("an unfinished change of topic id %s stays for now: %s", topic_id.hex(), failure)
