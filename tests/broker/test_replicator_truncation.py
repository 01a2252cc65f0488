"""A follower whose log is not a prefix of its leader's: where it cuts, and what is seen meanwhile."""

import pytest

from headrace.core.epochs import EpochEntry
from headrace.core.following import Phase
from headrace.wire.messages.fetch import PartitionData
from tests.broker.following import Following, following
from tests.broker.scripted_leader import LedLog
from tests.net.loops import until
from tests.storage.batches import batch


def write(bench: Following, *epochs: int, index: int = 0) -> None:
    """One record of each of these leader epochs, as if they had come from earlier leaders."""
    log = bench[index].log
    for epoch in epochs:
        log.append([batch(log.log_end_offset, epoch=epoch, value=b"mine")], 0)
    bench[index].log_found(log.log_start_offset, log.log_end_offset, 0)


def leads(bench: Following, *epochs: int) -> LedLog:
    led = bench.led()
    for epoch in epochs:
        led.leader_epoch = epoch
        led.append(value=b"mine")
    return led


async def test_what_the_leader_does_not_have_is_cut_off() -> None:
    async with following() as bench:
        write(bench, 0, 0, 1, 1, 1)
        leads(bench, 0, 0, 1, 2, 2)
        bench.follow(0, leader_epoch=3)
        await bench.until_equal(0)
        assert bench[0].log.epochs.entries == (EpochEntry(0, 0), EpochEntry(1, 2), EpochEntry(2, 3))


async def test_logs_that_share_no_last_epoch_are_cut_step_by_step() -> None:
    """KIP-279: the follower lacks the epoch that the leader names, and the other way round."""
    async with following() as bench:
        write(bench, 0, 1, 1, 3, 3, 5)
        leads(bench, 0, 1, 2, 2, 4, 6)
        bench.follow(0, leader_epoch=7)
        await bench.until_equal(0)


async def test_t5_2_epochs_without_records_end_in_agreement() -> None:
    async with following() as bench:
        write(bench, 0, 0)
        bench[0].log.epochs.assign(4, 2)  # it led, and nobody wrote
        led = leads(bench, 0, 0)
        for epoch in (1, 2, 3, 5):
            led.leader_epoch = epoch
            led.epochs.assign(epoch, led.log_end)
        bench.follow(0, leader_epoch=6)
        await until(lambda: len(bench.leader.requests) > 5)
        assert bench[0].log_end_offset == 2
        asked = [a for request in bench.leader.requests for t in request.topics for a in t.partitions]
        assert [a.last_fetched_epoch for a in asked] == [4, 0]
        bench.produce()
        await bench.until_equal(0)


async def test_a_diverging_answer_moves_neither_high_watermark_nor_log_start() -> None:
    """What it says of them is about records that the follower does not have."""
    async with following() as bench:
        write(bench, 0, 1, 1)
        led = leads(bench, 0, 2, 2)
        seen: list[int] = []

        def look(part: PartitionData) -> PartitionData:
            seen.append(bench[0].high_watermark)
            return part

        led.next_changes = [look] * 3
        bench.follow(0, leader_epoch=3)
        await bench.until_equal(0)
        # Until the fetch after the cut nothing of its own is committed; then only what both have.
        assert seen[:2] == [0, 0] and bench[0].high_watermark == 3


async def test_a_cut_below_the_high_watermark_lowers_it_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with following() as bench:
        write(bench, 0, 0, 0)
        bench[0].high_watermark = 3
        leads(bench, 0, 1)
        bench.follow(0, leader_epoch=2)
        await bench.until_equal(0)
        assert "t-0 is cut from offset 3 to 1, with the high watermark at 3" in caplog.text


async def test_a_log_that_is_longer_than_the_leaders_is_cut_to_its_end() -> None:
    async with following() as bench:
        write(bench, -1, -1, -1)  # no epochs: only the offset tells
        led = leads(bench)
        led.leader_epoch = 0
        led.append()
        bench.follow(0, leader_epoch=0)
        await until(lambda: bench[0].log_end_offset == 1)
        assert [r.topics[0].partitions[0].timestamp for r in bench.leader.offsets_asked] == [-1]
        assert [r.replica_id for r in bench.leader.offsets_asked] == [1]


async def test_a_log_that_ends_before_the_leaders_begins_starts_there() -> None:
    async with following() as bench:
        write(bench, 0, 0)
        for _ in range(9):
            bench.produce()
        led = bench.led()
        led.log_start = 6
        bench.follow(0)
        await until(lambda: bench[0].log_end_offset == 9)
        assert (bench[0].log_start_offset, bench[0].high_watermark) == (6, 9)
        assert [r.topics[0].partitions[0].timestamp for r in bench.leader.offsets_asked] == [-1, -2]
        assert bench.content() == led.bytes_from(6)


async def test_an_empty_follower_takes_the_batch_in_which_the_leaders_log_starts() -> None:
    async with following() as bench:
        bench.produce(records=5)
        bench.produce(records=5)
        bench.produce(records=5)
        bench.led().log_start = 7
        bench.follow(0)
        await until(lambda: bench[0].log_end_offset == 15)
        log = bench[0].log
        assert (log.segments[0].base_offset, log.log_start_offset, bench[0].log_start_offset) == (5, 7, 7)
        assert bench.content() == bench.led().bytes_from(7)
        assert bench.failed_indexes == []


async def test_offsets_are_not_asked_for_again_when_they_are_refused() -> None:
    async with following(2) as bench:
        write(bench, 0, 0)
        led = bench.led()
        led.log_start = led.log_end = led.high_watermark = 6
        bench.produce(1)
        bench.follow(0, 1)
        # The leader's epoch moves on between the fetch and the question.

        def move_on() -> None:
            led.leader_epoch = 1

        bench.leader.before_offsets = move_on
        await bench.until_equal(1)
        await until(lambda: bench.failed_indexes == [0])
        failed = bench.replicator.failed.get(bench[0])
        assert failed is not None and failed.reason == "leader epoch 0 is fenced" and bench.lines.errors == []
        bench.follow(0, leader_epoch=1)
        await until(lambda: bench[0].log_end_offset == 6)


async def test_a_repair_that_is_overtaken_by_a_new_epoch_does_nothing() -> None:
    async with following() as bench:
        write(bench, 0, 0)
        led = bench.led()
        led.log_start = led.log_end = led.high_watermark = 6
        bench.follow(0)
        bench.leader.before_offsets = lambda: bench.replicator.stop(bench[0])
        await until(lambda: not bench.replicator.fetchers)
        assert bench[0].log_end_offset == 2
        bench.leader.before_offsets = lambda: None
        bench.follow(0, leader_epoch=1)
        await until(lambda: bench[0].log_end_offset == 6)
        (fetcher,) = bench.replicator.fetchers.values()
        assert fetcher.partitions.phase(bench[0]) is Phase.FETCHING
