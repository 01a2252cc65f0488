"""What a log does, rule by rule. Its behaviour as a whole is compared with a list in test_log_machine.py."""

import threading
from pathlib import Path
from random import Random

import pytest

from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.memory_files import MemoryFiles
from headrace.storage.opening import open_log
from headrace.storage.os_files import OsFiles
from headrace.storage.shared import Shared
from headrace.wire.batch import place, read_header, stamp_append_time
from headrace.wire.compression import Codec
from tests.storage.batches import TOPIC_ID, batch, offsets_in

DIRECTORY = "/data/logs/t-0"
DAY_MS = 86_400_000


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/data/logs")
    return files


def new_log(files: MemoryFiles, config: LogConfig) -> Log:
    return open_log(Shared(files), DIRECTORY, TOPIC_ID, config)


def fill(log: Log, count: int, *, records: int = 1, timestamp: int = 1_000, epoch: int = 0) -> None:
    for _ in range(count):
        log.append([batch(log.log_end_offset, records, timestamp=timestamp, epoch=epoch)], timestamp)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# Files


def test_nothing_is_on_the_disk_before_the_first_append(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig())
    log.epochs.assign(3, 0)
    assert (log.log_end_offset, log.size_bytes, log.read(0, 100, 0, True)) == (0, 0, b"")
    assert log.find_time(0, 0) is None and log.max_timestamp(0) is None and log.readable_bytes(0, 0) == 0
    log.enforce_retention(DAY_MS, 0)
    log.close()
    assert files.names("/data/logs") == []


def test_the_first_append_makes_the_directory_with_kafkas_files(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig())
    fill(log, 1, epoch=3)
    assert files.names(DIRECTORY) == [f"{0:020d}.log", "leader-epoch-checkpoint", "partition.metadata"]
    assert files.read(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n1\n3 0\n"
    assert files.read(f"{DIRECTORY}/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    log.close()
    suffixes = {name.rpartition(".")[2] for name in files.names(DIRECTORY)}
    assert suffixes == {"log", "index", "timeindex", "snapshot", "leader-epoch-checkpoint", "metadata"}


def test_batches_of_one_append_are_one_write(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig())
    fill(log, 1)
    before = files.changes
    log.append([batch(1), batch(2, 3), batch(5)], 1_000)
    assert files.changes == before + 1
    assert offsets_in(log.read(0, 10_000, 6, False)) == [(0, 0), (1, 1), (2, 4), (5, 5)]


def test_a_read_is_one_read_of_the_file_where_the_last_one_ended(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = new_log(files, LogConfig(index_interval_bytes=200))
    fill(log, 50)
    reads: list[str] = []
    enter = files.enter

    def count(operation: str, path: str, size: int = 0, life: int | None = None) -> int:
        if operation == "read":
            reads.append(path)
        return enter(operation, path, size, life)

    offset = offsets_in(log.read(0, 500, 50, False))[-1][1] + 1
    monkeypatch.setattr(files, "enter", count)
    while offset < 50:
        reads.clear()
        offset = offsets_in(log.read(offset, 500, 50, False))[-1][1] + 1
        assert len(reads) == 1


# Rolling


def test_a_segment_is_rolled_before_a_batch_that_does_not_fit(files: MemoryFiles) -> None:
    size = len(batch(0)[0])
    log = new_log(files, LogConfig(segment_bytes=3 * size))
    log.append([batch(offset) for offset in range(8)], 1_000)
    assert bases(log) == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * size, 3 * size, 2 * size]


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_never_leaves_a_later_segment_without_the_ones_before(files: MemoryFiles, seed: int) -> None:
    size = len(batch(0)[0])
    config = LogConfig(segment_bytes=3 * size)
    files.sync_directory("/data/logs")
    new_log(files, config).append([batch(offset) for offset in range(8)], 1_000)
    chance = Random(seed)
    files.lose_power(lambda: chance.random() < 0.5)
    assert new_log(files, config).log_start_offset == 0


def test_a_batch_longer_than_a_segment_gets_one_of_its_own(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig(segment_bytes=200))
    log.append([batch(0), batch(1, value=bytes(1_000)), batch(2)], 1_000)
    assert bases(log) == [0, 1, 2]


def test_a_segment_is_rolled_when_its_first_batch_is_too_old_for_the_next(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig(segment_ms=1_000))
    fill(log, 1, timestamp=5_000)
    fill(log, 1, timestamp=6_000)
    assert bases(log) == [0]
    fill(log, 1, timestamp=6_001)
    assert bases(log) == [0, 2]
    fill(log, 1, timestamp=100)
    assert bases(log) == [0, 2]


def test_jitter_rolls_earlier_and_always_at_the_same_age(files: MemoryFiles) -> None:
    config = LogConfig(segment_ms=1_000, segment_jitter_ms=900)

    def age_at_roll(directory: str) -> int:
        log = open_log(Shared(files), directory, TOPIC_ID, config)
        fill(log, 1, timestamp=0)
        timestamp = 0
        while len(log.segments) == 1:
            timestamp += 10
            fill(log, 1, timestamp=timestamp)
        return timestamp

    ages = [age_at_roll(f"/data/logs/t-{number}") for number in range(6)]
    assert all(100 <= age <= 1_010 for age in ages) and len(set(ages)) > 1
    assert age_at_roll("/data/logs/t-0x") != age_at_roll("/data/logs/t-1x")


def test_a_segment_that_nobody_appends_to_is_rolled_by_the_wall_clock(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig(segment_ms=1_000))
    assert not log.roll_if_old(DAY_MS)
    fill(log, 1, timestamp=5_000)
    assert not log.roll_if_old(6_000)
    assert log.roll_if_old(6_001)
    assert bases(log) == [0, 1]
    assert not log.roll_if_old(DAY_MS)


def test_a_full_index_rolls_the_segment(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig(index_interval_bytes=0, index_bytes_max=120))
    fill(log, 30)
    assert len(log.segments) > 2
    log.close()
    for name in files.names(DIRECTORY):
        assert not name.endswith("index") or files.size(f"{DIRECTORY}/{name}") <= 120


def test_offsets_too_far_from_the_first_one_begin_a_segment(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig())
    log.append([batch(0), batch(2**31 - 1), batch(2**31)], 1_000)
    assert bases(log) == [0, 2**31]
    assert offsets_in(log.read(1, 1_000, 2**31 + 1, True)) == [(2**31 - 1, 2**31 - 1)]


def test_changed_settings_count_at_once(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig())
    fill(log, 5)
    log.config = LogConfig(segment_bytes=1)
    fill(log, 2)
    assert bases(log) == [0, 5, 6]


# Reading


def test_a_read_stops_at_the_limit_and_at_whole_batches(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig(index_interval_bytes=0))
    fill(log, 10, records=2)
    size = log.size_bytes // 10
    assert offsets_in(log.read(5, 10_000, 9, False)) == [(4, 5), (6, 7), (8, 9)]
    assert offsets_in(log.read(5, 10_000, 8, False)) == [(4, 5), (6, 7)]
    assert offsets_in(log.read(5, 3 * size - 1, 20, False)) == [(4, 5), (6, 7)]
    assert log.read(5, size - 1, 20, False) == b""
    assert offsets_in(log.read(5, size - 1, 20, True)) == [(4, 5)]
    assert offsets_in(log.read(5, 0, 20, True)) == [(4, 5)]
    assert log.read(5, 10_000, 5, True) == b""
    assert log.read(20, 10_000, 20, True) == b""


def test_what_can_be_read_is_known_without_reading(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig())
    fill(log, 3)
    log.append([batch(3), batch(4)], 1_000)
    size = log.size_bytes // 5
    assert log.readable_bytes(3, 5) == 2 * size
    assert log.readable_bytes(5, 5) == 0
    log.config = LogConfig(segment_bytes=1)
    fill(log, 1)
    assert log.readable_bytes(3, 6) is None
    assert log.readable_bytes(5, 6) == size


def test_memory_for_indexes_is_bounded_and_reads_do_not_notice(files: MemoryFiles) -> None:
    shared = Shared(files, index_bytes_in_memory_max=2_000)
    logs = [
        open_log(shared, f"/data/logs/t-{number}", TOPIC_ID, LogConfig(index_interval_bytes=0)) for number in range(10)
    ]
    for log in logs:
        fill(log, 60)
    for _ in range(2):
        for offset in (17, 3, 59):
            for log in logs:
                assert offsets_in(log.read(offset, 1, 60, True)) == [(offset, offset)]
                fill(log, 0)
    assert len(shared.indexes_in_memory) < 10


# Time


@pytest.mark.parametrize("codec", list(Codec))
def test_a_time_is_found_inside_a_compressed_batch(files: MemoryFiles, codec: Codec) -> None:
    log = new_log(files, LogConfig(segment_bytes=1_000, index_interval_bytes=0))
    for number in range(20):
        log.append([batch(log.log_end_offset, 5, timestamp=1_000 * number, codec=codec, epoch=number // 10)], 0)
    assert log.find_time(7_003, 100) == (7_003, 38, 0)
    assert log.find_time(7_005, 100) == (8_000, 40, 0)
    assert log.find_time(0, 100) == (0, 0, 0)
    assert log.find_time(19_005, 100) is None
    assert log.find_time(7_003, 38) is None
    assert log.max_timestamp(100) == (19_004, 99, 1)
    assert log.max_timestamp(98) == (19_002, 97, 1)
    log.advance_log_start(39)
    assert log.find_time(0, 100) == (7_004, 39, 0)


def test_with_log_append_time_every_record_has_the_time_of_its_batch(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig())
    for number in range(3):
        raw, header = batch(number * 4, 4, timestamp=5)
        stamp_append_time(raw, 0, header.size, 1_000 + number)
        place(raw, 0, number * 4, 0)
        log.append([(raw, read_header(raw))], 0)
    assert log.find_time(1_001, 12) == (1_001, 4, 0)
    assert log.max_timestamp(12) == (1_002, 8, 0)


# Retention


def test_retention_by_time_drops_whole_segments_below_the_high_watermark() -> None:
    files = MemoryFiles(lambda: 9_000)
    files.make_directory("/data/logs")
    log = new_log(files, LogConfig(segment_bytes=1, retention_ms=1_000))
    for timestamp in (1_000, 3_000, 2_000, 9_000):
        fill(log, 1, timestamp=timestamp)
    assert log.enforce_retention(3_500, 4) == 1
    assert log.log_start_offset == 1
    assert log.enforce_retention(5_000, 1) == 0
    assert log.enforce_retention(5_000, 4) == 2
    assert (log.log_start_offset, log.log_end_offset) == (3, 4)
    # The segment that is appended to goes too, once all of it is too old.
    assert log.enforce_retention(20_000, 4) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (4, 4, 0)
    fill(log, 1)
    assert offsets_in(log.read(4, 1_000, 5, True)) == [(4, 4)]


def test_records_from_the_future_are_as_old_as_their_file() -> None:
    now = [50_000]
    files = MemoryFiles(lambda: now[0])
    files.make_directory("/data/logs")
    log = new_log(files, LogConfig(segment_bytes=1, retention_ms=1_000))
    fill(log, 2, timestamp=10**12)
    assert log.enforce_retention(51_000, 2) == 0
    assert log.enforce_retention(51_001, 2) == 2


def test_retention_by_size_keeps_at_least_that_much(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig(segment_bytes=1, retention_ms=-1))
    fill(log, 5)
    size = log.size_bytes // 5
    log.config = LogConfig(segment_bytes=1, retention_ms=-1, retention_bytes=2 * size + 1)
    assert log.enforce_retention(DAY_MS, 5) == 2
    assert log.log_start_offset == 2


def test_deleted_records_are_gone_at_once_and_their_files_when_the_trash_is_emptied(files: MemoryFiles) -> None:
    shared = Shared(files)
    log = open_log(shared, DIRECTORY, TOPIC_ID, LogConfig(segment_bytes=1))
    for epoch in range(5):
        fill(log, 1, epoch=epoch)
    log.advance_log_start(3)
    log.advance_log_start(2)
    assert (log.log_start_offset, bases(log)) == (3, [3, 4])
    assert log.epochs.entries == ((3, 3), (4, 4))
    assert len([name for name in files.names(DIRECTORY) if name.endswith(".log.deleted")]) == 3
    shared.trash.empty(0)
    assert [name for name in files.names(DIRECTORY) if name.endswith(".deleted")]
    shared.trash.empty(60_000)
    assert not [name for name in files.names(DIRECTORY) if name.endswith(".deleted")]


# Cutting


def test_a_cut_inside_a_batch_takes_all_of_it(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig())
    fill(log, 3, records=3)
    log.truncate_to(7)
    assert log.log_end_offset == 6
    fill(log, 1, epoch=1)
    assert offsets_in(log.read(0, 1_000, 7, True)) == [(0, 2), (3, 5), (6, 6)]


def test_cutting_at_the_end_still_forgets_epochs_that_began_there(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig())
    fill(log, 3)
    log.epochs.assign(5, 3)
    log.truncate_to(3)
    assert log.epochs.entries == ((0, 0),)


def test_an_epoch_without_records_stays_in_memory(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig())
    fill(log, 1)
    log.epochs.assign(5, 1)
    assert files.read(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    fill(log, 1, epoch=5)
    assert files.read(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n2\n0 0\n5 1\n"


def test_a_flush_that_began_before_a_cut_says_nothing_about_what_came_after(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig())
    fill(log, 5)
    job = log.flush_job()
    log.truncate_to(2)
    fill(log, 4, epoch=1)
    job.run()
    log.flushed(job)
    assert log.recovery_point == 0


# To the disk


def test_flush_messages_and_flush_ms_say_when(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig(flush_messages=3, flush_ms=500))
    fill(log, 2, timestamp=1_000)
    assert not log.needs_flush_before_ack()
    assert not log.needs_flush(1_499)
    assert log.needs_flush(1_500)
    fill(log, 1, timestamp=1_000)
    assert log.needs_flush_before_ack() and log.needs_flush(1_000)
    job = log.flush_job()
    job.run()
    log.flushed(job, 1_600)
    assert (log.recovery_point, log.needs_flush_before_ack(), log.needs_flush(9_999)) == (3, False, False)


def test_a_rolled_segment_wants_to_be_synced_and_only_then_moves_the_recovery_point(files: MemoryFiles) -> None:
    log = new_log(files, LogConfig(segment_bytes=1))
    fill(log, 1)
    assert not log.needs_flush(DAY_MS)
    fill(log, 1)
    assert log.needs_flush(0)
    assert log.recovery_point == 0
    job = log.flush_job()
    job.run()
    log.flushed(job)
    assert log.recovery_point == 2
    assert not log.needs_flush(DAY_MS)


def test_a_flush_runs_in_another_thread_while_the_loop_appends_and_deletes(tmp_path: Path) -> None:
    files = OsFiles(open_files_max=2)
    log = open_log(Shared(files), str(tmp_path / "t-0"), TOPIC_ID, LogConfig(segment_bytes=500))
    for _ in range(30):
        fill(log, 5)
        job = log.flush_job()
        thread = threading.Thread(target=job.run)
        thread.start()
        fill(log, 5)
        log.advance_log_start(log.log_end_offset - 8)
        thread.join()
        log.flushed(job)
        assert log.recovery_point == log.log_end_offset - 5
    assert files.open_files <= 2


def test_a_snapshot_that_was_cut_away_is_not_waited_for(tmp_path: Path) -> None:
    files = OsFiles(open_files_max=1)
    log = open_log(Shared(files), str(tmp_path / "t-0"), TOPIC_ID, LogConfig(segment_bytes=200))
    fill(log, 9)
    log.truncate_to(1)
    fill(log, 9, epoch=1)
    job = log.flush_job()
    job.run()
    log.flushed(job)
    assert log.recovery_point == 10
