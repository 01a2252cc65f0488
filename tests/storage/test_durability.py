"""Tdur-1, 2, 5 and 7, and the storage half of 3 and 6: what is there after deaths, power losses and failing disks."""

import errno
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headrace.core.producers import Duplicate, ProducerTable
from headrace.errors import ErrorCode
from headrace.model import Buffer
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.memory_files import MemoryFiles, ProcessDied
from headrace.wire.batch import BatchHeader, read_header
from tests.storage.batches import TOPIC_ID, batch, offsets_in

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100, flush_messages=1)


class Story:
    """A life of a directory with one partition, and what producers were told."""

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self.written: list[bytes] = []
        self.written_end = 0
        self.synced_end = 0
        self.start = 0

    def append(self, log: Log, epoch: int, count: int) -> None:
        made = []
        end = log.log_end_offset
        for number in range(count):
            records = 1 + number % 3
            # Recorded as a broker does: when the batch is accepted, not when it is written.
            producer = (number % 2, 0, next_sequence(log, number % 2))
            raw, header = batch(end, records, epoch=epoch, value=bytes(20 * number), producer=producer)
            assert log.producers.check(header) is ErrorCode.NONE
            log.producers.record(header, header.base_offset, 0)
            made.append((raw, header))
            end += records
        del self.written[_index_of(self.written, log.log_end_offset) :]
        self.written += [bytes(raw) for raw, _ in made]
        log.append(made, 1_000)
        self.written_end = log.log_end_offset
        if log.needs_flush_before_ack():
            job = log.flush_job()
            job.run()
            log.flushed(job)
        self.synced_end = log.recovery_point

    def tell(self, first_epoch: int) -> None:
        directory = LogDir(self.files, "/data")
        log = directory.open_log("t", 0, TOPIC_ID, SMALL)
        self.append(log, first_epoch, 3)
        self.append(log, first_epoch, 5)
        directory.checkpoint_job()()
        self.append(log, first_epoch + 1, 1)
        self.start = log.log_start_offset + 4
        log.advance_log_start(self.start)
        self.append(log, first_epoch + 1, 6)
        log.config = LogConfig(retention_bytes=600, segment_bytes=500, index_interval_bytes=100, flush_messages=1)
        log.enforce_retention(1_000, log.log_end_offset)
        directory.checkpoint_job()()
        directory.empty_trash(0)
        directory.empty_trash(60_000)
        self.append(log, first_epoch + 2, 2)
        assert directory.close() == []


def _index_of(written: list[bytes], offset: int) -> int:
    """How many batches lie below `offset`."""
    count = 0
    for raw in written:
        if offsets_in(raw)[0][0] < offset:
            count += 1
    return count


def points() -> int:
    """How often the story can be cut short."""
    files = MemoryFiles()
    story = Story(files)
    story.tell(0)
    story.tell(3)
    return files.changes


def endings(bytes_written: int, every: int = 1) -> Iterator[tuple[MemoryFiles, Story]]:
    """The story, ended by a death at each change (or fewer); of a write that much still happens."""
    for point in range(0, points() + 1, every):
        files = MemoryFiles()
        story = Story(files)
        files.die_at(point, bytes_written=bytes_written)
        with suppress(ProcessDied):
            story.tell(0)
            story.tell(3)
        yield files, story


def check(files: MemoryFiles, story: Story, promised: int) -> None:
    """The log is a prefix of what was sent to it, holds what was promised, and goes on."""
    log = LogDir(files, "/data").open_log("t", 0, TOPIC_ID, SMALL)
    assert log.log_end_offset >= promised
    kept = read_all(log)
    first = next((at for at, raw in enumerate(story.written) if kept and raw == kept[0]), 0)
    assert kept == story.written[first : first + len(kept)]
    for raw in kept:
        header = read_header(raw)
        assert log.epochs.epoch_at(header.base_offset) == header.leader_epoch
    expected = ProducerTable()
    for raw in story.written[: first + len(kept)]:
        expected.record(read_header(raw), read_header(raw).base_offset, 0)
    for producer_id, producer in expected.items():
        assert next_sequence(log, producer_id) == producer.next_sequence
    Story(files).append(log, 9, 2)


def next_sequence(log: Log, producer_id: int) -> int:
    producer = log.producers.get(producer_id)
    return 0 if producer is None else producer.next_sequence


def read_all(log: Log) -> list[bytes]:
    found: list[bytes] = []
    offset = log.segments[0].base_offset if len(log.segments) else 0
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 1, log.log_end_offset, True))
        found.append(data)
        offset = offsets_in(data)[-1][1] + 1
    return found


@pytest.mark.parametrize("bytes_written", [0, 100])
def test_tdur_1_a_process_death_at_any_change_costs_nothing_that_was_acknowledged(bytes_written: int) -> None:
    for files, story in endings(bytes_written):
        files.restart()
        check(files, story, story.written_end)


@pytest.mark.parametrize("survivors", ["none", 1, 2])
def test_tdur_2_with_flush_messages_1_a_power_loss_at_any_change_does_neither(survivors: str | int) -> None:
    chance = random.Random(survivors)
    for files, story in endings(bytes_written=64):
        files.lose_power(None if survivors == "none" else lambda: chance.random() < 0.6)
        check(files, story, story.synced_end)


def test_a_death_while_recovering_from_a_death_loses_nothing_either() -> None:
    for files, story in endings(bytes_written=30, every=20):
        for point in range(8):
            files.restart()
            files.die_at(files.changes + point, bytes_written=10)
            with suppress(ProcessDied):
                LogDir(files, "/data").open_log("t", 0, TOPIC_ID, SMALL)
        files.restart()
        check(files, story, story.written_end)


# Failing disks


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def fill(log: Log, batches: int, *, epoch: int = 0) -> None:
    for _ in range(batches):
        log.append([batch(log.log_end_offset, 2, epoch=epoch)], 1_000)


def test_tdur_5_after_a_failed_fsync_nothing_it_covered_counts_as_durable(files: MemoryFiles) -> None:
    log = LogDir(files, "/data").open_log("t", 0, TOPIC_ID, SMALL)
    fill(log, 3)
    job = log.flush_job()
    job.run()
    log.flushed(job)
    assert log.recovery_point == 6
    fill(log, 1)
    files.fail("sync", "*.log", errno.EIO)
    job = log.flush_job()
    fill(log, 1)  # the loop goes on while the job is under way
    with pytest.raises(OSError):
        job.run()
    with pytest.raises(OSError):
        log.flushed(job)
    # The next fsync would succeed, and prove nothing.
    with pytest.raises(OSError):
        log.flush_job()
    with pytest.raises(OSError):
        fill(log, 1)
    assert log.recovery_point == 6


def test_a_directory_with_a_log_that_failed_is_not_marked_clean(files: MemoryFiles) -> None:
    directory = LogDir(files, "/data")
    good, bad = (directory.open_log("t", number, TOPIC_ID, SMALL) for number in (0, 1))
    fill(good, 1)
    fill(bad, 1)
    files.fail("write", "*/t-1/*.log", errno.EIO)
    with pytest.raises(OSError):
        fill(bad, 1)
    assert [str(name) for name, _ in directory.close()] == ["t-1"]
    directory = LogDir(files, "/data")
    assert not directory.was_clean
    assert directory.open_log("t", 1, TOPIC_ID, SMALL).log_end_offset == 2


@pytest.mark.parametrize("bytes_written", [0, 10, 90])
def test_tdur_7_after_a_failed_write_producer_state_is_the_files_again(files: MemoryFiles, bytes_written: int) -> None:
    directory = LogDir(files, "/data")
    log = directory.open_log("t", 0, TOPIC_ID, SMALL)

    def accept(sequence: int) -> tuple[Buffer, BatchHeader]:
        raw, header = batch(sequence, 1, producer=(7, 0, sequence))
        assert log.producers.check(header) is ErrorCode.NONE
        log.producers.record(header, header.base_offset, 0)
        return raw, header

    log.append([accept(0), accept(1)], 0)
    files.fail("write", "*.log", errno.EIO, bytes_written=bytes_written)
    with pytest.raises(OSError):
        log.append([accept(2), accept(3)], 0)
    assert log.log_end_offset == 2
    log.reload_producers()
    for reopened in (log, reopen_after_death(files)):
        _, retry = batch(2, 1, producer=(7, 0, 2))
        assert reopened.producers.check(retry) is ErrorCode.NONE
        assert reopened.log_end_offset == 2
        _, earlier = batch(2, 1, producer=(7, 0, 1))
        assert reopened.producers.check(earlier) == Duplicate(1, 1, 1_000)


def reopen_after_death(files: MemoryFiles) -> Log:
    files.restart()
    return LogDir(files, "/data").open_log("t", 0, TOPIC_ID, SMALL)


def test_tdur_3_a_full_directory_leaves_another_one_alone(files: MemoryFiles) -> None:
    full, other = LogDir(files, "/full"), LogDir(files, "/other")
    full.keep_reserve(10_000)
    log_in_full = full.open_log("t", 0, TOPIC_ID, SMALL)
    log_in_other = other.open_log("t", 1, TOPIC_ID, SMALL)
    fill(log_in_full, 2)
    fill(log_in_other, 2)
    assert full.probe()
    disk_is_full = files.fail("write", "/full/*", errno.ENOSPC, times=10**9)
    with pytest.raises(OSError) as failure:
        fill(log_in_full, 1)
    assert failure.value.errno == errno.ENOSPC
    assert not full.probe()
    assert other.probe()
    fill(log_in_other, 2)
    assert log_in_other.log_end_offset == 8
    # The reserve goes, so that there is room for the checkpoints.
    full.release_reserve()
    assert not files.exists("/full/.headrace-reserve")
    disk_is_full.times = 0
    full.checkpoint_job()()


def test_tdur_6_an_error_on_one_file_stops_one_partition_of_fifty(files: MemoryFiles) -> None:
    directory = LogDir(files, "/data")
    logs = [directory.open_log("t", number, TOPIC_ID, SMALL) for number in range(50)]
    for log in logs:
        fill(log, 1)
    files.fail("write", "/data/logs/t-17/*.log", errno.EIO, times=10**9)
    stopped = []
    for number, log in enumerate(logs):
        try:
            fill(log, 1)
        except OSError:
            stopped.append(number)
    assert stopped == [17]
    assert directory.probe()
    assert logs[17].log_end_offset == 2
    assert offsets_in(logs[17].read(0, 1_000, 2, True)) == [(0, 1)]


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory", "truncate"])
def test_whatever_fails_once_the_log_opens_again_with_all_that_was_taken(files: MemoryFiles, operation: str) -> None:
    for nth in range(1, 12):
        files = MemoryFiles()
        story = Story(files)
        directory = LogDir(files, "/data")
        log = directory.open_log("t", 0, TOPIC_ID, SMALL)
        files.fail(operation, "/data/logs/t-0*", errno.EIO, nth=nth)
        with suppress(OSError):
            for _ in range(5):
                story.append(log, 0, 4)
            story.synced_end -= 6
            log.truncate_to(log.log_end_offset - 3)
        files.restart()
        files.faults.clear()
        check(files, story, story.synced_end)
