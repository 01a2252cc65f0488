"""Appends of one loop turn, written together.

Every produce request that arrives in a turn queues its batches on their partitions. At the end of the turn each
partition is written once, offsets become visible, and only then are the producers answered. A topic that wants its
records synced before they count (`flush.messages`) takes one more step through the files lane.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from headrace.broker.disk import DiskFaults
from headrace.core.partition import Partition
from headrace.runtime import Clock, Offload

FILES_LANE = "files"


class AppendEvents(Protocol):
    """Who hears of new readable offsets."""

    def appended(self, partition: Partition) -> None: ...


class Appends:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, offload: Offload, faults: DiskFaults, events: AppendEvents
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._offload = offload
        self._faults = faults
        self._events = events
        self._dirty: dict[Partition, None] = {}
        self._after_turn: list[Callable[[], None]] = []
        self._flushing: set[Partition] = set()
        self._turn_is_scheduled = False

    def queue(self, partition: Partition) -> None:
        """The partition has accepted batches that are not written yet."""
        self._dirty[partition] = None

    def after_turn(self, settle: Callable[[], None]) -> None:
        """Calls back once everything queued in this turn is written, or has failed."""
        self._after_turn.append(settle)
        if not self._turn_is_scheduled:
            self._turn_is_scheduled = True
            self._loop.call_soon(self.end_turn)

    def end_turn(self) -> None:
        self._turn_is_scheduled = False
        dirty, self._dirty = self._dirty, {}
        settle_all, self._after_turn = self._after_turn, []
        now_ms = self._clock.wall_ms()
        for partition in dirty:
            self._write(partition, now_ms)
        for settle in settle_all:
            settle()

    def _write(self, partition: Partition, now_ms: int) -> None:
        batches, partition.unwritten = partition.unwritten, []
        if not batches:
            return  # it failed after it was queued
        try:
            log = partition.log
            log.append(batches, now_ms)
            wants_flush = log.needs_flush_before_ack()
        except OSError as error:
            self._faults.failed(partition, "append", error)
            return
        if partition in self._flushing:
            return  # _flushed looks again
        if wants_flush:
            self._flush(partition)
        else:
            self._readable_up_to(partition, log.log_end_offset)

    def _flush(self, partition: Partition) -> None:
        log = partition.log
        job = log.flush_job()
        self._flushing.add(partition)
        done = self._offload.run(FILES_LANE, job.run)

        def flushed(future: "asyncio.Future[None]") -> None:
            self._flushing.discard(partition)
            if partition.log_if_open is not log:
                return  # it failed while this was on its way
            error = future.exception()
            if isinstance(error, OSError):
                self._faults.failed(partition, "flush", error)
                return
            if error is not None:
                raise error
            log.flushed(job)
            self._readable_up_to(partition, job.end_offset)
            if log.needs_flush_before_ack():
                self._flush(partition)
            else:
                self._readable_up_to(partition, log.log_end_offset)

        done.add_done_callback(flushed)

    def _readable_up_to(self, partition: Partition, offset: int) -> None:
        if offset <= partition.log_end_offset:
            return
        partition.written_up_to(offset)
        if partition.subscribers:
            self._events.appended(partition)
        if partition.waiting_acks:
            wake_acks(partition)


def wake_acks(partition: Partition) -> None:
    """Producers that waited for this partition look at it again; those still waiting put themselves back."""
    settle_all, partition.waiting_acks = partition.waiting_acks, None
    for settle in settle_all or ():
        settle()
