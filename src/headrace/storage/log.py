"""The log of one partition: what was appended, in order, on one disk.

The loop owns it; every call is synchronous. An OSError means that the disk failed; after one from `append` or from a
flush the log takes no more appends. `log_end_offset` is the end of what write() has taken, `recovery_point` the end of
what fsync has.
"""

from collections.abc import Sequence

from headrace.core.producers import ProducerTable
from headrace.model import Buffer
from headrace.storage import aborts, partition_directory, producer_state, retention
from headrace.storage.contents import Cleaning, Contents
from headrace.storage.epoch_file import EpochFile
from headrace.storage.files import parent_of
from headrace.storage.flush import FlushJob
from headrace.storage.local_part import UNKNOWN, LocalPart
from headrace.storage.log_config import LogConfig
from headrace.storage.log_reading import ReadableLog
from headrace.storage.rolling import RollLimits, age_ms_max
from headrace.storage.segment import RELATIVE_OFFSET_MAX, Segment, file_name
from headrace.storage.segments import Segments
from headrace.storage.shared import Shared
from headrace.storage.unsynced import Unsynced
from headrace.wire.batch import SIZE_AHEAD_OF_LENGTH, BatchHeader


class Log(ReadableLog):
    """Made by `opening.open_log`. Without a directory until the first append."""

    __slots__ = (
        "_cuts",
        "_epoch_file",
        "_first_dirty_offset",
        "_flushed_ms",
        "_limits",
        "_unsynced",
        "cleaning",
        "epochs",
        "failure",
        "is_complete",
        "local",
        "lost_beginning",
        "producers",
        "recovery",
        "recovery_point",
        "topic_id",
    )

    def __init__(
        self, shared: Shared, directory: str, topic_id: bytes, config: LogConfig, contents: Contents | None
    ) -> None:
        self.shared = shared
        self.directory = directory
        self.topic_id = topic_id
        self._exists = contents is not None
        contents = contents or Contents(Segments(shared, directory, config))
        self.local = contents.local or LocalPart(shared.files, directory)
        self.segments = contents.segments
        self.epochs = contents.epochs
        self.producers = contents.producers
        self.log_start_offset = contents.log_start_offset
        self.log_end_offset = contents.log_end_offset
        self.recovery_point = contents.recovery_point
        self.recovery = contents.recovery
        """What opening had to check and repair; None after a clean stop."""
        self.lost_beginning = contents.lost_beginning
        """Offsets that were there when somebody last deleted any, and were gone at the opening."""
        self.failure: OSError | None = None
        self._flushed_ms: int | None = None
        was_clean = contents.recovery is None
        are_epochs_synced = was_clean or contents.epoch_on_disk < 0
        self._epoch_file = EpochFile(shared.files, directory, contents.epoch_on_disk, are_epochs_synced)
        # After a process death nobody knows which names had been synced.
        directories = () if was_clean else (directory, parent_of(directory))
        self._unsynced = Unsynced(contents.unsynced_segments, directories)
        self.is_complete = was_clean
        """Whether the files are as a clean stop leaves them."""
        # How often records were cut off: a flush that began before says nothing about what came after.
        self._cuts = 0
        self._limits = RollLimits()
        self._first_dirty_offset = 0
        self.cleaning: Cleaning | None = None
        """The round of compaction that works on the segments now."""

    @property
    def config(self) -> LogConfig:
        return self.segments.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self.segments.config = config
        self._limits.forget()
        if not config.is_compacted:
            self._interrupt_cleaning()

    @property
    def first_dirty_offset(self) -> int:
        """Below it the log is compacted. One that lies outside of the log says nothing."""
        offset = self._first_dirty_offset
        return offset if self.log_start_offset <= offset <= self.log_end_offset else self.log_start_offset

    @first_dirty_offset.setter
    def first_dirty_offset(self, offset: int) -> None:
        self._first_dirty_offset = offset

    def _interrupt_cleaning(self) -> None:
        if self.cleaning is not None:
            self.cleaning.interrupt()

    def _finish_swap(self) -> None:
        """Which segments there are is about to be counted."""
        if self.cleaning is not None:
            self.cleaning.finish_moves()

    def segments_replaced(self) -> None:
        """Compaction has put others in their places."""
        self._unsynced.keep_only(self.segments)
        self._remove_snapshots()

    # Appending

    def append(self, batches: Sequence[tuple[Buffer, BatchHeader]], now_ms: int, *, is_fetched: bool = False) -> None:
        """Batches that have their offsets and leader epoch, one write for all of a segment.

        If a write fails, `log_end_offset` tells how much was taken. Producers of fetched batches are recorded here,
        since nobody has admitted them.
        """
        if self.failure is not None:
            raise self.failure
        if self.shared.is_unchanged:
            self.shared.changing()
        segment = self.segments.active
        if segment is None:
            segment = self._begin(batches[0][1], now_ms)
        elif segment.entries_left <= len(batches):
            segment = self._roll(self._base_for(batches[0][1]), now_ms)
        end = segment.size
        if not end:
            segment.created_ms = now_ms
        limits = self._limits
        taken = 0
        for at, (_, header) in enumerate(batches):
            if header.leader_epoch > self._epoch_file.latest:
                self._begin_epoch(header)
            end += header.batch_length + SIZE_AHEAD_OF_LENGTH
            if (
                end > limits.bytes_max
                or header.max_timestamp > limits.timestamp_max
                or header.base_offset + header.last_offset_delta > limits.offset_max
            ) and limits.are_exceeded(self.segments.config, segment, header, end):
                self._write(segment, batches[taken:at])
                if is_fetched or self.producers.unindexed:
                    self._note(segment, batches[taken:at] if is_fetched else (), now_ms)
                taken = at
                segment = self._roll(self._base_for(header), now_ms)
                end = header.size
        self._write(segment, batches[taken:] if taken else batches)
        if is_fetched or self.producers.unindexed:
            self._note(segment, batches[taken:] if is_fetched else (), now_ms)

    def _note(self, segment: Segment, fetched: Sequence[tuple[Buffer, BatchHeader]], now_ms: int) -> None:
        """Who produced what was fetched and written; and which transactions it, or what was admitted here, aborted."""
        for batch, header in fetched:
            if header.producer_id >= 0:
                marker = producer_state.marker_of(batch) if header.is_control else None
                self.producers.record(header, header.base_offset, now_ms, marker=marker)
        try:
            aborts.index(self.producers, segment)
        except OSError as error:
            self.failure = error
            raise

    def _write(self, segment: Segment, batches: Sequence[tuple[Buffer, BatchHeader]]) -> None:
        if not batches:
            return
        self.is_complete = False
        try:
            segment.append(batches)
            self.log_end_offset = segment.end_offset
            if segment.has_many_unwritten_entries:
                segment.write_indexes()
        except OSError as error:
            self.failure = error
            raise

    def _begin(self, first: BatchHeader, now_ms: int) -> Segment:
        """The first append ever, or since everything was removed."""
        partition_directory.make(self.shared.files, self.directory, self.topic_id, self._unsynced)
        self._exists = True
        self._flushed_ms = now_ms
        return self._new_segment(max(first.base_offset, self.log_end_offset), now_ms)

    def _new_segment(self, base_offset: int, now_ms: int | None) -> Segment:
        self._unsynced.directories.add(self.directory)
        self._limits.forget()
        return self.segments.add(base_offset, size=None, end_offset=base_offset, created_ms=now_ms)

    def _begin_epoch(self, first: BatchHeader) -> None:
        """Recovery finds epochs above the recovery point in the batches, so the list may follow with the next flush.

        Not where segments were deleted: there the list is what tells a hole from a deletion.
        """
        self.epochs.assign(first.leader_epoch, first.base_offset)
        self.save_epochs(durable=self.segments[0].base_offset > 0)

    def save_epochs(self, durable: bool = True) -> None:
        self._epoch_file.save(self.epochs.entries, durable=durable)
        if not durable:
            self._unsynced.directories.add(self.directory)

    def _base_for(self, first: BatchHeader) -> int:
        """Where the segment before ends, though a leader leaves out what it compacted: a gap would look like a loss."""
        near = first.last_offset - self.log_end_offset <= RELATIVE_OFFSET_MAX
        return self.log_end_offset if near else first.base_offset

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        """From here on a new segment is appended to; the old one is complete."""
        try:
            old = self.segments.active
            if old is not None and old.base_offset >= self.recovery_point:
                # Nothing of it was synced, not even its name: a power cut could leave the new one alone, and nobody
                # would doubt that the log begins there.
                self.segments.sync_directory()
            if old is not None and not old.size:
                self.segments.drop_from(len(self.segments) - 1)
            elif old is not None:
                self._snapshot(base_offset)
                old.complete()
                self._unsynced.segments.append(old)
            return self._new_segment(base_offset, now_ms)
        except OSError as error:
            self.failure = error
            raise

    def roll_if_old(self, now_ms: int) -> bool:
        """Also a partition that nobody writes to any more completes its segment, by the wall clock."""
        segment = self.segments.active
        if (
            segment is None
            or not segment.size
            or now_ms - segment.began_ms() <= age_ms_max(self.segments.config, segment)
        ):
            return False
        self.shared.changing()
        self._roll(self.log_end_offset, now_ms)
        return True

    def _snapshot(self, offset: int) -> None:
        files = self.shared.files
        self._unsynced.files.append(producer_state.write_snapshot(files, self.directory, offset, self.producers))
        self._unsynced.directories.add(self.directory)
        self._remove_snapshots()

    def _remove_snapshots(self) -> None:
        files = self.shared.files
        offsets = producer_state.snapshot_offsets(files.names(self.directory))
        for offset in producer_state.superfluous(offsets, self.segments, self.log_end_offset):
            path = f"{self.directory}/{file_name(offset, producer_state.SNAPSHOT_SUFFIX)}"
            self._unsynced.forget(path)
            files.remove(path)

    def reload_producers(self) -> None:
        """Producer state is the file's again, after batches were recorded that never got there."""
        if self._exists:
            files = self.shared.files
            offsets = producer_state.snapshot_offsets(files.names(self.directory))
            self.producers = producer_state.load(files, self.directory, offsets, self.segments, self.log_end_offset)
        else:
            self.producers = ProducerTable()

    # Cutting

    def advance_log_start(self, offset: int) -> None:
        """Nothing below `offset` is read any more; segments wholly below it go."""
        assert offset <= self.log_end_offset
        if offset <= self.log_start_offset:
            return
        self.shared.changing()
        self._finish_swap()
        self.log_start_offset = offset
        self._drop_first(retention.below(self.segments, offset))
        if len(self.segments) and offset <= self.segments[0].base_offset and self.epochs.truncate_from_start(offset):
            self.save_epochs()  # of what was in the tier

    def _drop_first(self, count: int, *, is_in_tier: bool = False) -> None:
        """`is_in_tier`: the log goes on to begin where it did."""
        if not count:
            return
        # The batches go from which producer state could be built if its snapshot were lost.
        self._unsynced.sync_files(self.shared.files, self.directory)
        first_offset = self.segments[count].base_offset
        if self.cleaning is not None:
            self.cleaning.dropping(first_offset)
        # Durable before the files go: recovery must not take a hole for lost records. And no further than to where
        # the files begin, since the log start may go back in a crash.
        if not is_in_tier and self.epochs.truncate_from_start(first_offset):
            self.save_epochs()
        if is_in_tier:
            if not self.segments[0].base_offset:
                self.save_epochs()  # until now they could be found again in the batches
            self.local.begins_at(first_offset, is_full=True)
        elif self.local.start_offset >= 0 or self.is_tiered:
            self.local.begins_at(first_offset)
        self.segments.drop_first(count)
        self._unsynced.keep_only(self.segments)
        if not is_in_tier:
            self.log_start_offset = max(self.log_start_offset, first_offset)
        self._remove_snapshots()

    def roll_if_expired(self, now_ms: int, committed: int) -> bool:
        """What has had its time on this disk is completed, so that the tier can have it. Not by size: one that is
        appended to would be rolled again and again."""
        segment, kept_ms = self.segments.active, self.segments.config.local_retention_ms
        if segment is None or not segment.size or segment.end_offset > committed:
            return False
        if not retention.is_old(segment, kept_ms, now_ms):
            return False
        self.shared.changing()
        self._roll(self.log_end_offset, now_ms)
        return True

    def enforce_local_retention(self, now_ms: int, committed: int, tiered_up_to: int) -> int:
        """Drops segments of which the tier has all, that is, everything below `tiered_up_to`. Returns how many.

        The log begins where it did; its part on this disk begins later.
        """
        config = self.segments.config
        count = retention.expired(
            self.segments,
            config.local_retention_ms,
            config.local_retention_bytes,
            now_ms,
            min(committed, tiered_up_to, self.log_end_offset),
        )
        count = min(count, len(self.segments) - 1)
        if count <= 0:
            return 0
        self.shared.changing()
        self._drop_first(count, is_in_tier=True)
        return count

    def enforce_retention(self, now_ms: int, high_watermark: int) -> int:
        """Drops old segments by time and size, only of committed records. Returns how many."""
        self._finish_swap()
        config, committed = self.segments.config, min(high_watermark, self.log_end_offset)
        count = retention.expired(self.segments, config.retention_ms, config.retention_bytes, now_ms, committed)
        if not count:
            return 0
        self.shared.changing()
        if count == len(self.segments):
            self._roll(self.log_end_offset, now_ms)
        self._drop_first(count)
        return count

    def truncate_to(self, offset: int, now_ms: int = UNKNOWN) -> None:
        """Cuts off `offset` and all after it, and epochs that began there. If nothing is left, it covers what comes."""
        self._interrupt_cleaning()
        self.shared.changing()
        self._cut_epochs(offset)
        if offset >= self.log_end_offset:
            return
        if offset <= self.local_log_start_offset:
            since_ms = now_ms if self.local.since_ms == UNKNOWN else self.local.since_ms
            self.truncate_fully_and_start_at(offset, min(self.log_start_offset, offset), since_ms=since_ms)
            return
        self._lower_recovery_point(offset)
        at = self.segments.index_of(offset)
        if at + 1 < len(self.segments):
            self.segments.drop_from(at + 1)
            self._unsynced.keep_only(self.segments)
        self.log_end_offset = self.segments[at].truncate_to(offset)
        self._lower_recovery_point(self.log_end_offset)
        self._cut_epochs(self.log_end_offset)
        self._remove_snapshots()
        self._limits.forget()
        self.reload_producers()

    def _cut_epochs(self, offset: int) -> None:
        if self.epochs.truncate_from_end(offset) and self._exists:
            self.save_epochs()

    def truncate_fully_and_start_at(
        self, offset: int, log_start_offset: int | None = None, *, since_ms: int = UNKNOWN
    ) -> None:
        """An empty log that goes on at `offset`. What lies between the log start and there is in the tier.

        `since_ms`: wall clock since which all that was appended comes to this disk.
        """
        log_start_offset = offset if log_start_offset is None else log_start_offset
        assert log_start_offset <= offset
        is_in_tier = log_start_offset < offset
        self._interrupt_cleaning()
        self.shared.changing()
        # Also where the log goes on later than it ended: a crash may leave any part of what goes.
        self._lower_recovery_point(min(offset, self.segments[0].base_offset) if len(self.segments) else offset)
        self.segments.drop_from(0)
        self._unsynced.keep_only(self.segments)
        self.log_start_offset, self.log_end_offset, self.recovery_point = log_start_offset, offset, offset
        if is_in_tier:
            self.epochs.truncate_from_end(offset)
        else:
            self.epochs.clear()
        self.producers = ProducerTable()
        if is_in_tier and not self._exists:
            partition_directory.make(self.shared.files, self.directory, self.topic_id, self._unsynced)
            self._exists = True
        if self._exists and (is_in_tier or self.local.start_offset >= 0):
            self.local.restarted_at(offset, since_ms)
        if self._exists:
            # The empty segment is all that says where the log goes on: saving the epochs makes it durable too.
            self._new_segment(offset, None)
            self.save_epochs()
            self._remove_snapshots()

    def _lower_recovery_point(self, offset: int) -> None:
        """Durable before the bytes go: a log that is shorter than its recovery point has lost something."""
        self._cuts += 1
        self._first_dirty_offset = min(self._first_dirty_offset, offset)
        self.is_complete = False
        self._unsynced.directories.add(self.directory)
        if offset < self.recovery_point:
            self.recovery_point = offset
            if self.shared.on_lowered_recovery_point is not None:
                self.shared.on_lowered_recovery_point()

    # To the disk

    def needs_flush_before_ack(self) -> bool:
        """`flush.messages` is reached: what was appended is not to be answered before it is synced."""
        return self.log_end_offset - self.recovery_point >= self.segments.config.flush_messages

    def needs_flush(self, now_ms: int) -> bool:
        if self._unsynced.segments or self.needs_flush_before_ack():
            return True
        if self.log_end_offset == self.recovery_point or self._flushed_ms is None:
            self._flushed_ms = now_ms
            return False
        return now_ms - self._flushed_ms >= self.segments.config.flush_ms

    def flush_job(self) -> FlushJob:
        if self.failure is not None:
            raise self.failure
        self._unsynced.files += self._epoch_file.take_unsynced()
        syncers, directories = self._unsynced.take()
        if self.segments.active is not None:
            syncers.append(self.segments.active.log.syncer())
        return FlushJob(self.shared.files, self.log_end_offset, self._cuts, syncers, directories, self._fail)

    def _fail(self, error: OSError) -> None:
        """Nothing more is taken. A flush calls this, perhaps in its own thread: it is one assignment."""
        self.failure = error

    def flushed(self, job: FlushJob, now_ms: int | None = None) -> None:
        """The job has run: what it covered is durable."""
        if job.error is not None:
            raise job.error
        assert job.is_done
        if now_ms is not None:
            self._flushed_ms = now_ms
        if job.cuts == self._cuts:
            self.recovery_point = max(self.recovery_point, job.end_offset)

    def flush_now(self) -> None:
        job = self.flush_job()
        job.run()
        self.flushed(job)

    def close(self) -> None:
        """A clean stop: everything is on the disk, and the next start has nothing to scan."""
        if self.finish():
            self.flush_now()
            self.is_complete = True
        self.segments.close()

    def finish(self) -> bool:
        """Nothing more is written; whether there is something to sync. `close`, or `close_synced`, comes next."""
        self._interrupt_cleaning()
        active = self.segments.active
        if self.is_complete or self.failure is not None or active is None:
            return False
        self._snapshot(self.log_end_offset)
        active.complete()
        self._unsynced.segments.append(active)
        self._unsynced.directories.add(self.directory)
        return True

    def close_synced(self) -> None:
        """After `finish`, and after everything below the directory was synced in one go."""
        if self.failure is None and self.segments.active is not None:
            self.recovery_point = self.log_end_offset
            self.is_complete = True
        self.segments.close()

    def abandon(self) -> None:
        """Lets go of the files as they are, as after an error: the next opening has to look at them."""
        if self.cleaning is not None:
            self.cleaning.abandon()
        self.segments.close()
