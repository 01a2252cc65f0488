"""Writing, settling and forgetting the generations that the metadata store remembers.

The writes of one entry follow each other. One whose outcome is not known leaves its entry in doubt: before anything is
said of the resource again, what may have been written is read, and written once more, so that it can happen no later.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable, Coroutine, Iterable
from enum import Enum
from itertools import count
from typing import Any

from headrace.broker.partitions import Hosted
from headrace.controller.own_keys import OwnKeys
from headrace.core.cluster import OwnedRecord
from headrace.core.ownership import Entry, Key
from headrace.metadata.store import Cmp, MetadataStoreError, OutcomeUnknown
from headrace.runtime import Clock

log = logging.getLogger(__name__)

RETRY_S = 0.05
FORGET_AGAIN_MS = 1_000


class Written(Enum):
    DONE = 0
    NOT_LEADER = 1
    """Somebody else leads the resource, says the store."""
    UNKNOWN = 2


Where = Callable[[Entry], Hosted | int | None]
"""The partition that this node leads, or its term as controller; None when neither holds any more."""


class KeyWriter:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        keys: OwnKeys,
        where: Where,
        changed: Callable[[Entry], None],
    ) -> None:
        """`changed` is told when a key counts no more, or is known better."""
        self._loop = loop
        self._clock = clock
        self._keys = keys
        self._where = where
        self._changed = changed
        self._last: dict[Entry, asyncio.Task[None]] = {}
        self._expiring: list[tuple[int, int, Entry]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    # Writing.

    def put(self, entry: Entry, record: OwnedRecord, then: Callable[[Written], None]) -> None:
        """`then` is called once, and never from in here."""

        async def write() -> None:
            outcome = await self._put(entry, record)
            if outcome is Written.UNKNOWN:
                entry.doubt = record
            then(outcome)

        self._start(entry, write)

    def settle(self, entries: Iterable[Entry], then: Callable[[], None]) -> None:
        """Ends the doubt about each of them, if the store lets it, and then calls back."""
        left = {entry for entry in entries if entry.doubt is not None}

        def one_is_done(entry: Entry) -> None:
            left.discard(entry)
            if not left:
                then()

        for entry in list(left):
            self._settle(entry, one_is_done)

    def _settle(self, entry: Entry, then: Callable[[Entry], None]) -> None:
        async def write() -> None:
            record = entry.doubt
            if record is not None:
                await self._put(entry, record)
                self._changed(entry)
            then(entry)

        self._start(entry, write)

    def _start(self, entry: Entry, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        before = self._last.get(entry)
        entry.writing += 1

        async def after() -> None:
            if before is not None:
                await asyncio.wait([before])
            try:
                await work()
            finally:
                entry.writing -= 1
                if self._last.get(entry) is task:
                    del self._last[entry]
                self._changed(entry)

        task = self._loop.create_task(after())
        self._last[entry] = task

    async def _put(self, entry: Entry, record: OwnedRecord) -> Written:
        """Until it is written, somebody else leads, or nobody knows."""
        fence: Cmp | None = None
        must_read = entry.doubt is not None
        while True:
            try:
                if must_read:
                    fence = await self._read(entry)
                    if entry.doubt is not None and entry.key.record == entry.doubt:
                        entry.doubt = None  # it was written, and is seen
                        if record == entry.key.record:
                            return Written.DONE
                else:
                    fence = self._fence(entry)
                if fence is None:
                    return Written.NOT_LEADER
                ok, rev = await self._keys.put(entry.group, entry.resource, record, entry.key.compared, fence)
            except MetadataStoreError:
                await asyncio.sleep(RETRY_S)
                must_read = True
                if self._where(entry) is None:
                    return Written.NOT_LEADER
                continue
            except OutcomeUnknown:
                return Written.UNKNOWN
            if ok:
                entry.key, entry.doubt = Key(record, rev), None
                if entry.tenure is None:
                    self.expire_later(entry)
                return Written.DONE
            must_read = True

    def _fence(self, entry: Entry) -> Cmp | None:
        where = self._where(entry)
        if isinstance(where, Hosted):
            return self._keys.partition_fence(where.topic_id, where.index, where.leader_epoch)
        return None if where is None else self._keys.office_fence(where)

    async def _read(self, entry: Entry) -> Cmp | None:
        where = self._where(entry)
        if where is None:
            return None
        record, rev = await self._keys.read(entry.group, entry.resource)
        if rev > entry.key.rev or record is None:
            entry.key = Key(record, rev)
        if isinstance(where, Hosted):
            return await self._keys.read_partition_fence(where.topic_id, where.index, where.leader_epoch)
        return self._keys.office_fence(where)

    # Forgetting.

    def expire_later(self, entry: Entry) -> None:
        """At `expires_ms`, if nobody owns it then."""
        if entry.is_expiring:
            return  # it is looked at no later, and again
        entry.is_expiring = True
        heapq.heappush(self._expiring, (entry.expires_ms, next(self._numbers), entry))
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._expiring:
            wait_ms = max(0, self._expiring[0][0] - self._clock.monotonic_ms())
            self._timer = self._loop.call_later(wait_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._expiring and self._expiring[0][0] <= now_ms:
            _, _, entry = heapq.heappop(self._expiring)
            entry.is_expiring = False
            if entry.tenure is not None or entry.key.record is None or self._where(entry) is None:
                continue
            if entry.expires_ms > now_ms:
                self.expire_later(entry)
            else:
                self._changed(entry)
                self._forget(entry)
        self._set_timer()

    def _forget(self, entry: Entry) -> None:
        async def write() -> None:
            if entry.tenure is not None or entry.key.record is None:
                return
            try:
                fence = self._fence(entry)
                if fence is None:
                    return
                ok, rev = await self._keys.delete(entry.group, entry.resource, entry.key.compared, fence)
                if ok:
                    entry.key = Key(None, rev)
                    return
                await self._read(entry)
            except (MetadataStoreError, OutcomeUnknown) as failure:
                log.info("%s is forgotten later: %s", entry, failure)
            self._loop.call_later(FORGET_AGAIN_MS / 1000, self._forget_again, entry)

        self._start(entry, write)

    def _forget_again(self, entry: Entry) -> None:
        is_stored = entry.tenure is None and entry.key.record is not None
        if is_stored and self._where(entry) is not None and entry.retained(self._clock.monotonic_ms()) is None:
            self._forget(entry)

    # The end.

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._expiring.clear()
        for task in list(self._last.values()):
            task.cancel()
            await asyncio.wait([task])
