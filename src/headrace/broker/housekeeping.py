"""What a broker does on its own: retention, rolling by age, flushing by age, checkpoints, forgetting silent producers.

Each chore looks at a slice of the logs per loop turn, so that requests never wait for a sweep.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from headrace.broker import tier_retention
from headrace.broker.broker import Broker
from headrace.broker.coordinators import group_expiry, living_jobs
from headrace.broker.coordinators.transaction_sweeps import (
    abort_timed_out,
    forget_expired,
    forget_finished,
    forget_queries,
)
from headrace.broker.disk import FILES_LANE
from headrace.broker.partitions import Hosted
from headrace.core import verified
from headrace.errors import CorruptLog
from headrace.runtime import tell_bug
from headrace.storage.log_dir import LogDir

log = logging.getLogger(__name__)

SLICE_PARTITIONS = 50
"""Partitions that one turn looks after."""

TRASH_INTERVAL_MS = 1_000
"""How much longer than its delay a deleted file may stay."""

STRAYS_INTERVAL_MS = 60_000

PRODUCER_IDS_MAX = 1_000_000
"""Idempotent producers that one broker remembers, over all partitions; the longest idle are forgotten first."""


class Housekeeping:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._strays_since_ms: dict[str, int] = {}

    def start(self) -> None:
        config = self._broker.config
        self._every(config.log_retention_check_interval_ms, self.enforce_retention)
        self._every(min(config.log_retention_check_interval_ms, TRASH_INTERVAL_MS), self.empty_trash)
        self._every(min(config.log_retention_check_interval_ms, STRAYS_INTERVAL_MS), self.remove_strays)
        self._every(config.log_flush_scheduler_interval_ms, self.flush_by_age)
        self._every(config.log_flush_offset_checkpoint_interval_ms, self.checkpoint)
        self._every(config.replica_high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks)
        self._every(config.producer_id_expiration_check_interval_ms, self.expire_producers)
        self._every(config.offsets_retention_check_interval_ms, lambda: group_expiry.expire(self._broker))
        self._every(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms, partial(abort_timed_out, self._broker)
        )
        self._every(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms, partial(forget_finished, self._broker)
        )
        self._every(
            config.transaction_remove_expired_transaction_cleanup_interval_ms, partial(forget_expired, self._broker)
        )
        self._every(
            config.transaction_remove_expired_transaction_cleanup_interval_ms, partial(forget_queries, self._broker)
        )
        self._every(living_jobs.ROUND_MS, self._broker.transactions.groups.give_up_silent_jobs)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _every(self, interval_ms: int, chore: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                try:
                    await chore()
                except Exception as bug:  # in one round: it must not end the chore for the rest of the node's life
                    tell_bug(f"housekeeping failed, and is tried again in {interval_ms} ms", bug)

        self._tasks.append(self._broker.loop.create_task(repeat()))

    async def enforce_retention(self) -> None:
        """Also for logs that nobody opened since the start: they have to shrink too."""

        def expire(partition: Hosted) -> None:
            now_ms = self._broker.clock.wall_ms()
            partition.log.roll_if_old(now_ms)
            if partition.log.cleaning is not None:
                return  # it would have to begin anew; whoever compacts has looked before
            if partition.config.remote_storage_enable:
                tier_retention.enforce(self._broker, partition, now_ms)
                return
            if partition.is_leading:
                tier_retention.begin_on_disk(self._broker, partition)
            if partition.log.enforce_retention(now_ms, partition.high_watermark):
                self._broker.log_start_moved(partition, partition.log.log_start_offset)

        partitions = self._broker.partitions
        await self._sweep([p for p in partitions if p.log_end_offset > 0], "retention", expire)

    async def empty_trash(self) -> None:
        """What was deleted leaves the disk after its delay; leftovers of an earlier run at once."""
        for directory in self._broker.partitions.directories:
            if directory.has_trash:
                await self._empty_trash_of(directory)

    async def _empty_trash_of(self, directory: LogDir) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        try:
            while await self._broker.offload.run(FILES_LANE, partial(directory.empty_trash, now_ms)):
                pass
        except OSError as error:
            log.error("deleted files in %s could not be removed, and are tried again: %s", directory.path, error)

    async def remove_strays(self) -> None:
        """The files of partitions that no topic claims go when nobody has come for them."""
        now_ms, kept_ms = self._broker.clock.monotonic_ms(), self._broker.config.stray_log_retention_ms
        for directory in self._working_directories():
            for path in sorted(directory.strays):
                since_ms = self._strays_since_ms.setdefault(path, now_ms)
                if 0 <= kept_ms <= now_ms - since_ms:
                    await self._remove_stray(directory, path)

    async def _remove_stray(self, directory: LogDir, path: str) -> None:
        try:
            await self._broker.offload.run(FILES_LANE, partial(directory.remove_stray, path))
        except FileNotFoundError:
            pass  # somebody took it
        except OSError as error:
            log.error("%s, which belongs to no topic, could not be removed, and is tried again: %s", path, error)
            return
        directory.strays.discard(path)
        del self._strays_since_ms[path]
        log.warning("removed %s, which belonged to no topic of this cluster", path)

    async def flush_by_age(self) -> None:
        now_ms = self._broker.clock.wall_ms()

        def flush(partition: Hosted) -> None:
            if partition.log.needs_flush(now_ms):
                self._broker.appends.flush(partition)

        # A follower has the logs of all its partitions open, most of which may never have held a record.
        await self._sweep([p for p in self._broker.partitions.open if p.log_end_offset > 0], "flush", flush)

    async def checkpoint(self) -> None:
        """Recovery points, log starts and high watermarks: where a start after a crash begins to look."""
        await self._write_checkpoints(lambda directory: directory.checkpoint_job())

    async def checkpoint_high_watermarks(self) -> None:
        """More often than the rest: a replica that dies and is elected tells clients no offset above its own."""
        await self._write_checkpoints(lambda directory: directory.high_watermarks_job())

    async def _write_checkpoints(self, job_of: Callable[[LogDir], Callable[[], None]]) -> None:
        for directory in self._working_directories():
            try:
                await self._broker.offload.run(FILES_LANE, job_of(directory))
            except OSError as error:
                self._broker.faults.directory_failed(directory, f"a checkpoint could not be written: {error}")

    def _working_directories(self) -> list[LogDir]:
        offline = self._broker.faults.offline_directories
        return [directory for directory in self._broker.partitions.directories if directory.path not in offline]

    async def expire_producers(self) -> None:
        broker = self._broker
        now_ms, monotonic_ms = broker.clock.wall_ms(), broker.clock.monotonic_ms()

        def expire(partition: Hosted) -> None:
            expiration_ms = broker.config.producer_id_expiration_ms
            partition.log.producers.expire(now_ms, expiration_ms)
            if partition.verifying:
                verified.expire(partition.verifying, monotonic_ms, expiration_ms)

        await self._sweep(list(broker.partitions.open), "producer expiry", expire)
        _forget_excess(broker.partitions.open)

    async def _sweep(self, partitions: list[Hosted], chore: str, look_after: Callable[[Hosted], None]) -> None:
        for at in range(0, len(partitions), SLICE_PARTITIONS):
            for partition in partitions[at : at + SLICE_PARTITIONS]:
                if partition.fault or partition in self._broker.faults.given_up:
                    continue
                try:
                    look_after(partition)
                except (OSError, CorruptLog) as failure:
                    self._broker.faults.failed(partition, chore, failure)
            await asyncio.sleep(0)


def _forget_excess(partitions: Iterable[Hosted]) -> None:
    tables = [partition.log.producers for partition in partitions]
    excess = sum(map(len, tables)) - PRODUCER_IDS_MAX
    if excess <= 0:
        return
    idle = sorted(
        ((alive_ms, producer_id, at) for at, table in enumerate(tables) for alive_ms, producer_id in table.idle())
    )
    for _, producer_id, at in idle[:excess]:
        tables[at].forget(producer_id)
