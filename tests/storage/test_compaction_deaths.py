"""Tcomp-4: whatever ends a node while it compacts, the log holds what it should, and compaction goes on."""

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.memory_files import MemoryFiles, ProcessDied
from headrace.wire.markers import build_marker
from tests.storage.batches import TOPIC_ID
from tests.storage.compacting import NOW_MS, appended, batches_in, compact, dirt, keyed, records_in, roll

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, is_compacted=True)
KEYS = 7


class Story:
    """A log that is compacted twice: the second round makes one segment of several."""

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self.written: dict[int, tuple[bytes, bytes]] = {}
        self.rolled_back: set[int] = set()
        self.synced_end = 0
        self.first_round_at = 0
        """The change with which compaction begins."""

    def tell(self) -> None:
        directory = LogDir(self.files, "/data")
        log = directory.open_log("t", 0, TOPIC_ID, CONFIG)
        self.fill(log, directory)
        self.first_round_at = self.files.changes
        compact(log)
        self.fill(log, directory)
        compact(log)
        directory.empty_trash(0)
        directory.empty_trash(60_000)
        assert directory.close() == []

    def fill(self, log: Log, directory: LogDir) -> None:
        for number in range(12):
            key, value = b"%d" % (number % KEYS), b"%d " % log.log_end_offset * 8
            self.written[log.log_end_offset] = key, value
            keyed(log, (key, value))
        self.rolled_back.add(log.log_end_offset)
        sequence = 0 if (known := log.producers.get(2)) is None else known.next_sequence
        keyed(log, (b"0", b"rolled back"), producer=(2, 0, sequence), transactional=True)
        appended(log, build_marker(2, 0, False, 0, NOW_MS))
        roll(log)
        directory.checkpoint_job()()
        self.synced_end = log.log_end_offset

    def check(self) -> None:
        directory = LogDir(self.files, "/data")
        log = directory.open_log("t", 0, TOPIC_ID, CONFIG)
        self.written = {offset: record for offset, record in self.written.items() if offset < log.log_end_offset}
        self.rolled_back = {offset for offset in self.rolled_back if offset < log.log_end_offset}
        if log.producers.first_open_offset is not None:
            assert log.producers.first_open_offset >= self.synced_end
            appended(log, build_marker(2, 0, False, 0, NOW_MS))
        self.compare(log)
        left = [name for name in self.files.names(log.directory) if name.endswith((".cleaned", ".swap"))]
        assert left == []
        keyed(log, (b"new", b"1"))
        self.written[log.log_end_offset - 1] = b"new", b"1"
        roll(log)
        if dirt(log).cleanable_bytes:
            compact(log)
        self.compare(log)
        assert directory.close() == []

    def compare(self, log: Log) -> None:
        assert log.log_end_offset >= self.synced_end
        newest = {key: (offset, value) for offset, (key, value) in self.written.items()}
        seen = {}
        for offset, key, value in records_in(log):
            if offset in self.rolled_back:
                assert log.aborted_in(offset, log.read(offset, 1, log.log_end_offset, True))
                continue
            assert self.written[offset] == (key, value)
            seen[key] = offset, value
        assert seen == newest
        ends = [(header.base_offset, header.last_offset) for header, _ in batches_in(log)]
        assert ends == sorted(set(ends))


def endings(bytes_written: int, *, begin: int = 0, every: int = 1) -> Iterator[tuple[MemoryFiles, Story]]:
    files = MemoryFiles(lambda: NOW_MS)
    whole = Story(files)
    whole.tell()
    for point in range(whole.first_round_at + begin, files.changes + 1, every):
        files = MemoryFiles(lambda: NOW_MS)
        story = Story(files)
        files.die_at(point, bytes_written=bytes_written)
        with suppress(ProcessDied):
            story.tell()
        yield files, story


def test_tcomp_4_a_process_death_at_any_change_leaves_the_old_segments_or_the_new_ones() -> None:
    for files, story in endings(bytes_written=100):
        files.restart()
        story.check()


@pytest.mark.parametrize("begin", [0, 1, 2])
def test_tcomp_4_a_power_loss_at_any_change_does_so_too(begin: int) -> None:
    chance = random.Random(begin)
    for files, story in endings(bytes_written=64, begin=begin, every=3):
        survives = chance.choice((lambda: False, lambda: chance.random() < 0.5))
        files.lose_power(survives)
        story.check()


def test_tcomp_4_a_second_death_while_a_swap_is_finished_changes_nothing() -> None:
    chance = random.Random(4)
    for files, story in endings(bytes_written=0, every=3):
        files.lose_power(lambda: chance.random() < 0.5)
        names = files.names("/data/logs/t-0")
        if not any(name.endswith(".log.swap") for name in names):
            continue
        for later in range(12):
            files.die_at(files.changes + later)
            with suppress(ProcessDied):
                LogDir(files, "/data").open_log("t", 0, TOPIC_ID, CONFIG)
            files.lose_power(lambda: chance.random() < 0.5)
        story.check()
