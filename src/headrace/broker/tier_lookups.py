"""Lookups by time that need the tier: each by itself, so many at once, until somebody stops waiting."""

import asyncio
import logging
from collections.abc import Callable

from headrace.broker.partitions import Hosted
from headrace.broker.tier import Tier, TierLog
from headrace.core.tier_lineage import RemoteLog
from headrace.core.tier_rows import SegmentRow
from headrace.errors import CorruptLog, ErrorCode
from headrace.storage.times import Found
from headrace.tier.store import ObjectMissing, StoreUnavailable
from headrace.tier.times import RemoteSegment, first_at_or_after, newest

log = logging.getLogger(__name__)

RETRY_S = 0.5
MAX_TIMESTAMP = -3


class Lookup:
    """`done` is called once, unless it is cancelled: with what was found, or why nothing can be told."""

    def __init__(
        self,
        partition: Hosted,
        timestamp: int,
        limit_offset: int,
        leader_epoch: int,
        done: Callable[[Found | ErrorCode | None], None],
    ) -> None:
        self.partition = partition
        self.timestamp = timestamp
        self.limit_offset = limit_offset
        self.leader_epoch = leader_epoch
        """That the caller named, or -1."""
        self.done = done


class TierLookups:
    def __init__(self, loop: asyncio.AbstractEventLoop, tier: Tier, at_once: int) -> None:
        self._loop = loop
        self._tier = tier
        self._slots = asyncio.Semaphore(at_once)
        self._tasks: dict[Lookup, asyncio.Task[None]] = {}

    @property
    def running(self) -> list[Lookup]:
        return list(self._tasks)

    def is_needed(self, partition: Hosted, timestamp: int) -> bool:
        """Whether the answer may lie in what is in the tier alone. Raises OSError, CorruptLog."""
        if partition.local_log_start_offset <= partition.log_start_offset:
            return False
        known = self._tier.log_of(partition)
        if known is None or known.manifest is None:
            return True
        return any(row.max_timestamp_ms >= timestamp for row in _rows(known.remote, partition))

    def begin(self, lookup: Lookup) -> None:
        task = self._tasks[lookup] = self._loop.create_task(self._run(lookup))
        task.add_done_callback(lambda _: self._tasks.pop(lookup, None))

    def cancel(self, lookup: Lookup) -> None:
        task = self._tasks.pop(lookup, None)
        if task is not None:
            task.cancel()

    def ended(self, partition: Hosted) -> None:
        """This node does not lead it any more: nobody need wait for the answer."""
        for lookup in [lookup for lookup in self._tasks if lookup.partition is partition]:
            self.cancel(lookup)
            lookup.done(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, lookup: Lookup) -> None:
        found = await self._find(lookup)
        self._tasks.pop(lookup, None)
        lookup.done(found)

    async def _find(self, lookup: Lookup) -> Found | ErrorCode | None:
        """Tried again for as long as somebody waits: what a store refuses now it may give later."""
        while True:
            known = self._tier.log_of(lookup.partition)
            if known is None:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            await known.is_loaded.wait()
            try:
                async with self._slots:
                    return await self._look(known, lookup)
            except (OSError, CorruptLog) as failure:
                log.error("%s: a lookup by time failed: %s", lookup.partition, failure)
                return ErrorCode.KAFKA_STORAGE_ERROR
            except (StoreUnavailable, ObjectMissing) as failure:
                log.debug("%s: a lookup by time is tried again: %s", lookup.partition, failure)
                await asyncio.sleep(RETRY_S)

    async def _look(self, known: TierLog, lookup: Lookup) -> Found | None:
        partition, limit = lookup.partition, lookup.limit_offset
        key_of, store = self._tier.segment_key, self._tier.store
        while True:
            start, local_start = partition.log_start_offset, partition.local_log_start_offset
            segments = [RemoteSegment(store, key_of(partition, row), row) for row in _rows(known.remote, partition)]
            remote_limit = min(limit, local_start)
            if lookup.timestamp == MAX_TIMESTAMP:
                return await newest(segments, start, remote_limit, partition.log.max_timestamp(limit))
            found = await first_at_or_after(segments, lookup.timestamp, start, remote_limit)
            if found is not None:
                return found
            if partition.local_log_start_offset == local_start:
                return partition.log.find_time(lookup.timestamp, limit)
            # Segments have gone from the disk meanwhile, and are in the tier alone: it is looked there again.


def _rows(remote: RemoteLog, partition: Hosted) -> list[SegmentRow]:
    """What is still on the disk is looked for there."""
    return [row for row in remote.rows if row.base_offset < partition.local_log_start_offset]
