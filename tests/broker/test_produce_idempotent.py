"""Idempotent producers against a node: every batch once, in order, whatever is retried, killed or lost."""

import errno
from collections.abc import Callable

import pytest

from headrace.errors import ErrorCode
from headrace.storage.memory_files import MemoryFiles
from tests.broker.support import Client, Served, World, numbered, only_partition, records_of, serving, until, values_of
from tests.net.loops import on_both_loops

PRODUCER = 4711
SEQUENCE_MAX = 2**31 - 1


async def produced(client: Client, sequence: int, count: int = 1, epoch: int = 0, **fields: int) -> tuple[int, int]:
    """Error and offset of one batch."""
    answer = await client.produce(numbered((PRODUCER, epoch, sequence), count), **fields)
    return answer.error_code, answer.base_offset


@on_both_loops
async def test_tidem_1_five_in_flight_with_every_answer_lost_once_are_stored_once_and_in_order() -> None:
    async with serving() as (served, _):
        for first in range(0, 50, 5):
            batches = [
                records_of([b"%d" % sequence], producer=(PRODUCER, 0, sequence)) for sequence in range(first, first + 5)
            ]
            for _attempt in range(2):  # the first time nobody reads the answers
                client = await served.client()
                asked = [client.send(bytearray(batch)) for batch in batches]
                answers = [only_partition(await future) for future in asked]
                assert [a.base_offset for a in answers] == list(range(first, first + 5))
                client.peer.close()
        client = await served.client()
        assert values_of((await client.fetch(0)).records) == [b"%d" % number for number in range(50)]


async def test_tidem_2_what_was_written_but_not_answered_is_a_duplicate_after_the_kill() -> None:
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings={"flush.messages": "1"})
            assert await produced(client, 0) == (0, 0)
            world.offload.hold("files")
            unanswered = client.send(numbered((PRODUCER, 0, 1)))
            late = await served.client()
            assert await late.offset() == 1  # behind the write, ahead of the sync
            assert not unanswered.done()
            await served.kill()
            assert unanswered.exception() is not None
        async with world.started() as served:
            client = await served.client()
            assert await client.offset() == 2
            assert await produced(client, 1) == (0, 1)
            assert await produced(client, 2) == (0, 2)
            assert await client.offset() == 3


async def test_tidem_3_the_sixth_oldest_batch_is_no_longer_known() -> None:
    async with serving() as (_, client):
        for sequence in range(6):
            assert await produced(client, sequence) == (0, sequence)
        assert await produced(client, 1) == (0, 1)
        assert await produced(client, 0) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await client.offset() == 6


async def test_tidem_4_sequences_begin_again_after_the_highest() -> None:
    async with serving() as (_, client):
        assert await produced(client, SEQUENCE_MAX - 1, 2) == (0, 0)
        assert await produced(client, 0, 2) == (0, 2)
        assert await produced(client, 2) == (0, 4)
        # Across the wrap within one batch, of another producer.
        assert (await client.produce(numbered((1, 0, SEQUENCE_MAX), 3))).base_offset == 5
        assert (await client.produce(numbered((1, 0, 2)))).base_offset == 8
        assert (await client.produce(numbered((1, 0, SEQUENCE_MAX), 3))).base_offset == 5


async def test_tidem_5_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    async with serving() as (_, client):
        assert await produced(client, 0) == (0, 0)
        assert await produced(client, 5, epoch=1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produced(client, 0, epoch=1) == (0, 1)
        assert await produced(client, 1, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert await produced(client, 0, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert await produced(client, 1, epoch=1) == (0, 2)


async def test_a_gap_is_refused_and_the_right_batch_is_still_welcome() -> None:
    async with serving() as (_, client):
        assert await produced(client, 0, 3) == (0, 0)
        assert await produced(client, 4) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produced(client, 3) == (0, 3)


async def test_a_producer_nobody_knows_may_begin_anywhere() -> None:
    async with serving() as (_, client):
        assert await produced(client, 1_000) == (0, 0)
        assert await produced(client, 1_001) == (0, 1)


async def test_a_duplicate_is_told_the_time_of_the_first_append() -> None:
    async with serving(topic={"message.timestamp.type": "LogAppendTime"}) as (served, client):
        first = await client.produce(numbered((PRODUCER, 0, 0)))
        served.world.clock.now_ms += 1_000
        again = await client.produce(numbered((PRODUCER, 0, 0)))
        assert (again.base_offset, again.log_append_time_ms) == (0, first.log_append_time_ms)


async def test_partitions_keep_separate_accounts() -> None:
    async with serving(partitions=2) as (_, client):
        assert await produced(client, 0, partition=0) == (0, 0)
        assert await produced(client, 0, partition=1) == (0, 0)
        assert await produced(client, 1, partition=1) == (0, 1)
        assert await produced(client, 1, partition=0) == (0, 1)


async def same_answers_as_before(served: Served) -> None:
    """After batches 0 to 6, where the log ends at 7."""
    client = await served.client()
    for sequence in range(2, 7):
        assert await produced(client, sequence) == (0, sequence)
    assert await produced(client, 1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await produced(client, 8) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await client.offset() == 7
    assert await produced(client, 7) == (0, 7)


def nothing(_: MemoryFiles) -> None:
    pass


def without_snapshots(files: MemoryFiles) -> None:
    for path in snapshots(files):
        files.remove(path)


def with_broken_snapshots(files: MemoryFiles) -> None:
    for path in snapshots(files):
        files.open(path).write(8, [b"\xff\xff"])


def snapshots(files: MemoryFiles) -> list[str]:
    directory = "/data/logs/events-0"
    found = [f"{directory}/{name}" for name in files.names(directory) if name.endswith(".snapshot")]
    assert found
    return found


@pytest.mark.parametrize("harm", [nothing, without_snapshots, with_broken_snapshots])
@pytest.mark.parametrize("killed", [True, False])
async def test_tidem_6_a_restart_gives_the_same_answers_with_or_without_snapshots(
    killed: bool, harm: Callable[[MemoryFiles], None]
) -> None:
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings={"segment.bytes": "200"})  # so that there are snapshots, of rolls
            for sequence in range(7):
                assert await produced(client, sequence) == (0, sequence)
            if killed:
                await served.kill()
        harm(world.memory)
        async with world.started() as served:
            await same_answers_as_before(served)


async def test_a_batch_that_never_reached_the_disk_is_new_after_the_restart() -> None:
    """Tdur-7: its sequence was taken before its write failed, and must not be remembered."""
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            assert await produced(client, 0) == (0, 0)
            world.memory.fail("write", "*/events-0/*.log", errno.EIO, bytes_written=30)
            asked = [client.send(numbered((PRODUCER, 0, sequence))) for sequence in (1, 2)]
            answers = [only_partition(await future) for future in asked]
            assert [(a.error_code, a.base_offset) for a in answers] == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)] * 2
            assert await produced(client, 1) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        async with world.started() as served:
            client = await served.client()
            assert await client.offset() == 1
            assert await produced(client, 1) == (0, 1)
            assert await produced(client, 2) == (0, 2)


async def test_what_was_queued_beside_a_failing_read_is_new_after_a_clean_restart() -> None:
    """The partition goes offline with batches accepted and not written: none of them may count as stored."""
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            assert await produced(client, 0) == (0, 0)
            broker = served.node.broker
            assert broker is not None
            partition = broker.partitions.find_by_name("events", 0)
            assert not isinstance(partition, ErrorCode)
            outcome = broker.admit(partition, memoryview(numbered((PRODUCER, 0, 1))), world.clock.now_ms)
            assert not isinstance(outcome, ErrorCode)
            broker.faults.failed(partition, "read", OSError(errno.EIO, "it broke"))
        async with world.started() as served:
            client = await served.client()
            assert await client.offset() == 1
            assert await produced(client, 1) == (0, 1)


async def test_expired_producers_may_begin_anew() -> None:
    settings = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "5"}
    async with serving(settings) as (served, client):
        assert await produced(client, 0) == (0, 0)
        served.world.clock.now_ms += 999
        await produced(client, 1)
        broker = served.node.broker
        assert broker is not None
        (partition,) = broker.partitions.open
        served.world.clock.now_ms += 1_000
        await until(lambda: not len(partition.log.producers))
        assert await produced(client, 77) == (0, 2)
