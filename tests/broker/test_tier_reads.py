"""Reads from the tier: all records once, by few and bounded loads, whatever the store does."""

import asyncio

import msgspec
import pytest

from headrace.broker import tier_loads
from headrace.broker.tier_loads import Want
from headrace.core.producers import AbortedTransaction
from headrace.errors import ErrorCode
from headrace.tier.memory import Mishap
from headrace.wire.batch import end_of, headers
from tests.broker.tiered import RECORDS, Tiered, aborted, quiet, read, read_all


@pytest.mark.parametrize("bytes_max", [1, 700, 5_000, 1 << 20])
@pytest.mark.parametrize("index_every", [1, 5, 1_000])
async def test_a_reader_gets_all_batches_once_and_in_order(bytes_max: int, index_every: int) -> None:
    partition = Tiered(segments=4, batches=30, index_every=index_every)
    reads = partition.reads(cache_bytes=64 << 10)
    assert await read_all(reads, partition, bytes_max=bytes_max) == partition.log


NEAR = 1 << 30


@pytest.mark.parametrize("near_bytes", [1, 4_000, NEAR])
@pytest.mark.parametrize("index_every", [1, 5, 1_000])
async def test_what_is_in_memory_here_is_not_asked_of_the_store(index_every: int, near_bytes: int) -> None:
    partition = Tiered(segments=4, batches=30, index_every=index_every)
    partition.near_bytes = near_bytes
    reads = partition.reads(cache_bytes=64 << 10)
    assert await read_all(reads, partition) == partition.log
    assert bool(partition.bucket.bytes_read) == (near_bytes < NEAR)
    assert partition.counts.fetched_bytes >= len(partition.log)


async def test_what_is_in_memory_here_is_had_at_once_and_nothing_is_read_ahead_of_it() -> None:
    partition = Tiered(segments=1, batches=60, value_bytes=1_000, index_every=1)
    partition.near_bytes = NEAR
    reads = partition.reads(cache_bytes=512 << 10)
    found = b""
    while len(found) < len(partition.log):
        want = Want(partition, end_of(found) if found else 0, is_committed=True)
        assert reads.load_at_once(want) is not None and reads.is_at_hand(*want)
        found += bytes(reads.read(want, 1, partition.log_end_offset, True))
        assert not reads.loads.running
    assert found == partition.log and not partition.bucket.bytes_read
    assert sum(partition.near_steps) < 1.05 * len(partition.log)


async def test_what_was_read_at_once_is_not_kept_when_all_of_it_was_read() -> None:
    partition = Tiered(segments=4, batches=30)
    partition.near_bytes = NEAR
    reads = partition.reads()
    kept = []
    for row in partition.rows:
        want = Want(partition, row.base_offset, is_committed=False)
        assert reads.load_at_once(want) == 2, "its map, and its one span"
        assert reads.load_at_once(want) == 0
        reads.read(want, len(partition.log), row.base_offset + 1, True)
        assert reads.is_at_hand(*want), "there is more of it"
        assert reads.read(want, len(partition.log), row.end_offset + 1, True)
        assert not reads.is_at_hand(*want)
        kept.append(len(reads.cache))
    assert kept == [1, 2, 3, 4], "maps alone"


async def test_what_is_far_is_not_read_at_once_but_may_be_asked_for() -> None:
    partition = Tiered()
    partition.near_bytes = 1
    reads = partition.reads()
    want = Want(partition, 0, is_committed=False)
    assert reads.load_at_once(want) is None and partition.looks == 1
    assert await read(reads, partition, 0)


async def test_a_segment_that_could_not_be_read_is_not_at_hand_because_it_is_near() -> None:
    partition = Tiered()
    partition.near_bytes = NEAR
    reads = partition.reads()
    want = Want(partition, 0, is_committed=False)
    reads.loads.fail(partition, partition.rows[0], None, "the store is away")
    assert reads.load_at_once(want) is None and not partition.near_steps


async def test_of_what_is_in_memory_here_one_load_comes_in_each_turn_and_others_have_theirs() -> None:
    partition = Tiered(segments=6, batches=30)
    partition.near_bytes = NEAR
    reads = partition.reads()
    for row in partition.rows:
        assert reads.ask(Want(partition, row.base_offset, is_committed=False))
    turns: list[int] = []
    while reads.loads.running:
        before = len(partition.near_steps)
        await asyncio.sleep(0)
        turns.append(sum(size > 1 for size in partition.near_steps[before:]))  # without looks at one byte
    assert sum(turns) == 12, "the map of each segment, and its one span"
    assert max(turns) == 1


async def test_an_object_that_is_too_short_is_told_apart_from_one_that_is_not_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = Tiered()
    reads = partition.reads()
    key = partition.key_of(partition, partition.rows[0])
    partition.bucket.objects[key] = partition.bucket.objects[key][:10]
    await read(reads, partition, 0)
    assert f"cannot be read: {key} has 10 bytes" in caplog.text and "there is no object" not in caplog.text
    caplog.clear()
    del partition.bucket.objects[key]
    await read(partition.reads(), partition, 0)
    assert f"cannot be read: there is no object {key}" in caplog.text


async def test_a_spoilt_segment_in_memory_here_is_an_error() -> None:
    partition = Tiered()
    partition.near_bytes = NEAR
    row = partition.rows[0]
    key = partition.key_of(partition, row)
    content = bytearray(partition.bucket.objects[key])
    content[16] = 1  # the magic byte
    partition.bucket.objects[key] = bytes(content)
    reads = partition.reads()
    want = Want(partition, 0, is_committed=False)
    reads.load_at_once(want)
    assert reads.read(want, 1 << 20, partition.log_end_offset, True) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_an_index_in_memory_here_that_is_not_its_own_is_looked_at_anew() -> None:
    partition = Tiered(index_every=1)
    partition.near_bytes = NEAR
    key = partition.key_of(partition, partition.rows[0])
    start, size = partition.rows[0].sections.index
    content = bytearray(partition.bucket.objects[key])
    content[start : start + size] = b"\x7f" * size
    partition.bucket.objects[key] = bytes(content)
    reads = partition.reads()
    want = Want(partition, 0, is_committed=False)
    assert reads.load_at_once(want) and partition.forgotten == [key]
    assert reads.read(want, 1 << 20, partition.log_end_offset, True) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_every_offset_is_found_alone() -> None:
    partition = Tiered(segments=2, batches=10)
    reads = partition.reads()
    for offset in range(partition.local_log_start_offset):
        found = await read(reads, partition, offset, 1)
        assert isinstance(found, bytes)
        (header,) = [header for _, header in headers(found)]
        assert header.base_offset == offset - offset % RECORDS


async def test_reading_much_more_than_the_memory_holds_asks_for_little_more_than_it_gets() -> None:
    partition = Tiered(segments=20, batches=40, value_bytes=1_000)
    reads = partition.reads(cache_bytes=512 << 10)
    assert len(partition.log) > 4 * reads.cache.bytes_max
    assert await read_all(reads, partition, bytes_max=30_000) == partition.log
    await quiet(reads)
    assert partition.bucket.bytes_read == partition.counts.fetched_bytes <= 1.05 * len(partition.log)


async def test_a_segment_with_an_index_that_is_larger_than_the_memory_is_read_too() -> None:
    partition = Tiered(segments=3, batches=400, value_bytes=1, index_every=1)
    assert partition.rows[0].sections.index[1] > 3_000
    reads = partition.reads(cache_bytes=2_000)
    found = b""
    async with asyncio.timeout(20):
        while len(found) < len(partition.log):
            offset = end_of(found) if found else 0
            more = await read(reads, partition, offset)
            assert isinstance(more, bytes)
            found += more
    assert found == partition.log


async def test_several_readers_share_what_was_read() -> None:
    partition = Tiered(segments=4, batches=40, value_bytes=1_000)
    reads = partition.reads(cache_bytes=2 << 20)
    found = await asyncio.gather(*(read_all(reads, partition, bytes_max=30_000) for _ in range(5)))
    assert set(found) == {partition.log}
    assert partition.bucket.bytes_read <= 1.05 * len(partition.log)


async def test_many_partitions_at_once_stay_within_the_memory_and_all_go_on() -> None:
    partitions = [Tiered(segments=2, batches=40, value_bytes=1_000) for _ in range(12)]
    reads = partitions[0].reads(cache_bytes=256 << 10, running_max=4)
    logs = {id(partition): partition.remote_log_of(partition) for partition in partitions}
    for n, partition in enumerate(partitions):
        partition.rows = [
            msgspec.structs.replace(row, id=f"{100 * n + at:032x}") for at, row in enumerate(partition.rows)
        ]
        logs[id(partition)] = partition.remote_log_of(partition)
        stored = list(partition.bucket.objects.values())
        for row, content in zip(partition.rows, stored, strict=True):
            partitions[0].bucket.objects[partition.key_of(partition, row)] = content
    reads._remote_log_of = lambda partition: logs[id(partition)]
    found = await asyncio.gather(*(read_all(reads, partition, bytes_max=20_000) for partition in partitions))
    assert found == [partition.log for partition in partitions]
    total = sum(len(partition.log) for partition in partitions)
    assert partitions[0].counts.fetched_bytes <= 1.2 * total


async def test_nothing_is_read_ahead_of_where_local_segments_begin() -> None:
    partition = Tiered(segments=4, batches=40, value_bytes=1_000)
    partition.local_log_start_offset = 2 * 40 * RECORDS
    reads = partition.reads(cache_bytes=1 << 20)
    await read_all(reads, partition, bytes_max=20_000)
    await quiet(reads)
    assert partition.bucket.bytes_read <= 1.05 * len(partition.log) / 2
    assert reads.cache.map_of(partition.rows[1].id) is not None
    assert reads.cache.map_of(partition.rows[2].id) is None


async def test_while_the_store_fails_a_reader_waits_and_then_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_loads, "BACKOFF_MS", 5)
    partition = Tiered()
    calls = 0

    def mishap(*_: str) -> Mishap:
        nonlocal calls
        calls += 1
        return Mishap(fails=bool(calls % 2))

    partition.bucket.mishap = mishap
    reads = partition.reads(cache_bytes=64 << 10)
    assert await read_all(reads, partition) == partition.log
    assert partition.counts.fetch_errors


async def test_a_segment_whose_object_is_gone_or_spoilt_is_an_error_and_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tier_loads, "BACKOFF_MS", 60_000)
    partition = Tiered(segments=3)
    gone, spoilt, _ = (partition.key_of(partition, row) for row in partition.rows)
    del partition.bucket.objects[gone]
    partition.bucket.objects[spoilt] = b"\0" * len(partition.bucket.objects[spoilt])
    reads = partition.reads()
    bases = [row.base_offset for row in partition.rows]
    assert await read(reads, partition, bases[0]) is ErrorCode.KAFKA_STORAGE_ERROR
    assert await read(reads, partition, bases[1]) is ErrorCode.KAFKA_STORAGE_ERROR
    assert isinstance(await read(reads, partition, bases[2]), bytes)


async def test_an_offset_that_no_segment_has_is_out_of_range() -> None:
    partition = Tiered(segments=3)
    del partition.rows[1]
    reads = partition.reads()
    assert await read(reads, partition, partition.rows[1].base_offset - 1) is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_divergent_segment_is_never_read() -> None:
    """T8-3: the leader has another history from some offset on."""
    partition = Tiered(segments=3)
    partition.rows[1] = msgspec.structs.replace(partition.rows[1], epochs=((7, partition.rows[1].base_offset),))
    reads = partition.reads()
    assert isinstance(await read(reads, partition, 0), bytes)
    assert await read(reads, partition, partition.rows[1].base_offset) is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_what_comes_beyond_the_queue_is_refused_alone() -> None:
    partition = Tiered()
    partition.bucket.mishap = lambda *_: Mishap(delay_ms=20)
    reads = partition.reads(running_max=1, waiting_max=2)
    asked = [reads.ask(Want(partition, row.base_offset, False)) for row in partition.rows for _ in range(2)]
    assert asked == [True] * 6, "the same again is not another one"
    assert reads.ask(Want(partition, 5, True)) is False
    await quiet(reads)
    assert reads.is_at_hand(partition, 0, False)


async def test_whoever_waits_is_told_when_there_is_something() -> None:
    partition = Tiered()
    reads = partition.reads()
    assert not reads.is_at_hand(partition, 0, False)
    reads.ask(Want(partition, 0, False))
    await quiet(reads)
    assert partition.told == 1 and reads.is_at_hand(partition, 0, False)


async def test_nothing_beyond_the_limit_is_given() -> None:
    partition = Tiered()
    reads = partition.reads()
    await read(reads, partition, 0)
    found = reads.read(Want(partition, 0, False), 1 << 20, 3 * RECORDS, True)
    assert not isinstance(found, ErrorCode)
    assert [header.base_offset for _, header in headers(found)] == [0, RECORDS, 2 * RECORDS]


def with_aborts(partition: Tiered, at: int, index: bytes) -> None:
    row = partition.rows[at]
    key = partition.key_of(partition, row)
    sections = msgspec.structs.replace(row.sections, txnindex=(len(partition.bucket.objects[key]), len(index)))
    partition.bucket.objects[key] += index
    partition.rows[at] = msgspec.structs.replace(row, sections=sections)


async def test_readers_of_committed_records_hear_of_aborts_whose_markers_lie_in_later_segments() -> None:
    partition = Tiered(segments=4, batches=10)
    with_aborts(partition, 0, aborted(7, 3, 8, 5))
    with_aborts(partition, 2, aborted(8, 5, 70, 71) + aborted(9, 66, 72, 73))
    with_aborts(partition, 3, aborted(9, 95, 100, 101))
    reads = partition.reads()
    want = Want(partition, 6, True)
    records = await read(reads, partition, 6, 200, is_committed=True)
    assert isinstance(records, bytes)
    assert reads.aborted_in(want, records) == (
        [AbortedTransaction(7, 3, 8, 5), AbortedTransaction(8, 5, 70, 71)],
        True,
    )
    assert reads.cache.aborted_of(partition.rows[3].id) is None, "nobody needed it"
    want = Want(partition, 90, True)
    records = await read(reads, partition, 90, 200, is_committed=True)
    assert isinstance(records, bytes)
    assert reads.aborted_in(want, records) == ([], True)


async def test_local_segments_may_know_more_aborts_of_remote_records() -> None:
    partition = Tiered(segments=2, batches=10)
    with_aborts(partition, 0, aborted(7, 3, 8, 4))
    reads = partition.reads()
    records = await read(reads, partition, 0, is_committed=True)
    assert isinstance(records, bytes)
    assert reads.aborted_in(Want(partition, 0, True), records) == ([AbortedTransaction(7, 3, 8, 4)], False)


async def test_a_spoilt_index_of_aborted_transactions_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_loads, "BACKOFF_MS", 60_000)
    partition = Tiered(segments=2)
    with_aborts(partition, 0, b"\7" * 34)
    reads = partition.reads()
    assert await read(reads, partition, 0, is_committed=True) is ErrorCode.KAFKA_STORAGE_ERROR
