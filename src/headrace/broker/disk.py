"""What a disk error takes down: one partition, or its whole directory, never the broker.

The partition that met the error answers KAFKA_STORAGE_ERROR at once. Whether its directory goes with it is decided by
the error itself (disk full, read-only) or by a probe: a small file is created, written, synced and deleted.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from headrace.core.partition import Partition
from headrace.errors import ErrorCode
from headrace.runtime import Offload

log = logging.getLogger(__name__)

FILES_LANE = "files"
WHOLE_DIRECTORY = frozenset({errno.ENOSPC, errno.EROFS, errno.EDQUOT})


class Directory(Protocol):
    """A log directory, as far as faults go."""

    @property
    def path(self) -> str: ...
    def probe(self) -> bool: ...
    def release_reserve(self) -> None: ...


class DiskFaults:
    def __init__(
        self,
        offload: Offload,
        directory_of: Callable[[Partition], Directory],
        partitions_in: Callable[[Directory], Iterable[Partition]],
        on_offline: Callable[[Partition], None],
    ) -> None:
        self._offload = offload
        self._directory_of = directory_of
        self._partitions_in = partitions_in
        self._on_offline = on_offline
        self.offline_directories: set[str] = set()

    def failed(self, partition: Partition, doing: str, error: OSError) -> None:
        directory = self._directory_of(partition)
        log.error("%s-%d is offline: %s failed: %s", partition.topic, partition.index, doing, error)
        self._take_offline(partition)
        if error.errno in WHOLE_DIRECTORY:
            self.directory_failed(directory, str(error))
            return
        probed = self._offload.run(FILES_LANE, directory.probe)

        def judge(future: "asyncio.Future[bool]") -> None:
            if not future.result():
                self.directory_failed(directory, "its probe failed")

        probed.add_done_callback(judge)

    def directory_failed(self, directory: Directory, reason: str) -> None:
        if directory.path in self.offline_directories:
            return
        self.offline_directories.add(directory.path)
        directory.release_reserve()
        log.error(
            "log directory %s is offline: %s; free or repair the disk, then restart the node", directory.path, reason
        )
        for partition in self._partitions_in(directory):
            self._take_offline(partition)

    def _take_offline(self, partition: Partition) -> None:
        if partition.error is not ErrorCode.KAFKA_STORAGE_ERROR:
            partition.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            self._on_offline(partition)
