"""A log that begins behind what the tier has, and what is left of it whenever the process or the machine dies."""

import random
from contextlib import suppress

import pytest

from headrace.core.epochs import EpochEntry
from headrace.core.producers import ProducerTable
from headrace.storage.from_tier import begin_from_tier
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.memory_files import MemoryFiles, ProcessDied
from headrace.storage.snapshots import encode_snapshot
from tests.storage.batches import TOPIC_ID, batch, offsets_in

CONFIG = LogConfig(segment_bytes=1_000, is_tiered=True)
EPOCHS = ((1, 0), (2, 40), (4, 90))


def snapshot() -> bytes:
    producers = ProducerTable()
    producers.record(batch(99, epoch=4, producer=(7, 0, 3))[1], 99, 0)
    return encode_snapshot(producers)


def opened(files: MemoryFiles, remote_log_start: int | None = 10) -> tuple[LogDir, Log]:
    directory = LogDir(files, "/data")
    return directory, directory.open_log("t", 0, TOPIC_ID, CONFIG, remote_log_start)


def write(log: Log, count: int = 5) -> None:
    for _ in range(count):
        log.append([batch(log.log_end_offset, 10, epoch=1, producer=(5, 0, log.log_end_offset))], 0, is_fetched=True)


def begin(log: Log) -> None:
    begin_from_tier(log, 100, 10, EPOCHS, snapshot(), since_ms=700, now_ms=1_000)


def check_begun(log: Log) -> None:
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (10, 100, 100)
    assert log.epochs.entries == (EpochEntry(1, 10), EpochEntry(2, 40), EpochEntry(4, 90))
    assert [number for number, _ in log.producers.items()] == [7]
    assert (log.local.since_ms, log.local.is_full) == (700, False)


@pytest.mark.parametrize("batches", [0, 3])
def test_it_has_the_epochs_and_producers_of_what_came_before_and_takes_the_next_batch(batches: int) -> None:
    _, log = opened(MemoryFiles())
    write(log, batches)
    begin(log)
    check_begun(log)
    log.append([batch(100, 2, epoch=4, producer=(7, 0, 4))], 0, is_fetched=True)
    assert offsets_in(log.read(100, 1 << 20, 102, True)) == [(100, 101)]


@pytest.mark.parametrize("is_clean", [True, False])
def test_it_is_the_same_after_a_restart(is_clean: bool) -> None:
    files = MemoryFiles()
    directory, log = opened(files)
    write(log)
    begin(log)
    if is_clean:
        assert directory.close() == []
    files.restart()
    check_begun(opened(files)[1])


def test_epochs_behind_the_beginning_are_not_taken_over() -> None:
    _, log = opened(MemoryFiles())
    begin_from_tier(log, 90, 10, EPOCHS, b"", since_ms=700, now_ms=1_000)
    assert log.epochs.entries == (EpochEntry(1, 10), EpochEntry(2, 40))
    assert len(log.producers) == 0


def test_it_begins_anew_when_the_leaders_disk_has_moved_on_meanwhile() -> None:
    files = MemoryFiles()
    _, log = opened(files)
    begin(log)
    begin_from_tier(log, 150, 10, (*EPOCHS, (6, 120)), snapshot(), since_ms=900, now_ms=1_000)
    files.restart()
    log = opened(files)[1]
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (10, 150, 150)
    assert log.epochs.latest == 6 and log.local.since_ms == 900


def deaths() -> int:
    files = MemoryFiles()
    _, log = opened(files)
    write(log)
    before = files.changes
    begin(log)
    return files.changes - before


@pytest.mark.parametrize("survivors", ["all", "none", "some"])
@pytest.mark.parametrize("batches", [0, 5])
def test_whenever_it_ends_there_is_the_old_log_or_the_new_one_with_all_that_belongs_to_it(
    survivors: str, batches: int
) -> None:
    """A log that begins at 100 without its epochs would pass for one that may lead."""
    chance = random.Random(3)
    for point in range(deaths() + 1):
        files = MemoryFiles()
        directory, log = opened(files)
        write(log, batches)
        if batches:
            log.flush_now()
            directory.checkpoint_job()()
        files.die_at(files.changes + point)
        with suppress(ProcessDied):
            begin(log)
        if survivors == "all":
            files.restart()
        else:
            files.lose_power(lambda: survivors == "some" and chance.random() < 0.5)
        log = opened(files)[1]
        if log.log_end_offset == 100:
            check_begun(log)
        else:
            assert log.log_end_offset <= 10 * batches, "what it never had"
            assert all(start < max(log.log_end_offset, 1) for _, start in log.epochs.entries)
        begin(log)
        check_begun(log)


def test_what_is_flushed_afterwards_survives_a_power_cut() -> None:
    files = MemoryFiles()
    directory, log = opened(files)
    directory.checkpoint_job()()
    begin(log)
    log.append([batch(100, 2, epoch=4, producer=(7, 0, 4))], 0, is_fetched=True)
    log.flush_now()
    files.lose_power()
    log = opened(files)[1]
    assert (log.local_log_start_offset, log.log_end_offset) == (100, 102)
