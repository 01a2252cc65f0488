"""The one writer of the image: everything that the store tells, whole revisions, in order.

A decision that was written is done when its revision has come back here: what a node knows of its own writes and of
others' comes by the same way.
"""

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Callable, Iterable
from itertools import count

from headrace.controller.deltas import Deltas
from headrace.core.cluster import Change, ClusterImage, Diff
from headrace.metadata.store import Compacted, MetadataStoreError, MetaStore, UnreadableMetadata

log = logging.getLogger(__name__)

EVERYTHING = b"/"
NOTHING = Diff()
EVENTS_PER_TURN = 2_000
"""A store tells much at once when many leaders change: beats and requests must not wait for all of it."""
RETRY_S = 0.1
RETRY_UNREADABLE_S = 1.0


class Feed:
    def __init__(self, store: MetaStore, image: ClusterImage) -> None:
        self.image = image
        self.deltas = Deltas(image)
        self.listeners: list[Callable[[Diff], None]] = []
        """Called in the same loop turn in which the image changes, in this order."""
        self.failure = ""
        """Why the store cannot be followed at present: one sentence."""
        self._store = store
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._task: asyncio.Task[None] | None = None
        self._must_load = True

    @property
    def rev(self) -> int:
        return self.image.rev

    async def load(self) -> None:
        """The image is the store's content. Raises MetadataStoreError."""
        snapshot = await self._store.load(EVERYTHING)
        if snapshot.rev >= self.rev:  # else it was overtaken by the watch
            self._apply(self.deltas.of_snapshot(snapshot), snapshot.rev)
        self._must_load = False

    def follow(self) -> "asyncio.Task[None]":
        """From here on every later revision is applied. The task ends only when it is cancelled, or by a bug."""
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        return self._task

    async def reached(self, rev: int) -> None:
        """Waits until the image holds this revision."""
        if rev > self.rev:
            waiter = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (rev, next(self._numbers), waiter))
            await waiter

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _follow(self) -> None:
        while True:
            try:
                if self._must_load:
                    await self.load()
                async with contextlib.aclosing(self._store.watch(EVERYTHING, self.rev)) as revisions:
                    events = 0
                    async for revision in revisions:
                        self.failure = ""
                        self._apply(self.deltas.of_revision(revision), revision.rev)
                        events += len(revision.events)
                        if events >= EVENTS_PER_TURN:
                            events = 0
                            await asyncio.sleep(0)
                await asyncio.sleep(RETRY_S)  # the store was closed
            except Compacted:
                self._must_load = True
            except UnreadableMetadata as failure:
                self._must_load = True
                log.error("metadata cannot be followed: %s", failure)
                self.failure = str(failure)
                await asyncio.sleep(RETRY_UNREADABLE_S)
            except MetadataStoreError as failure:
                self.failure = str(failure)
                await asyncio.sleep(RETRY_S)

    def touch(self) -> None:
        """Listeners look again: something beside the image has changed."""
        self._tell(Diff())

    def _tell(self, diff: Diff) -> None:
        for listener in list(self.listeners):
            listener(diff)

    def _apply(self, changes: Iterable[Change], rev: int) -> None:
        diff = self.image.apply(changes, rev)
        if diff != NOTHING:
            self._tell(diff)
        while self._waiting and self._waiting[0][0] <= rev:
            _, _, waiter = heapq.heappop(self._waiting)
            if not waiter.done():
                waiter.set_result(None)
