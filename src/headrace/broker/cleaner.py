"""Compaction of the logs of this node: the dirtiest first, one at a time for each directory, apart from the loop.

Leaders and followers alike compact what is committed, each for itself. A log that cannot be compacted is left as it is
and counted; all others go on.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator
from functools import partial

from headrace.broker.broker import Broker
from headrace.broker.disk import SHORTAGE
from headrace.broker.partitions import Hosted
from headrace.errors import CorruptLog
from headrace.runtime import Apart, StepsLost
from headrace.storage.cleanable import Dirt, dirt_of
from headrace.storage.cleaning import Mapped, Rewritten, Step, Worked, clean
from headrace.storage.compaction import ENTRY_BYTES
from headrace.storage.log_cleaning import LogCleaning
from headrace.storage.log_dir import LogDir

log = logging.getLogger(__name__)

CLEANER_LANE = "cleaner"
SLICE_PARTITIONS = 50
"""Partitions that one turn looks at."""

POSTPONED_MS = 60_000
"""How long a log is left alone when the disk was full, the machine short of something, or the process killed that
compacted it: none of that is the log's fault."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Cleaner:
    def __init__(self, broker: Broker, make_apart: Callable[[], Apart]) -> None:
        self._broker = broker
        self._make_apart = make_apart
        self._tasks: list[asyncio.Task[None]] = []
        self._busy: dict[LogDir, Hosted] = {}
        self._postponed: dict[Hosted, int] = {}
        self._is_abandoned = False
        self._at_work: set[str] = set()
        """Lanes in which steps were taken since they last had a rest."""
        self.stats = broker.cleaner_stats

    def start(self) -> None:
        config = self._broker.config
        if config.log_cleaner_enable:
            for number in range(config.log_cleaner_threads):
                lane = f"{CLEANER_LANE}-{number}"
                self._tasks.append(self._broker.loop.create_task(self._work(lane, self._make_apart())))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def abandon(self) -> None:
        """As if the process had died: files stay as they are."""
        self._is_abandoned = True
        await self.stop()

    async def _work(self, lane: str, apart: Apart) -> None:
        has_cleaned = False
        try:
            while True:
                if not has_cleaned:
                    self._rest(lane, apart)
                    await asyncio.sleep(self._broker.config.log_cleaner_backoff_ms / 1000)
                try:
                    has_cleaned = await self.clean_dirtiest(lane, apart)
                except Exception:  # a bug in one round must not end compaction for the rest of the node's life
                    log.exception("compaction failed, and is tried again")
                    has_cleaned = False
        finally:
            self._rest(lane, apart)

    def _rest(self, lane: str, apart: Apart) -> None:
        if lane in self._at_work:
            self._at_work.discard(lane)
            self._broker.offload.run(lane, apart.rest)

    # Choosing

    async def clean_dirtiest(self, lane: str, apart: Apart) -> bool:
        """Whether there was one that needed it."""
        chosen = await self._dirtiest()
        if chosen is None:
            return False
        partition, dirt = chosen
        if partition.directory in self._busy or self._is_left_alone(partition):
            return False  # something has happened while the others were looked at
        self._busy[partition.directory] = partition
        try:
            await self._clean(partition, dirt, lane, apart)
        finally:
            del self._busy[partition.directory]
        return True

    async def _dirtiest(self) -> tuple[Hosted, Dirt] | None:
        self._forget_dropped()
        now_ms = self._broker.clock.wall_ms()
        best: tuple[Hosted, Dirt] | None = None
        ratio_max, overdue_ms_max = 0.0, 0
        for at, partition in enumerate([p for p in self._broker.partitions if _is_compacted(p)], start=1):
            if not at % SLICE_PARTITIONS:
                await asyncio.sleep(0)
            if partition.directory in self._busy or self._is_left_alone(partition):
                continue
            dirt = self._dirt_of(partition, now_ms)
            if dirt is None:
                continue
            ratio_max, overdue_ms_max = max(ratio_max, dirt.ratio), max(overdue_ms_max, dirt.overdue_ms)
            if dirt.is_enough(partition.config.min_cleanable_dirty_ratio) and (
                best is None or _is_dirtier(dirt, best[1])
            ):
                best = partition, dirt
        self.stats.looked(ratio_max, overdue_ms_max, self._broker.clock.monotonic_ms())
        return best

    def _dirt_of(self, partition: Hosted, now_ms: int) -> Dirt | None:
        config = partition.config
        try:
            opened = partition.log
            if opened.enforce_retention(now_ms, partition.high_watermark):
                self._broker.log_start_moved(partition, opened.log_start_offset)
            limit_offset = min(partition.high_watermark, partition.last_stable_offset)
            return dirt_of(opened, limit_offset, now_ms, config.min_compaction_lag_ms, config.max_compaction_lag_ms)
        except (OSError, CorruptLog) as failure:
            self._broker.faults.failed(partition, "a look for what to compact", failure)
            return None

    def _is_left_alone(self, partition: Hosted) -> bool:
        return bool(
            partition.fault
            or partition in self._broker.faults.given_up
            or partition in self.stats.uncleanable
            or partition in self._postponed
        )

    def _forget_dropped(self) -> None:
        hosted, now_ms = self._broker.partitions, self._broker.clock.monotonic_ms()
        self._postponed = {partition: until for partition, until in self._postponed.items() if until > now_ms}
        for partition in list(self.stats.uncleanable):
            if hosted.find(partition.topic_id, partition.index) is not partition:
                del self.stats.uncleanable[partition]

    # Cleaning

    async def _clean(self, partition: Hosted, dirt: Dirt, lane: str, apart: Apart) -> None:
        broker, config = self._broker, self._broker.config
        opened = partition.log
        keys_max = config.log_cleaner_dedupe_buffer_size * config.log_cleaner_io_buffer_load_factor / ENTRY_BYTES
        cleaning = LogCleaning(
            opened,
            dirt,
            broker.clock.wall_ms(),
            delete_retention_ms=partition.config.delete_retention_ms,
            keys_max=max(int(keys_max / config.log_cleaner_threads), 1),
            chunk_bytes=config.log_cleaner_io_buffer_size,
        )
        self.stats.began(partition, cleaning.plan, broker.clock.monotonic_ms())
        is_done = False
        try:
            end_offset = await self._take_steps(partition, cleaning, lane, apart)
            if cleaning.is_wanted:
                cleaning.finished(end_offset)
                is_done = True
        except (OSError, CorruptLog, StepsLost) as failure:
            self._failed(partition, failure)
        finally:
            self.stats.ended(partition, is_done, broker.clock.monotonic_ms())
            if opened.cleaning is cleaning:
                end = (
                    cleaning.abandon
                    if self._is_abandoned or partition.log_if_open is not opened
                    else cleaning.interrupt
                )
                end()

    async def _take_steps(self, partition: Hosted, cleaning: LogCleaning, lane: str, apart: Apart) -> int:
        """Up to which offset the log is clean then, if nothing came between."""
        offload, opened = self._broker.offload, partition.log
        self._at_work.add(lane)
        steps = apart.begin(partial(clean, opened.shared.files.apart(), cleaning.plan))
        end_offset = cleaning.plan.first_dirty_offset
        while cleaning.is_wanted and partition.log_if_open is opened:
            step = await offload.run(lane, partial(_next, steps))
            if step is None:
                return end_offset
            if isinstance(step, Mapped):
                end_offset = step.end_offset
                self.stats.mapped(step.fill)
            elif isinstance(step, Rewritten):
                await self._swap(partition, cleaning, step, lane)
            else:
                self.stats.worked(partition, step)
                await self._pause_after(step)
        if cleaning.is_wanted:
            cleaning.abandon()  # its disk failed
        return end_offset

    async def _swap(self, partition: Hosted, cleaning: LogCleaning, made: Rewritten, lane: str) -> None:
        offload = self._broker.offload
        if not cleaning.is_wanted:
            await offload.run(lane, partial(cleaning.discard, made))
            return
        try:
            cleaning.begin_swap(made)
            while cleaning.is_swapping:
                await offload.run(lane, cleaning.sync)
                cleaning.move()
        except OSError as failure:
            cleaning.abandon()
            self._broker.faults.lost(partition, "putting a compacted segment in its place", failure)

    async def _pause_after(self, step: Worked) -> None:
        rate = self._broker.config.log_cleaner_io_max_bytes_per_second / self._broker.config.log_cleaner_threads
        pause_s = (step.bytes_read + step.bytes_written) / rate
        if pause_s > 0.001:
            await asyncio.sleep(pause_s)

    def _failed(self, partition: Hosted, failure: Exception) -> None:
        """The log is as it was."""
        if isinstance(failure, StepsLost) or (isinstance(failure, OSError) and failure.errno in SHORTAGE | FULL):
            self._postponed[partition] = self._broker.clock.monotonic_ms() + POSTPONED_MS
            log.warning("%s is not compacted for now: %s", partition, failure)
        else:
            self.stats.uncleanable[partition] = str(failure)
            log.error("%s is not compacted any more, until the node is restarted: %s", partition, failure)


def _next(steps: Iterator[Step]) -> Step | None:
    return next(steps, None)


def _is_compacted(partition: Hosted) -> bool:
    return "compact" in partition.config.cleanup_policy and partition.log_end_offset > 0


def _is_dirtier(dirt: Dirt, other: Dirt) -> bool:
    return (dirt.overdue_ms > 0, dirt.ratio) > (other.overdue_ms > 0, other.ratio)
