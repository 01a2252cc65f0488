"""One data directory of a node: whose it is, which partitions it holds, and how far each of them can be trusted.

    DATA/meta.properties          whose directory this is
    DATA/logs/<topic>-<partition> one partition, in Apache Kafka's files
    DATA/logs/*-checkpoint        recovery points, log starts and high watermarks, as Kafka writes them
    DATA/logs/.kafka_cleanshutdown, .headrace-state   there after a clean stop: nothing has to be scanned

A clean start opens no partition; each is opened when it is first used. After an unclean stop a partition is recovered
when it is opened, unless its files are exactly as an earlier clean stop left them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping

from headrace.errors import CorruptLog
from headrace.model import TopicPartition
from headrace.storage.checkpoints import CorruptCheckpoint, parse_partition_metadata
from headrace.storage.errors import InUse
from headrace.storage.files import AlreadyLocked, Files, Space, parent_of
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.offset_files import OffsetFiles
from headrace.storage.opening import open_log
from headrace.storage.partition_directory import METADATA_NAME
from headrace.storage.properties import MetaProperties, format_meta_properties, parse_meta_properties
from headrace.storage.segment import LOG_SUFFIX, file_name, offsets_of
from headrace.storage.shared import DELETE_SUFFIX, INDEX_BYTES_IN_MEMORY_MAX, NAME_BYTES_MAX, Shared
from headrace.storage.state_file import Remembered, decode_state, encode_state

META_NAME = "meta.properties"
LOCK_NAME = ".lock"
MARKER_NAME = ".kafka_cleanshutdown"
STATE_NAME = ".headrace-state"
PROBE_NAME = ".headrace-probe"
RESERVE_NAME = ".headrace-reserve"
STRAY_SUFFIX = "-stray"
STRAY_NAME = re.compile(r".+\.[0-9a-f]{32}-stray")
PARTITION_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}-(0|[1-9][0-9]{0,9})")
"""Anything else, say lost+found, is not ours."""
CLOSED_ONE_BY_ONE_MAX = 16
"""Logs that a clean stop syncs each for itself; with more of them, the file system syncs them all."""


class LogDir:
    def __init__(self, files: Files, path: str, *, index_bytes_in_memory_max: int = INDEX_BYTES_IN_MEMORY_MAX) -> None:
        """Raises InUse if somebody else works on the directory, WrongFormat if a newer program did."""
        self.path = path
        self._logs_path = f"{path}/logs"
        self._files = files
        _make_durably(files, self._logs_path)
        try:
            self._lock = files.lock(f"{self._logs_path}/{LOCK_NAME}")
        except AlreadyLocked:
            raise InUse(f"Another node, or Apache Kafka, is running on {path}.") from None
        self._tree = files.tree(self._logs_path)
        self.shared = Shared(
            files,
            index_bytes_in_memory_max=index_bytes_in_memory_max,
            before_first_change=self._unmark,
            on_lowered_recovery_point=lambda: self.checkpoint_job()(),
            before_loss=lambda: self.before_loss(),
        )
        self.before_loss: Callable[[], None] = lambda: None
        """Recovery is about to cut off more than a process death explains. May raise OSError: then nothing is cut."""
        self.high_watermark_of: Callable[[str, int], int | None] = lambda _topic, _partition: None
        """Whoever hosts the partitions knows. A log of which it says nothing has committed all that it holds."""
        self.was_clean = files.exists(f"{self._logs_path}/{MARKER_NAME}")
        self._remembered = self._read_state()
        self._offsets = OffsetFiles(files, self._logs_path)
        self._logs: dict[TopicPartition, Log] = {}
        self._given_up: set[TopicPartition] = set()
        self._doubted: set[TopicPartition] = set()
        self.strays: set[str] = set()
        """Paths of directories that were set aside, in this run or before it."""
        self._on_disk = set(self._look_around())

    def _look_around(self) -> Iterator[TopicPartition]:
        for name in self._files.names(self._logs_path):
            if name.endswith(DELETE_SUFFIX):
                self.shared.trash.put(f"{self._logs_path}/{name}", 0)
            elif STRAY_NAME.fullmatch(name):
                self.strays.add(f"{self._logs_path}/{name}")
            elif PARTITION_NAME.fullmatch(name) and self._files.is_directory(f"{self._logs_path}/{name}"):
                topic, _, partition = name.rpartition("-")
                yield TopicPartition(topic, int(partition))

    def _read_state(self) -> dict[TopicPartition, Remembered]:
        path = f"{self._logs_path}/{STATE_NAME}"
        if not self._files.exists(path):
            return {}
        return decode_state(self._files.read(path), path) or {}

    # Partitions

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those that have a directory."""
        return sorted(self._on_disk | {name for name, log in self._logs.items() if log.exists})

    def exists(self, topic: str, partition: int) -> bool:
        name = TopicPartition(topic, partition)
        return name in self._on_disk or (name in self._logs and self._logs[name].exists)

    def topic_id_of(self, topic: str, partition: int) -> bytes | None:
        """Whose partition the directory is, if it says so."""
        name = TopicPartition(topic, partition)
        log = self._logs.get(name)
        if log is not None:
            return log.topic_id
        remembered = self._remembered.get(name)
        if remembered is not None and self.was_clean:
            return remembered.topic_id
        try:
            text = self._files.read(f"{self._logs_path}/{name}/{METADATA_NAME}").decode()
            return parse_partition_metadata(text)
        except (FileNotFoundError, CorruptCheckpoint, UnicodeDecodeError):
            return None

    def remembered(self, topic: str, partition: int) -> Remembered | None:
        """What a clean stop knew of the partition. None after an unclean one: then it has to be opened."""
        return self._remembered.get(TopicPartition(topic, partition)) if self.was_clean else None

    def checkpointed_high_watermark(self, topic: str, partition: int) -> int:
        return self._offsets.high_watermarks.get(TopicPartition(topic, partition), 0)

    def open_log(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, remote_log_start: int | None = None
    ) -> Log:
        """The one `Log` of the partition. CorruptLog or OSError if it cannot be had; files appear with an append.

        `remote_log_start`: where the log begins, if a part of it is in the tier.
        """
        name = TopicPartition(topic, partition)
        log = self._logs.get(name)
        if log is not None:
            return log
        directory = f"{self._logs_path}/{name}"
        if name in self._on_disk and self.topic_id_of(topic, partition) not in (topic_id, None):
            raise CorruptLog(f"{directory} belongs to another topic of the same name.")
        if self._offsets.may_mention(name):
            # It was another partition's. Now, since in a crash its recovery point would be taken for this one's.
            self.checkpoint_job()()
        remembered = self._remembered.get(name)
        if remembered is not None and not (remembered.topic_id == topic_id and self._is_as_left(name, remembered)):
            remembered = None
        log = open_log(
            self.shared,
            directory,
            topic_id,
            config,
            recovery_point=self._offsets.recovery_points.get(name, 0),
            log_start_offset=max(
                self._offsets.log_starts.get(name, 0), remembered.log_start_offset if remembered is not None else 0
            ),
            is_clean=remembered is not None
            or (self.was_clean and name not in self._remembered and name not in self._given_up),
            known_end_offset=remembered.log_end_offset if remembered is not None else None,
            remote_log_start=remote_log_start,
        )
        log.first_dirty_offset = self._offsets.first_dirty.get(name, 0)
        if name in self._doubted:
            log.truncate_to(max(log.recovery_point, log.local_log_start_offset))
        self._logs[name] = log
        self._given_up.discard(name)
        self._doubted.discard(name)
        return log

    def give_up(self, topic: str, partition: int, *, is_doubted: bool = False) -> None:
        """Its disk failed. The files stay as they are; whoever opens it again has what may not be synced checked.

        `is_doubted`: a sync failed, after which the system may show what is not on the disk, and may call the next sync
        a success. So all that was not synced before is cut off by whoever opens it again.
        """
        name = TopicPartition(topic, partition)
        self._given_up.add(name)
        if is_doubted:
            self._doubted.add(name)
        self._remembered.pop(name, None)
        log = self._logs.pop(name, None)
        if log is None or not log.exists:
            return
        log.abandon()
        self._on_disk.add(name)
        self._offsets.recovery_points[name] = log.recovery_point
        self._offsets.first_dirty[name] = log.first_dirty_offset
        self._offsets.log_starts.pop(name, None)
        if log.starts_inside:
            self._offsets.log_starts[name] = log.log_start_offset

    def distrust(self, topic: str, partition: int) -> None:
        """It has lost what was synced: whoever opens it next has all of it checked, and cut where it is damaged."""
        self.before_loss()
        self.give_up(topic, partition)
        self._offsets.recovery_points[TopicPartition(topic, partition)] = 0

    def _is_as_left(self, name: TopicPartition, remembered: Remembered) -> bool:
        """Nothing above the recovery point, and the last file as long as then: nobody has appended since."""
        if not self.was_clean and self._offsets.recovery_points.get(name) != remembered.log_end_offset:
            return False
        directory = f"{self._logs_path}/{name}"
        active = remembered.active_base_offset
        try:
            last = max(offsets_of(self._files.names(directory), LOG_SUFFIX), default=None)
            return (
                last == active
                and self._files.size(f"{directory}/{file_name(active, LOG_SUFFIX)}") == remembered.active_bytes
            )
        except FileNotFoundError:
            return False

    def delete_log(self, topic: str, partition: int, unique: str, delay_ms: int) -> None:
        """The directory gets another name now, and goes after the delay. `unique` tells such names apart."""
        name = TopicPartition(topic, partition)
        log = self._logs.pop(name, None)
        if log is not None:
            log.abandon()
        self._forget(name)
        directory = f"{self._logs_path}/{name}"
        if self._files.exists(directory):
            self._on_disk.add(name)  # until it has another name: a new topic of this name must not take it for its own
            self.shared.changing()
            self.shared.discard_directory(directory, unique, delay_ms)
            self._on_disk.discard(name)

    def set_aside(self, topic: str, partition: int, unique: str) -> str:
        """A directory that no topic of the cluster claims: kept under a name that nobody opens. Returns the path."""
        name = TopicPartition(topic, partition)
        self.shared.changing()
        suffix = f".{unique}{STRAY_SUFFIX}"
        aside = f"{self._logs_path}/{str(name)[: NAME_BYTES_MAX - len(suffix)]}{suffix}"
        self._files.rename(f"{self._logs_path}/{name}", aside)
        self._files.sync_directory(self._logs_path)
        self._forget(name)
        self.strays.add(aside)
        return aside

    def remove_stray(self, path: str) -> None:
        """May run in another thread. Raises OSError."""
        self._files.remove_tree(path)

    def _forget(self, name: TopicPartition) -> None:
        self._on_disk.discard(name)
        self._given_up.discard(name)
        self._doubted.discard(name)
        self._remembered.pop(name, None)
        self._offsets.forget(name)

    def checkpoint_job(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> Callable[[], None]:
        """Writes where recovery has to begin, and what is committed; the job may run in another thread."""
        return self._offsets.job(
            self._logs.items(), self._high_watermarks() if high_watermarks is None else high_watermarks
        )

    def high_watermarks_job(self) -> Callable[[], None]:
        """Writes what is committed, if anything has moved; the job may run in another thread."""
        names = [name for name, log in self._logs.items() if log.exists]
        return self._offsets.high_watermarks_job(names, self.high_watermark_of)

    def keep_log_starts(self) -> None:
        """After records were deleted: a node that dies and comes back must not show them again. Raises OSError."""
        self._offsets.write_log_starts(self._logs.items())

    def _high_watermarks(self) -> dict[TopicPartition, int]:
        known = ((name, self.high_watermark_of(*name)) for name in self._logs)
        return {name: offset for name, offset in known if offset is not None}

    # Whose directory

    def read_meta(self) -> MetaProperties | None:
        """None in a new directory."""
        path = f"{self.path}/{META_NAME}"
        if not self._files.exists(path):
            return None
        try:
            # Java reads and writes such files in Latin-1, which has a character for every byte.
            return parse_meta_properties(self._files.read(path).decode("latin-1"))
        except CorruptCheckpoint as error:
            raise CorruptCheckpoint(f"{path} is damaged: {error}") from None

    def write_meta(self, meta: MetaProperties) -> None:
        self._files.replace(f"{self.path}/{META_NAME}", format_meta_properties(meta).encode())

    # Trouble

    def probe(self) -> bool:
        """Whether the directory can be written to at all. May run in another thread."""
        path = f"{self._logs_path}/{PROBE_NAME}"
        try:
            self._files.replace(path, bytes(512))
            self._files.remove(path)
            self._files.sync_directory(self._logs_path)
        except OSError:
            return False
        return True

    def space(self) -> Space:
        """May run in another thread. Raises OSError."""
        return self._files.space(self._logs_path)

    def keep_reserve(self, size: int) -> None:
        """Space that is given back when the disk is full, so that checkpoints can still be written."""
        path = f"{self.path}/{RESERVE_NAME}"
        if size:
            self._files.reserve(path, size)
        elif self._files.exists(path):
            self._files.remove(path)

    def release_reserve(self) -> None:
        path = f"{self.path}/{RESERVE_NAME}"
        if self._files.exists(path):
            self._files.remove(path)

    @property
    def has_trash(self) -> bool:
        return len(self.shared.trash) > 0

    def empty_trash(self, now_ms: int) -> bool:
        """Removes some of what has been deleted for long enough; whether there is more. May run in another thread."""
        return self.shared.trash.empty(now_ms)

    # The end

    def _unmark(self) -> None:
        """Before the first change of a run: from here on only a new clean stop makes the directory clean again."""
        marker = f"{self._logs_path}/{MARKER_NAME}"
        if self._files.exists(marker):
            self._files.remove(marker)
            self._files.sync_directory(self._logs_path)

    def close(
        self, high_watermarks: Mapping[TopicPartition, int] | None = None, *, broker_epoch: int = -1
    ) -> list[tuple[TopicPartition, OSError]]:
        """A clean stop. Logs that could not be brought to the disk are returned: they are checked at the next start."""
        if high_watermarks is None:
            high_watermarks = self._high_watermarks()
        failures = [(name, OSError("its disk had failed")) for name in sorted(self._given_up)]
        logs = sorted(self._logs.items())
        close = self._close_together if len(logs) > CLOSED_ONE_BY_ONE_MAX else _close_one_by_one
        failures += close(logs)
        try:
            self._write_stop({name for name, _ in failures}, high_watermarks, broker_epoch)
        except OSError as error:
            failures.append((TopicPartition("", -1), error))
        self._tree.close()
        self._lock.release()
        return failures

    def _close_together(self, logs: list[tuple[TopicPartition, Log]]) -> Iterator[tuple[TopicPartition, OSError]]:
        """Ten thousand syncs take a minute, one of the whole file system a second."""
        finished = []
        for name, log in logs:
            try:
                log.finish()
                finished.append((name, log))
            except OSError as error:
                yield name, error
        try:
            self._tree.sync()
        except OSError as error:
            for name, _ in finished:
                yield name, error
            return
        for name, log in finished:
            log.close_synced()
            if not log.is_complete:
                yield name, log.failure or OSError("it was not closed")

    def _write_stop(
        self, failed: set[TopicPartition], high_watermarks: Mapping[TopicPartition, int] | None, broker_epoch: int
    ) -> None:
        marker = f"{self._logs_path}/{MARKER_NAME}"
        if self._files.exists(marker):
            return  # nothing has changed since the last one
        self.checkpoint_job(high_watermarks)()
        for name, log in self._logs.items():
            if name in failed:
                self._remembered.pop(name, None)
            elif log.exists and log.segments.active is not None:
                high_watermark = (high_watermarks or {}).get(name, log.log_end_offset)
                self._remembered[name] = Remembered(
                    log.topic_id,
                    log.log_start_offset,
                    log.log_end_offset,
                    high_watermark,
                    log.segments.active.base_offset,
                    log.segments.active.size,
                    log.size_bytes,
                    log.producers.first_undecided(high_watermark),
                    log.local_log_start_offset,
                )
        self._files.replace(f"{self._logs_path}/{STATE_NAME}", encode_state(self._remembered))
        if failed or not (self.was_clean or self._on_disk <= self._logs.keys()):
            # The marker would speak for all, also for those that failed, or could not be opened after a crash. Without
            # it, the others are still known to be as they were left.
            return
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._files.replace(marker, content.encode())

    def abandon(self) -> None:
        """Lets go of everything as it is, as if the process had died."""
        for log in self._logs.values():
            log.abandon()
        self._tree.close()
        self._lock.release()


def _make_durably(files: Files, path: str) -> None:
    """With its parents. Those that were not there are in their parents for good when it returns."""
    to_sync = {parent_of(path), parent_of(parent_of(path))}  # an earlier start may have died before it came to this
    at = path
    while not files.exists(at) and parent_of(at) != at:
        at = parent_of(at)
        to_sync.add(at)
    files.make_directory(path)
    for directory in sorted(to_sync):
        files.sync_directory(directory)


def _close_one_by_one(logs: list[tuple[TopicPartition, Log]]) -> Iterator[tuple[TopicPartition, OSError]]:
    for name, log in logs:
        try:
            log.close()
            if not log.is_complete:
                yield name, log.failure or OSError("it was not closed")
        except OSError as error:
            yield name, error
