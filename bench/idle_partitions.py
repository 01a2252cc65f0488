"""What a partition costs that nobody uses, and one that somebody used: `python -m bench.idle_partitions`.

Idle means: in the metadata, hosted, never written to. No inode, no descriptor, and so many bytes of memory.
"""

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from headrace.broker.partitions import Partitions
from headrace.config import BrokerConfig, TopicConfig
from headrace.core.cluster import ClusterImage, IsrMember, PartitionRecord, Topic
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.os_files import OsFiles
from headrace.system import SystemRandom
from tests.storage.batches import TOPIC_ID, batch

IDLE = 100_000
USED = 10_000
OPEN_FILES_MAX = 2_000


class Cost(NamedTuple):
    seconds: float
    memory_bytes: int


def measured(action: Callable[[], object]) -> tuple[object, Cost]:
    gc.collect()
    before, began = _resident_bytes(), time.perf_counter()
    result = action()
    return result, Cost(time.perf_counter() - began, _resident_bytes() - before)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def scratch() -> Generator[str, None, None]:
    path = tempfile.mkdtemp(prefix="headrace-bench-")
    try:
        yield path
    finally:
        shutil.rmtree(path)


def host_idle(path: str) -> None:
    directory = LogDir(OsFiles(OPEN_FILES_MAX), path)
    partitions = Partitions([directory], SystemRandom(), ClusterImage(1, {}))
    record = PartitionRecord((1,), (IsrMember(1, 1),), 1)
    config = TopicConfig.resolve(BrokerConfig(), {})
    topic = Topic("t", TOPIC_ID, [record] * IDLE, 1, [1] * IDLE, {}, 0, config)
    inodes, descriptors = _inodes(path), len(os.listdir("/proc/self/fd"))
    _, cost = measured(lambda: partitions.host(topic, range(IDLE)))
    print(f"{IDLE:,} idle partitions hosted in {cost.seconds:.2f} s: {cost.memory_bytes / IDLE:.0f} bytes each,")
    print(f"  {_inodes(path) - inodes} inodes, {len(os.listdir('/proc/self/fd')) - descriptors} descriptors")
    directory.close()


def _inodes(path: str) -> int:
    return sum(len(directories) + len(names) for _, directories, names in os.walk(path))


def use(path: str) -> None:
    config = LogConfig()
    files = OsFiles(OPEN_FILES_MAX)
    directory = LogDir(files, path)
    first = batch(0)

    def append_to_all() -> None:
        for number in range(USED):
            directory.open_log("t", number, TOPIC_ID, config).append([first], 1_000)

    _, cost = measured(append_to_all)
    print(f"{USED:,} partitions with one record each: {cost.seconds / USED * 1e6:.0f} us for the first append,")
    print(f"  {cost.memory_bytes / USED:.0f} bytes each, {files.open_files:,} descriptors")
    _, cost = measured(directory.close)
    print(f"clean stop with all of them written to: {cost.seconds:.2f} s")
    opened, cost = measured(lambda: LogDir(OsFiles(OPEN_FILES_MAX), path))
    assert isinstance(opened, LogDir) and opened.was_clean and opened.remembered("t", USED - 1) is not None
    print(f"start after it: {cost.seconds:.2f} s, {cost.memory_bytes / USED:.0f} bytes each")
    _, cost = measured(lambda: [opened.open_log("t", number, TOPIC_ID, config) for number in range(USED)])
    print(f"each then opened on first use: {cost.seconds / USED * 1e6:.0f} us, {cost.memory_bytes / USED:.0f} bytes")
    opened.close()


def main() -> None:
    with scratch() as path:
        host_idle(path)
    with scratch() as path:
        use(path)


if __name__ == "__main__":
    main()
