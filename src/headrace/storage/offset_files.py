"""Kafka's offset checkpoints of a log directory: where recovery begins, where logs begin, and more."""

import threading
from collections.abc import Callable, Iterable, Mapping

from headrace.model import TopicPartition
from headrace.storage.checkpoints import CorruptCheckpoint, format_offsets, parse_offsets
from headrace.storage.files import Files
from headrace.storage.log import Log

RECOVERY_POINTS_NAME = "recovery-point-offset-checkpoint"
LOG_STARTS_NAME = "log-start-offset-checkpoint"
HIGH_WATERMARKS_NAME = "replication-offset-checkpoint"
FIRST_DIRTY_NAME = "cleaner-offset-checkpoint"

Offsets = dict[TopicPartition, int]


class OffsetFiles:
    """The attributes are what the files said at the start, without partitions that are gone since."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self.recovery_points = self._read(RECOVERY_POINTS_NAME)
        self.log_starts = self._read(LOG_STARTS_NAME)
        self.high_watermarks = self._read(HIGH_WATERMARKS_NAME)
        self.first_dirty = self._read(FIRST_DIRTY_NAME)
        self._first_dirty_written = dict(self.first_dirty)
        self._forgotten: set[TopicPartition] = set()
        self._jobs_made = self._job_written = 0
        self._committed = dict(self.high_watermarks)
        """What the file says."""
        self._writing = threading.Lock()

    def _read(self, name: str) -> Offsets:
        """A file that cannot be read is as good as none: logs are then scanned from their start."""
        try:
            return parse_offsets(self._files.read(f"{self._path}/{name}").decode())
        except (FileNotFoundError, CorruptCheckpoint, UnicodeDecodeError):
            return {}

    def forget(self, name: TopicPartition) -> None:
        self._forgotten.add(name)
        for offsets in (self.recovery_points, self.log_starts, self.high_watermarks, self.first_dirty):
            offsets.pop(name, None)

    def may_mention(self, name: TopicPartition) -> bool:
        """Whether a partition of that name is gone and the files may still speak of it: a new one must not begin."""
        return name in self._forgotten

    def job(
        self, logs: Iterable[tuple[TopicPartition, Log]], committed: Mapping[TopicPartition, int] | None
    ) -> Callable[[], None]:
        """Writes the files; it may run in another thread, where it then also collects what it writes.

        Recovery points and log starts of a live log only rise, so that a later look is as good. A log whose high
        watermark is not given has committed all it holds.
        """
        self._jobs_made += 1
        number, logs, forgotten = self._jobs_made, list(logs), set(self._forgotten)
        known = dict(self.recovery_points), dict(self.log_starts), dict(self.high_watermarks), dict(self.first_dirty)

        def write() -> None:
            # A job may wait in its lane while a later one is done at once.
            with self._writing:
                if number < self._job_written:
                    return
                recovery_points, log_starts, high_watermarks, first_dirty = known
                for name, log in logs:
                    if log.exists:
                        recovery_points[name] = log.recovery_point
                        high_watermarks[name] = (committed or {}).get(name, log.log_end_offset)
                        log_starts.pop(name, None)
                        if log.starts_inside:
                            log_starts[name] = log.log_start_offset
                        first_dirty.pop(name, None)
                        if log.first_dirty_offset > log.log_start_offset:
                            first_dirty[name] = log.first_dirty_offset
                self._write(RECOVERY_POINTS_NAME, recovery_points)
                self._write(LOG_STARTS_NAME, log_starts)
                self._write(HIGH_WATERMARKS_NAME, high_watermarks)
                if first_dirty != self._first_dirty_written:
                    self._write(FIRST_DIRTY_NAME, first_dirty)
                    self._first_dirty_written = first_dirty
                self._committed = high_watermarks
                self._job_written = number
                self._forgotten.difference_update(forgotten)

        return write

    def high_watermarks_job(
        self, names: Iterable[TopicPartition], high_watermark_of: Callable[[str, int], int | None]
    ) -> Callable[[], None]:
        """Writes those of these logs, where they have moved; it may run in another thread, where it also asks."""
        self._jobs_made += 1
        number, names, known = self._jobs_made, list(names), dict(self.high_watermarks)

        def write() -> None:
            with self._writing:
                if number < self._job_written:
                    return
                asked = ((name, high_watermark_of(*name)) for name in names)
                high_watermarks = {**known, **{name: offset for name, offset in asked if offset is not None}}
                if high_watermarks != self._committed:
                    self._write(HIGH_WATERMARKS_NAME, high_watermarks)
                    self._committed = high_watermarks

        return write

    def write_log_starts(self, logs: Iterable[tuple[TopicPartition, Log]]) -> None:
        """At once: they are about to be told."""
        with self._writing:
            log_starts = dict(self.log_starts)
            for name, log in logs:
                log_starts.pop(name, None)
                if log.exists and log.starts_inside:
                    log_starts[name] = log.log_start_offset
            self._write(LOG_STARTS_NAME, log_starts)

    def _write(self, name: str, offsets: Offsets) -> None:
        self._files.replace(f"{self._path}/{name}", format_offsets(offsets).encode())
