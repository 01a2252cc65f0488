"""What a disk error takes down: one partition, or its whole directory, never the broker.

The partition that met the error answers KAFKA_STORAGE_ERROR at once. Whether its directory goes with it is decided by
the error itself (disk full, read-only) or by a probe: a small file is created, written, synced and deleted.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Protocol

from headrace.broker.parking import FetchEvents
from headrace.broker.partitions import Hosted, Partitions
from headrace.errors import CorruptLog, ErrorCode
from headrace.runtime import Offload
from headrace.storage.log_dir import LogDir

log = logging.getLogger(__name__)

FILES_LANE = "files"
SYNC = "flush"
"""What is said to be done when a log is brought to the disk."""
WHOLE_DIRECTORY = frozenset({errno.ENOSPC, errno.EROFS, errno.EDQUOT})
SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Of the machine: they pass, and say nothing about a disk."""


class Followers(Protocol):
    """What is replicated from other nodes."""

    def partition_failed(self, partition: Hosted, doing: str, error: OSError | CorruptLog) -> None: ...
    def stop(self, partition: Hosted) -> None: ...
    def directory_failed(self, directory: LogDir) -> None: ...


class DiskFaults:
    def __init__(self, offload: Offload, partitions: Partitions, events: FetchEvents) -> None:
        self._offload = offload
        self._partitions = partitions
        self._events = events
        self.offline_directories: set[str] = set()
        self.on_loss: Callable[[], None] = lambda: None
        """The disk has failed in some way: nobody may take this node's logs for whole any more. May raise OSError."""
        self.announce: Callable[[frozenset[tuple[bytes, int]]], None] = lambda _: None
        """All replicas, by topic id and index, that this process does not serve any more, after it has stopped to."""
        self.on_offline: Callable[[Hosted], None] = lambda _: None
        """A partition that this node may have led is offline."""
        self.on_last_failed: Callable[[str], None] = lambda _: None
        """No directory is left: this process can do nothing more. With one sentence."""
        self.followers: Followers | None = None
        self.given_up: dict[Hosted, None] = {}
        """Followers whose disk failed. Nobody touches their logs before they get another role."""

    def failed(self, partition: Hosted, doing: str, error: OSError | CorruptLog) -> None:
        """Something could not be read or looked up: whoever asked is told, and for others it may be over."""
        if isinstance(error, OSError) and error.errno in SHORTAGE:
            log.warning("%s: %s failed for now: %s", partition, doing, error)
        else:
            self.lost(partition, doing, error)

    def lost(self, partition: Hosted, doing: str, error: OSError | CorruptLog) -> None:
        """What was to be stored is not, or nobody knows."""
        directory = partition.directory
        is_offline = partition.fault is ErrorCode.KAFKA_STORAGE_ERROR
        must_be = partition.is_leading or self._has_told_too_much(partition, doing, error)
        if is_offline or must_be or self.followers is None:
            if not is_offline:
                log.error("%s is offline: %s failed: %s", partition, doing, error)
            self._take_offline(partition)
            self._announce()
        elif isinstance(error, CorruptLog) or error.errno not in WHOLE_DIRECTORY:
            self.followers.partition_failed(partition, doing, error)
        if isinstance(error, OSError) and error.errno in SHORTAGE:
            return  # it says nothing about the disk
        self._tell_loss()
        if isinstance(error, CorruptLog):
            return
        if error.errno in WHOLE_DIRECTORY:
            self.directory_failed(directory, str(error))
            return
        probed = self._offload.run(FILES_LANE, directory.probe)

        def judge(future: "asyncio.Future[bool]") -> None:
            if not future.result():
                self.directory_failed(directory, "its probe failed")

        probed.add_done_callback(judge)

    def _has_told_too_much(self, partition: Hosted, doing: str, error: OSError | CorruptLog) -> bool:
        """A follower's leader counts on records that nobody knows to be on the disk: it must do so no longer.

        As long as they are in the ISR this replica may be elected, without what it would have to cut. So it is offline
        as a leader would be, until the process starts again, which then says that it has lost something.
        """
        opened = partition.log_if_open
        return is_sync_failure(doing, error) and opened is not None and partition.log_end_offset > opened.recovery_point

    def directory_failed(self, directory: LogDir, reason: str) -> None:
        if directory.path in self.offline_directories:
            return
        self.offline_directories.add(directory.path)
        self._partitions.retire(directory)
        log.error(
            "log directory %s is offline: %s; free or repair the disk, then restart the node", directory.path, reason
        )
        try:
            directory.release_reserve()
        except OSError as error:
            log.error("the reserve of log directory %s was not given back: %s", directory.path, error)
        for partition in self._partitions:
            if partition.directory is directory:
                self._take_offline(partition)
        if self.followers is not None:
            self.followers.directory_failed(directory)
        self._tell_loss()
        self._announce()
        if all(known.path in self.offline_directories for known in self._partitions.directories):
            self.on_last_failed(
                f"No data directory is left: {directory.path} is offline, {reason}; free or repair the disk, then "
                "start the node again"
            )

    def give_up(self, partition: Hosted, *, is_doubted: bool) -> None:
        """A follower's log failed: its files stay as they are, until it gets another role."""
        self.given_up[partition] = None
        self._partitions.open.pop(partition, None)
        partition.let_log_go()
        partition.directory.give_up(partition.topic, partition.index, is_doubted=is_doubted)

    def _tell_loss(self) -> None:
        try:
            self.on_loss()
        except OSError as error:
            log.error("it could not be noted that this node's logs are not whole: %s", error)

    def _announce(self) -> None:
        """A follower that failed alone is not offline: it leaves the ISR by its lag."""
        self.announce(
            frozenset(
                (partition.topic_id, partition.index)
                for partition in self._partitions
                if partition.fault or partition.directory.path in self.offline_directories
            )
        )

    def _take_offline(self, partition: Hosted) -> None:
        if partition.fault is not ErrorCode.KAFKA_STORAGE_ERROR:
            partition.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            self._partitions.open.pop(partition, None)
            if self.followers is not None:
                self.followers.stop(partition)
            if partition.subscribers:
                self._events.replica_changed(partition)
            wake_acks(partition)
            self.on_offline(partition)


def is_sync_failure(doing: str, error: OSError | CorruptLog) -> bool:
    """Whether nobody knows any more what is on the disk."""
    return doing == SYNC and isinstance(error, OSError) and error.errno not in SHORTAGE


def wake_acks(partition: Hosted) -> None:
    """Producers that wait for this partition look at it again; those still waiting put themselves back."""
    settle_all, partition.waiting_acks = partition.waiting_acks, None
    for settle in settle_all or ():
        settle()
