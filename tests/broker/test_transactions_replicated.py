"""Transactions in a partition with followers: what a new leader knows of them, and what it must not have lost."""

import asyncio

import pytest

from headrace.errors import ErrorCode
from headrace.wire.messages.transactions import WriteTxnMarkersResponse
from tests.broker.asking import records_of
from tests.broker.marked import (
    PID,
    UNVERIFIED,
    end,
    fetch_committed,
    in_transaction,
    marker_request,
    offset_of,
    produce,
    read_committed,
)
from tests.broker.trio import Trio, play


def test_a_marker_is_answered_when_it_is_committed_and_readers_hear_of_it_then() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2])
        client = await trio.client(1)
        assert (await produce(client, in_transaction(0), acks=1)).error_code == 0
        await trio.fetch_as(2, 1)
        leader = trio.partition(1)
        assert (leader.high_watermark, leader.last_stable_offset) == (1, 0)
        marking = client.peer.send(marker_request(True), WriteTxnMarkersResponse, 1)
        reader = await trio.client(1)
        fetching = asyncio.ensure_future(fetch_committed(reader, 0, max_wait_ms=60_000))
        await trio.until(lambda: leader.log_end_offset == 2)
        await asyncio.sleep(1)
        assert not marking.done() and not fetching.done()
        assert leader.last_stable_offset == 0
        await trio.fetch_as(2, 1)
        assert (await marking).markers[0].topics[0].partitions[0].error_code == 0
        assert (await fetching).last_stable_offset == 2

    play(scenario, UNVERIFIED)


def test_a_marker_whose_leader_is_deposed_is_not_answered_as_written() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2])
        client = await trio.client(1)
        await produce(client, in_transaction(0), acks=1)
        marking = client.peer.send(marker_request(True), WriteTxnMarkersResponse, 1)
        await trio.until(lambda: trio.partition(1).log_end_offset == 2)
        await trio.move_to(2)
        code = (await marking).markers[0].topics[0].partitions[0].error_code
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await end(client, True) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    play(scenario, UNVERIFIED)


def test_a_marker_that_nobody_copies_is_answered_in_time_and_still_holds_back_readers() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2])
        client = await trio.client(1)
        await produce(client, in_transaction(0), acks=1)
        assert await end(client, True) == [ErrorCode.REQUEST_TIMED_OUT]
        assert trio.partition(1).last_stable_offset == 0

    play(scenario, UNVERIFIED | {"replica.lag.time.max.ms": "600000"})


def test_with_too_few_replicas_no_marker_is_written() -> None:
    async def scenario(trio: Trio) -> None:
        gone = next(n for n in (2, 3) if n != trio.controller_id)
        await trio.topic([1, gone], settings={"min.insync.replicas": "2"})
        client = await trio.client(1)
        trio.world.nodes[gone - 1].kill()
        await trio.until(lambda: trio.record(at=1).isr_ids == [1])
        assert await end(client, True) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert trio.partition(1).log_end_offset == 0

    play(scenario, UNVERIFIED)


async def committed(trio: Trio, leader: int, offset: int) -> None:
    await trio.until(lambda: trio.partition(leader).high_watermark == offset)


@pytest.mark.parametrize("segment_bytes", ["200", "1000000"])
def test_ttxn_7_a_new_leader_shows_what_the_old_one_showed(segment_bytes: str) -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings={"segment.bytes": segment_bytes, "min.insync.replicas": "2"})
        client = await trio.client(1)
        for number in range(6):
            assert (await produce(client, in_transaction(number, b"%d" % number))).error_code == 0
            assert await end(client, number % 2 == 0, coordinator_epoch=5) == [0]
        assert (await produce(client, in_transaction(6, b"6"))).error_code == 0
        await client.produce(records_of([b"plain"]))
        expected = [b"0", b"2", b"4"]
        assert await read_committed(client) == expected
        await trio.until(lambda: {trio.partition(n).log_end_offset for n in (1, 2, 3)} == {14})
        for leader in (2, 3, 1):
            await trio.move_to(leader)
            client = await trio.client(leader)
            await committed(trio, leader, 14)
            assert await read_committed(client) == expected
            assert await offset_of(client) == (0, 12)
        assert await end(client, True, coordinator_epoch=4) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        assert (await produce(client, in_transaction(7, b"7"))).error_code == 0
        assert await end(client, False, coordinator_epoch=6) == [0]
        assert await read_committed(client) == [*expected, b"plain"]
        await trio.until(lambda: {trio.partition(n).log_end_offset for n in (1, 2, 3)} == {16})
        await trio.move_to(2)
        client = await trio.client(2)
        await committed(trio, 2, 16)
        assert await read_committed(client) == [*expected, b"plain"]

    play(scenario, UNVERIFIED, replicates=True)


def test_ttxn_7_a_marker_that_was_cut_with_its_leader_ends_nothing() -> None:
    """The old leader had written it and nobody else: for the new one the transaction is open until it comes again."""

    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2])
        client = await trio.client(1)
        assert (await produce(client, in_transaction(0, b"a"))).error_code == 0
        await trio.until(lambda: trio.partition(2).high_watermark == 1)
        trio.broker(2).roles.replicator.stop(trio.partition(2))
        marking = client.peer.send(marker_request(False), WriteTxnMarkersResponse, 1)
        await trio.until(lambda: trio.partition(1).log_end_offset == 2)
        await trio.move_to(2)
        assert (await marking).markers[0].topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        new = await trio.client(2)
        assert (await produce(new, in_transaction(1, b"b"))).error_code == 0
        await trio.until(lambda: trio.partition(1).log_end_offset == 2 and trio.partition(1).high_watermark == 2)
        # The follower has cut the marker, and its index with it; the transaction is open there too.
        assert trio.partition(1).log.producers.open_at(2) == {PID: 0}
        assert trio.partition(1).log.aborted_in(0, trio.partition(1).log.read(0, 1 << 20, 2, True)) == []
        assert await end(new, True) == [0]
        assert await read_committed(new) == [b"a", b"b"]
        await trio.until(lambda: trio.partition(1).high_watermark == 3)
        await trio.move_to(1)
        assert await read_committed(await trio.client(1)) == [b"a", b"b"]

    play(scenario, UNVERIFIED, replicates=True)
