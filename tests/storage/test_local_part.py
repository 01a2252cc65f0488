"""A log of which the tier has the beginning: where it begins, where it begins on this disk, and what remembers it."""

import random

import pytest

from headrace.core.producers import ProducerTable
from headrace.errors import CorruptLog
from headrace.storage.local_part import NAME
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.memory_files import MemoryFiles
from headrace.storage.segment_files import segment_files
from headrace.storage.snapshots import decode_snapshot, encode_snapshot
from tests.storage.batches import TOPIC_ID, batch

CONFIG = LogConfig(segment_bytes=300, is_tiered=True, local_retention_bytes=1, file_delete_delay_ms=0)


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def opened(files: MemoryFiles, remote_log_start: int | None = 0, *, clean: bool = False) -> Log:
    """By another process, which finds what the one before left."""
    files.restart()
    directory = LogDir(files, "/data")
    if not clean:
        directory.was_clean = False
    return directory.open_log("t", 0, TOPIC_ID, CONFIG, remote_log_start)


def filled(files: MemoryFiles, batches: int = 20) -> Log:
    log = opened(files, None)
    for _ in range(batches):
        log.append([batch(log.log_end_offset, 10, epoch=log.log_end_offset // 50)], 0, is_fetched=True)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_only_what_the_tier_has_whole_and_is_committed_goes(files: MemoryFiles) -> None:
    log = filled(files)
    before = bases(log)
    assert log.enforce_local_retention(0, 200, before[2] + 1) == 2
    assert bases(log) == before[2:]
    assert log.enforce_local_retention(0, before[3] - 1, 200) == 0
    assert log.enforce_local_retention(0, 200, 200) == len(before) - 3, "the active segment stays"
    assert (log.log_start_offset, log.local_log_start_offset) == (0, before[-1])
    assert [entry.start_offset for entry in log.epochs.entries] == [0, 50, 100, 150]


def test_a_limit_of_local_bytes_or_age_is_kept(files: MemoryFiles) -> None:
    log = filled(files)
    size = log.size_bytes
    log.config = LogConfig(segment_bytes=300, is_tiered=True, local_retention_bytes=size // 2)
    log.enforce_local_retention(0, 200, 200)
    assert size // 2 <= log.size_bytes < size // 2 + 300
    log.config = LogConfig(segment_bytes=300, is_tiered=True, local_retention_ms=-1, local_retention_bytes=-1)
    assert log.enforce_local_retention(1 << 50, 200, 200) == 0


def test_a_restart_begins_where_the_tier_says_and_the_disk_where_it_did(files: MemoryFiles) -> None:
    log = filled(files)
    log.enforce_local_retention(0, 200, 120)
    local = log.local_log_start_offset
    log.flush_now()
    again = opened(files, 30)
    assert (again.log_start_offset, again.local_log_start_offset) == (30, local)
    assert again.epochs.entries[0].start_offset == 30
    assert again.local.is_full and again.local.since_ms == -1


def test_without_a_tier_the_log_begins_where_its_files_do(files: MemoryFiles) -> None:
    log = filled(files)
    log.enforce_local_retention(0, 200, 120)
    local = log.local_log_start_offset
    log.flush_now()
    again = opened(files, None)
    assert again.log_start_offset == again.local_log_start_offset == local


@pytest.mark.parametrize("seed", range(30))
def test_segments_that_a_power_cut_brings_back_make_no_hole(files: MemoryFiles, seed: int) -> None:
    log = filled(files)
    log.flush_now()
    log.enforce_local_retention(0, 200, 150)
    local = log.local_log_start_offset
    chance = random.Random(seed)
    files.lose_power(lambda: chance.random() < 0.5)
    again = opened(files)
    assert again.log_start_offset == 0
    assert again.local_log_start_offset in (local, 0) and again.log_end_offset == 200
    assert all(
        one.end_offset == two.base_offset for one, two in zip(again.segments, list(again.segments)[1:], strict=False)
    )


def test_records_that_are_deleted_below_the_local_start_move_the_log_start_alone(files: MemoryFiles) -> None:
    log = filled(files)
    log.enforce_local_retention(0, 200, 150)
    kept, local = bases(log), log.local_log_start_offset
    log.advance_log_start(60)
    assert (log.log_start_offset, log.local_log_start_offset, bases(log)) == (60, local, kept)
    assert log.starts_inside
    assert [entry.start_offset for entry in log.epochs.entries] == [60, 100, 150]
    log.advance_log_start(local + 15)
    assert log.log_start_offset == log.local_log_start_offset == local + 15


def test_a_cut_below_the_local_start_leaves_an_empty_log_behind_the_tier(files: MemoryFiles) -> None:
    log = filled(files)
    log.enforce_local_retention(0, 200, 150)
    log.truncate_to(70)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 70, 70)
    assert [entry.start_offset for entry in log.epochs.entries] == [0, 50]
    assert not log.local.is_full
    log.append([batch(70, 10, epoch=9)], 0, is_fetched=True)
    log.flush_now()
    again = opened(files)
    assert (again.log_start_offset, again.local_log_start_offset, again.log_end_offset) == (0, 70, 80)


@pytest.mark.parametrize("cut", [500, 450])
def test_a_cut_that_leaves_nothing_does_not_make_a_log_look_as_if_it_had_all(files: MemoryFiles, cut: int) -> None:
    """What a replica covers is known from its start behind the tier, or else it begins with the cut (KIP-1303)."""
    log = opened(files, None)
    log.truncate_fully_and_start_at(500, 100, since_ms=12_345)
    log.append([batch(500, 10, epoch=9)], 0, is_fetched=True)
    log.truncate_to(cut, 20_000)
    assert (log.local_log_start_offset, log.log_end_offset, log.local.since_ms) == (cut, cut, 12_345)
    assert opened(files, 100).local.since_ms == 12_345


def test_a_log_that_was_cut_wholly_covers_what_comes_after_it(files: MemoryFiles) -> None:
    log = filled(files)
    log.enforce_local_retention(0, 200, 150)
    assert log.local.is_full
    log.truncate_to(70, 20_000)
    assert log.local.since_ms == 20_000 and not log.local.is_full


def test_a_log_that_begins_anew_remembers_since_when(files: MemoryFiles) -> None:
    log = opened(files, None)
    log.truncate_fully_and_start_at(500, 100, since_ms=12_345)
    assert log.exists
    again = opened(files, 100)
    assert (again.log_start_offset, again.local_log_start_offset, again.log_end_offset) == (100, 500, 500)
    assert again.local.since_ms == 12_345 and not again.local.is_full


def test_what_a_newer_program_wrote_is_refused_and_what_is_damaged_is_not_believed(files: MemoryFiles) -> None:
    log = filled(files)
    log.enforce_local_retention(0, 200, 150)
    log.flush_now()
    path = f"{log.directory}/{NAME}"
    content = files.read(path)
    files.replace(path, content[:-1] + bytes([content[-1] ^ 1]))
    assert not opened(files).local.is_full
    files.replace(path, content[:4] + b"\0\2" + content[6:])
    with pytest.raises(CorruptLog, match="version 2; this program knows 1"):
        opened(files)


def test_a_lost_list_of_epochs_is_not_made_from_what_is_on_the_disk(files: MemoryFiles) -> None:
    """Else what is in the tier alone would count as missing."""
    log = filled(files)
    log.enforce_local_retention(0, 200, 150)
    log.flush_now()
    files.remove(f"{log.directory}/leader-epoch-checkpoint")
    with pytest.raises(CorruptLog, match="leader epochs is lost"):
        opened(files)
    assert opened(files, None).epochs.entries, "nothing is in the tier any more"


def test_the_files_of_a_complete_segment_are_all_that_is_needed_to_read_it(files: MemoryFiles) -> None:
    log = filled(files)
    first, second = log.segments[0], log.segments[1]
    found = segment_files(log, first.base_offset)
    assert found is not None
    assert (found.base_offset, found.end_offset) == (0, second.base_offset)
    assert files.read(found.log.path)[: found.log.bytes] == first.log.read(0, first.size)
    for part in (found.offset_index, found.time_index):
        assert files.size(part.path) == part.bytes
    assert found.txn_index is None
    decode_snapshot(found.snapshot, alive_ms=0)
    assert segment_files(log, log.segments[-1].base_offset) is None, "it is appended to"
    assert segment_files(log, 1) is None


def test_a_lost_snapshot_is_made_from_the_batches(files: MemoryFiles) -> None:
    log = filled(files)
    files.remove(f"{log.directory}/{log.segments[1].base_offset:020d}.snapshot")
    found = segment_files(log, 0)
    assert found is not None and found.snapshot == encode_snapshot(ProducerTable())
