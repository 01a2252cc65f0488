"""DeleteRecords: the log start moves, never back, never past what is committed."""

import pytest

from headrace.core.acl import Operation, Resource
from headrace.errors import ErrorCode
from headrace.wire.messages.fetch import FetchResponse
from tests.broker.support import (
    EARLIEST,
    TOPIC,
    World,
    delete_records,
    fetch_request,
    numbered,
    records_of,
    serving,
    until,
    values_of,
)


@pytest.mark.parametrize("version", range(3))
async def test_records_below_the_offset_are_gone_for_everybody(version: int) -> None:
    async with serving() as (_, client):
        for number in range(5):
            await client.produce(records_of([b"%d" % number]))
        assert await delete_records(client, 3, version=version) == [(0, 3)]
        assert await client.offset(EARLIEST) == 3
        fetched = await client.fetch(2)
        assert (fetched.error_code, fetched.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        fetched = await client.fetch(3)
        assert values_of(fetched.records) == [b"3", b"4"]
        assert fetched.log_start_offset == 3
        assert (await client.produce()).log_start_offset == 3


async def test_minus_one_stands_for_the_high_watermark() -> None:
    async with serving() as (_, client):
        await client.produce(records_of([b"a", b"b"]))
        assert await delete_records(client, -1) == [(0, 2)]
        assert [await client.offset(EARLIEST), await client.offset()] == [2, 2]
        assert (await client.produce()).base_offset == 2


@pytest.mark.parametrize("offset", [3, 2**62, -2, -(2**63)])
async def test_offsets_that_nobody_can_delete_to_are_refused(offset: int) -> None:
    async with serving() as (_, client):
        await client.produce(records_of([b"a", b"b"]))
        assert await delete_records(client, offset) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
        assert await client.offset(EARLIEST) == 0


async def test_the_start_never_goes_back() -> None:
    async with serving() as (_, client):
        await client.produce(records_of([b"a", b"b", b"c"]))
        assert await delete_records(client, 2) == [(0, 2)]
        assert await delete_records(client, 1) == [(0, 2)]
        assert await delete_records(client, 0) == [(0, 2)]


async def test_what_waits_for_its_sync_cannot_be_deleted() -> None:
    async with serving(topic={"flush.messages": "1"}) as (served, client):
        await client.produce()
        served.world.offload.hold("files")
        unsynced = client.send()
        await until(lambda: served.world.offload.held("files"))
        other = await served.client()
        assert await delete_records(other, 2) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
        assert await delete_records(other, -1) == [(0, 1)]
        served.world.offload.release("files")
        await unsynced
        assert await other.offset(EARLIEST) == 1


async def test_an_empty_partition_has_nothing_to_delete() -> None:
    async with serving() as (_, client):
        assert await delete_records(client, -1) == [(0, 0)]
        assert await delete_records(client, 0) == [(0, 0)]
        assert await delete_records(client, 1) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]


async def test_partitions_are_answered_one_by_one() -> None:
    async with serving(partitions=2) as (_, client):
        await client.produce(partition=0)
        assert await delete_records(client, 1, 1, 0) == [(0, 1), (ErrorCode.OFFSET_OUT_OF_RANGE, -1), (3, -1)]
        assert await delete_records(client, 0, topic="nobody") == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


async def test_segments_wholly_below_the_start_leave_the_disk() -> None:
    async with serving(topic={"segment.bytes": "200"}) as (served, client):
        for _ in range(6):
            await client.produce(records_of([bytes(100)]))
        assert await delete_records(client, 4) == [(0, 4)]
        names = served.world.memory.names(f"/data/logs/{TOPIC}-0")
        assert [name for name in names if name.endswith(".log")] == [f"{4:020d}.log", f"{5:020d}.log"]


@pytest.mark.parametrize("killed", [True, False])
async def test_a_start_inside_a_segment_survives_a_restart_once_it_is_checkpointed(killed: bool) -> None:
    with World(settings={"log.flush.offset.checkpoint.interval.ms": "2"}) as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            for _ in range(4):
                await client.produce()
            await delete_records(client, 3)
            if killed:
                path = "/data/logs/log-start-offset-checkpoint"
                await until(lambda: world.memory.exists(path) and b"events 0 3" in world.memory.read(path))
                await served.kill()
        async with world.started() as served:
            client = await served.client()
            assert [await client.offset(EARLIEST), await client.offset()] == [3, 4]


async def test_a_fetch_that_waits_below_the_new_start_is_answered() -> None:
    async with serving() as (served, client):
        await client.produce(records_of([b"a", b"b"]))
        other = await served.client()
        waiting = other.peer.send(fetch_request(2, max_wait_ms=60_000), FetchResponse, 12)
        await client.produce(numbered((1, 0, 0)))
        assert values_of((await waiting).responses[0].partitions[0].records) == [b"0"]
        assert await delete_records(client, 3) == [(0, 3)]


async def test_who_may_not_delete_is_told_so_whether_the_topic_exists_or_not() -> None:
    def is_allowed(_: str, operation: Operation, __: Resource) -> bool:
        return operation is not Operation.DELETE

    async with serving(is_allowed=is_allowed) as (_, client):
        await client.produce()
        for topic in (TOPIC, "nobody"):
            assert await delete_records(client, 1, topic=topic) == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)]
        assert await client.offset(EARLIEST) == 0
