"""Segments that the tier has go from the disk: what a power cut leaves of the log tells the same history."""

import random

import pytest

from headrace.core.epochs import EpochEntry
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.memory_files import MemoryFiles
from tests.storage.batches import TOPIC_ID, batch

CONFIG = LogConfig(segment_bytes=300, is_tiered=True, local_retention_bytes=1)


@pytest.mark.parametrize("seed", range(20))
def test_the_epochs_of_what_is_in_the_tier_alone_outlive_a_power_cut(seed: int) -> None:
    files = MemoryFiles()
    log = LogDir(files, "/data").open_log("t", 0, TOPIC_ID, CONFIG, None)
    for epoch in (3, 5):
        for _ in range(10):
            log.append([batch(log.log_end_offset, 10, epoch=epoch)], 0, is_fetched=True)
    assert log.enforce_local_retention(0, 200, 150) and log.log_start_offset == 0
    local_start = log.local_log_start_offset
    assert 100 < local_start <= 150
    chance = random.Random(seed)
    share = chance.choice((0.5, 0.9))
    files.lose_power(lambda: chance.random() < share)
    log = LogDir(files, "/data").open_log("t", 0, TOPIC_ID, CONFIG, 0)
    if log.log_end_offset > log.local_log_start_offset:
        assert log.epochs.entries == (EpochEntry(3, 0), EpochEntry(5, 100))


def test_what_is_appended_to_is_completed_when_it_has_had_its_time_on_the_disk() -> None:
    config = LogConfig(is_tiered=True, local_retention_ms=1_000)
    log = LogDir(MemoryFiles(), "/data").open_log("t", 0, TOPIC_ID, config, None)
    assert not log.roll_if_expired(10_000, 0)
    log.append([batch(0, 10, timestamp=5_000)], 5_000, is_fetched=True)
    assert not log.roll_if_expired(6_000, 10)
    assert not log.roll_if_expired(6_010, 9), "not all of it is committed"
    assert log.roll_if_expired(6_010, 10)
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    assert not log.roll_if_expired(10_000, 10), "it is empty"
    assert log.enforce_local_retention(10_000, 10, 10) == 1
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 10, 10)
