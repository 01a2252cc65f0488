"""Appends of one loop turn, written together.

Every produce request that arrives in a turn queues its batches on their partitions. At the end of the turn each
partition is written once, offsets become visible, and only then are the producers answered. A topic that wants its
records synced before they count (`flush.messages`) takes one more step through the files lane.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from headrace.broker.disk import FILES_LANE, SYNC, DiskFaults, wake_acks
from headrace.broker.parking import FetchEvents
from headrace.broker.partitions import Hosted
from headrace.errors import CorruptLog
from headrace.net.turn import Turn
from headrace.runtime import Clock, Offload
from headrace.storage.log import Log

FLUSHES_MAX = 32
"""Syncs that are prepared at one time: each holds descriptors, while the lane does one after another anyway."""


class Appends:
    def __init__(self, turn: Turn, clock: Clock, offload: Offload, faults: DiskFaults, events: FetchEvents) -> None:
        """Whoever ends the turns calls `end_turn`."""
        self._turn = turn
        self._clock = clock
        self._offload = offload
        self._faults = faults
        self._events = events
        self._dirty: dict[Hosted, None] = {}
        self._after_turn: list[Callable[[], None]] = []
        self._holding: dict[Hosted, object] = {}
        self._flushing: set[Hosted] = set()
        self._jobs: set[asyncio.Future[None]] = set()
        # At most two for each partition: see `_holding` and `_flushing`.
        self._flushes_due: deque[tuple[Hosted, Log, Callable[[int], None]]] = deque()

    def queue(self, partition: Hosted) -> None:
        """The partition has accepted batches that are not written yet."""
        self._dirty[partition] = None

    def after_turn(self, settle: Callable[[], None]) -> None:
        """Calls back once everything queued in this turn is written, or has failed."""
        self._after_turn.append(settle)
        self._turn.schedule()

    def end_turn(self) -> None:
        if not self._after_turn:
            return
        dirty, self._dirty = self._dirty, {}
        settle_all, self._after_turn = self._after_turn, []
        now_ms = self._clock.wall_ms()
        for partition in dirty:
            self._write(partition, now_ms)
        for settle in settle_all:
            settle()

    def _write(self, partition: Hosted, now_ms: int) -> None:
        batches, partition.unwritten = partition.unwritten, ()
        if not batches:
            return  # it failed after it was queued
        try:
            log = partition.log
            log.append(batches, now_ms)
            wants_flush = log.needs_flush_before_ack()
        except (OSError, CorruptLog) as error:
            self._faults.lost(partition, "append", error)
            return
        if partition in self._holding:
            return  # its flush looks again when it is done
        if wants_flush:
            self._hold_until_flushed(partition)
        else:
            self._readable_up_to(partition, log.log_end_offset)

    def _hold_until_flushed(self, partition: Hosted) -> None:
        log = partition.log
        token = self._holding[partition] = object()

        def release(end_offset: int) -> None:
            if self._holding.get(partition) is not token:
                return  # the leadership under which this was written has ended
            del self._holding[partition]
            self._readable_up_to(partition, end_offset)
            if log.needs_flush_before_ack():
                self._hold_until_flushed(partition)
            else:
                self._readable_up_to(partition, log.log_end_offset)

        self._flush(partition, release)

    def let_go(self, partition: Hosted) -> None:
        """Its leadership has ended: what waits for a sync is no longer for this node to acknowledge."""
        self._holding.pop(partition, None)

    def take_over(self, partition: Hosted) -> None:
        """A leadership begins: what the log holds, and was not synced before, counts once it is."""
        log = partition.log_if_open
        if log is None or log.log_end_offset <= partition.log_end_offset or partition in self._holding:
            return
        if log.needs_flush_before_ack():
            self._hold_until_flushed(partition)
        else:
            self._readable_up_to(partition, log.log_end_offset)

    def flush(self, partition: Hosted) -> None:
        """Syncs what the log holds, while clients go on."""
        if partition not in self._flushing:
            self._flushing.add(partition)
            self._flush(partition, lambda _: self._flushing.discard(partition))

    def _flush(self, partition: Hosted, then: Callable[[int], None]) -> None:
        self._flushes_due.append((partition, partition.log, then))
        self._start_flushes()

    def _start_flushes(self) -> None:
        while self._flushes_due and len(self._jobs) < FLUSHES_MAX:
            self._start_flush(*self._flushes_due.popleft())

    def _start_flush(self, partition: Hosted, log: Log, then: Callable[[int], None]) -> None:
        if partition.log_if_open is not log:
            self._gave_up(partition, None)  # it failed, or was deleted, while this was waiting
            return
        try:
            job = log.flush_job()
        except OSError as error:
            self._gave_up(partition, error)
            return
        done = self._offload.run(FILES_LANE, job.run)
        self._jobs.add(done)

        def flushed(future: "asyncio.Future[None]") -> None:
            self._jobs.discard(future)
            self._start_flushes()
            error = future.exception()
            if partition.log_if_open is not log:
                self._gave_up(partition, None)  # it failed, or was deleted, while this was on its way
            elif isinstance(error, OSError):
                self._gave_up(partition, error)
            elif error is not None:
                raise error
            else:
                log.flushed(job, self._clock.wall_ms())
                then(job.end_offset)

        done.add_done_callback(flushed)

    def _gave_up(self, partition: Hosted, error: OSError | None) -> None:
        self._holding.pop(partition, None)
        self._flushing.discard(partition)
        if error is not None:
            self._faults.lost(partition, SYNC, error)

    async def drain(self) -> None:
        """Everything queued is written, and every sync that was asked for is done."""
        if self._dirty or self._after_turn:
            self.end_turn()
        while self._jobs:
            await asyncio.wait(self._jobs)

    def abandon(self) -> None:
        """As if the process had died: what was only queued never happened."""
        self._dirty.clear()
        self._after_turn.clear()
        self._flushes_due.clear()

    def _readable_up_to(self, partition: Hosted, offset: int) -> None:
        if offset <= partition.log_end_offset:
            return
        partition.written_up_to(offset)
        if partition.subscribers:
            self._events.appended(partition)
        if partition.waiting_acks:
            wake_acks(partition)
