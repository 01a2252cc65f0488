"""What a leader tells of its tier in ListOffsets, by which followers begin: -4, -5 and -6."""

import pytest

from headrace.tier.memory import Mishap
from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.broker.copying import TieredWorld, copied, fill, partition_of, tier_log_of, tiering
from tests.broker.support import TOPIC, Client, Served, until

EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -2, -4, -5, -6
NOT_FOUND = (-1, -1)


async def told(client: Client, timestamp: int) -> tuple[int, int]:
    """Offset and leader epoch."""
    asked = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)], timeout_ms=10_000)
    (part,) = (await client.ask(request, ListOffsetsResponse, 11)).topics[0].partitions
    assert part.error_code == 0 and part.timestamp == -1
    return part.offset, part.leader_epoch


async def tiered_away(served: Served, client: Client) -> int:
    """All but the active segment, whose base offset is returned."""
    await fill(client, 20)
    await copied(served)
    partition = partition_of(served)
    await until(lambda: len(partition.log.segments) == 1 and partition.local_log_start_offset > 0)
    return partition.local_log_start_offset


async def test_where_the_tier_ends_where_the_disk_begins_and_what_is_not_uploaded() -> None:
    async with tiering() as (_, served, client):
        seam = await tiered_away(served, client)
        assert await told(client, EARLIEST) == (0, 0)
        assert await told(client, EARLIEST_LOCAL) == (seam, 0)
        assert await told(client, LATEST_TIERED) == (seam - 1, 0)
        assert await told(client, PENDING_UPLOAD) == (seam, 0)


async def test_what_is_tiered_and_still_on_the_disk_is_not_pending() -> None:
    async with tiering(topic={"local.retention.bytes": "-1"}) as (_, served, client):
        await fill(client, 20)
        await copied(served)
        active = partition_of(served).log.segments.active
        assert active is not None
        assert await told(client, EARLIEST_LOCAL) == (0, 0)
        assert await told(client, PENDING_UPLOAD) == (active.base_offset, 0)
        assert await told(client, LATEST_TIERED) == (active.base_offset - 1, 0)


async def test_t9_3_nothing_is_tiered() -> None:
    async with tiering(topic={"remote.log.copy.disable": "true"}) as (_, _, client):
        await fill(client, 5)
        assert await told(client, LATEST_TIERED) == NOT_FOUND
        assert await told(client, PENDING_UPLOAD) == (0, 0) == await told(client, EARLIEST_LOCAL)


@pytest.mark.parametrize("topic", [{"remote.storage.enable": "false"}])
async def test_a_topic_without_tier_has_nothing_to_upload(topic: dict[str, str]) -> None:
    async with tiering(topic=topic) as (_, _, client):
        await fill(client, 5)
        assert await told(client, LATEST_TIERED) == await told(client, PENDING_UPLOAD) == NOT_FOUND
        assert await told(client, EARLIEST_LOCAL) == (0, 0)


async def test_t9_4_a_fresh_leader_says_that_it_does_not_know_until_it_does() -> None:
    with TieredWorld() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(
                settings={"remote.storage.enable": "true", "segment.bytes": "300", "local.retention.bytes": "0"}
            )
            seam = await tiered_away(served, client)
        world.bucket.mishap = lambda _, key: Mishap(fails="manifest" in key)
        async with world.started() as served:
            client = await served.client()
            assert await told(client, EARLIEST_LOCAL) == (seam, 0)
            assert await told(client, LATEST_TIERED) == await told(client, PENDING_UPLOAD) == NOT_FOUND
            world.bucket.mishap = lambda *_: Mishap()
            await until(lambda: tier_log_of(served).manifest is not None)
            assert (await told(client, PENDING_UPLOAD))[0] == seam


async def test_t9_5_everything_may_be_tiered() -> None:
    """The active segment is empty: what is not uploaded begins where the log ends."""
    async with tiering(topic={"segment.ms": "50"}) as (_, served, client):
        await fill(client, 5)
        partition = partition_of(served)
        served.world.clock.now_ms += 1_000
        await until(lambda: partition.local_log_start_offset == 5)
        assert (await told(client, PENDING_UPLOAD))[0] == 5 == (await told(client, EARLIEST_LOCAL))[0]
