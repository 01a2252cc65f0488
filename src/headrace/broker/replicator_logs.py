"""What a follower does to its logs. Everything happens in one step of the loop, except for a sync that is asked for.

OSError and CorruptLog are the disk's; any other exception is this partition's own trouble. Nothing here knows of
fetchers.
"""

import logging

from headrace.broker.disk import FILES_LANE
from headrace.broker.partitions import Hosted
from headrace.broker.replicator_tier import FromTier
from headrace.core.fetched import take
from headrace.core.following import Append, Diverged, Position
from headrace.core.truncation import Keep, RestartAt, TruncateTo, truncation_offset
from headrace.runtime import Clock, Offload
from headrace.storage.from_tier import begin_from_tier
from headrace.storage.log import Log
from headrace.storage.log_dir import LogDir

log = logging.getLogger(__name__)


class FollowerLogs:
    def __init__(self, clock: Clock, offload: Offload) -> None:
        self._clock = clock
        self._offload = offload
        self.appended_bytes = 0
        self.hears_high_watermarks = True
        """Tests turn it off: records come, and what is committed of them is not known here."""
        self.moved_starts: set[LogDir] = set()
        """Directories whose log starts have to be written down before the leader hears of them."""

    def position(self, partition: Hosted, leader_epoch: int) -> Position:
        opened = partition.log
        return Position(leader_epoch, opened.log_end_offset, opened.epochs.latest, partition.log_start_offset)

    def append(self, partition: Hosted, records: Append, leader_epoch: int) -> str | None:
        """Writes what may follow the log; what was wrong with the rest, if anything. `settle` makes it count."""
        if not records.records:
            return None
        opened = partition.log
        is_empty = opened.log_start_offset == opened.log_end_offset
        batches, fault = take(
            records.records, opened.log_end_offset, opened.epochs.latest, leader_epoch, is_empty=is_empty
        )
        if batches:
            first_offset = batches[0][1].base_offset
            if first_offset < opened.log_end_offset:
                opened.truncate_fully_and_start_at(first_offset)
            opened.append(batches, self._clock.wall_ms(), is_fetched=True)
            self.appended_bytes += sum(len(batch) for batch, _ in batches)
        return fault

    async def sync(self, partition: Hosted, opened: Log) -> None:
        """`flush.messages` is reached: what was appended does not count before it is on the disk."""
        job = opened.flush_job()
        await self._offload.run(FILES_LANE, job.run)
        if partition.log_if_open is opened:
            opened.flushed(job, self._clock.wall_ms())

    def settle(self, partition: Hosted, told: Append) -> None:
        """The log end counts, and with it what the leader says of the high watermark and of the log start."""
        opened = partition.log
        high_watermark = told.high_watermark if self.hears_high_watermarks else partition.high_watermark
        partition.follower_appended(opened.log_end_offset, high_watermark, told.log_start)
        if partition.log_start_offset > opened.log_start_offset:
            opened.advance_log_start(partition.log_start_offset)
            if opened.starts_inside:
                self.moved_starts.add(partition.directory)

    def cut(self, partition: Hosted, diverged: Diverged) -> None:
        opened = partition.log
        offset = truncation_offset(opened.epochs, opened.log_end_offset, diverged.epoch, diverged.end_offset)
        self.truncate(partition, offset, f"the leader's epoch {diverged.epoch} ended at {diverged.end_offset}")

    def repair(self, partition: Hosted, decided: TruncateTo | RestartAt | Keep) -> None:
        if isinstance(decided, TruncateTo):
            self.truncate(partition, decided.offset, f"the leader's log ends at {decided.offset}")
        elif isinstance(decided, RestartAt):
            log.info("%s begins anew at offset %d, where the leader's log begins", partition, decided.offset)
            partition.log.truncate_fully_and_start_at(decided.offset)
            partition.restarted_at(decided.offset)

    def begin_from_tier(self, partition: Hosted, start: FromTier) -> None:
        """What is here goes, since the tier has it. Epochs and producers are on the disk before anything is fetched."""
        log.info(
            "%s begins anew at offset %d, behind a segment of the tier; the log starts at %d",
            partition,
            start.offset,
            start.log_start,
        )
        now_ms, (epochs, snapshot) = self._clock.wall_ms(), start.known
        since_ms = min(start.since_ms, now_ms)
        begin_from_tier(
            partition.log, start.offset, start.log_start, epochs, snapshot, since_ms=since_ms, now_ms=now_ms
        )
        partition.restarted_at(start.offset, start.log_start)
        self.moved_starts.add(partition.directory)

    def truncate(self, partition: Hosted, offset: int, reason: str) -> None:
        opened = partition.log
        before, high_watermark = opened.log_end_offset, partition.high_watermark
        if offset < high_watermark and partition.log_start_offset < partition.local_log_start_offset:
            # The leader lacks what was committed. Of a remote segment that goes on behind the cut nothing is served,
            # and something may be missing before the cut: this log begins anew, as one does that has nothing.
            offset = partition.log_start_offset
        opened.truncate_to(offset, self._clock.wall_ms())
        partition.truncated_to(opened.log_end_offset)
        if opened.log_end_offset < before:
            log.log(
                logging.WARNING if opened.log_end_offset < high_watermark else logging.INFO,
                "%s is cut from offset %d to %d, with the high watermark at %d: %s",
                partition,
                before,
                opened.log_end_offset,
                high_watermark,
                reason,
            )
