"""What goes from the tier: by retention, by settings, with its topic, and after trouble."""

import asyncio
from collections.abc import Sequence
from unittest.mock import patch

import pytest

from headrace.broker.tier import Tier, TierLog
from headrace.broker.tier_publishing import publish
from headrace.controller.config_changes import DONE
from headrace.controller.configs import Edit, EditKind
from headrace.core.tier_lineage import RemoteLog
from headrace.core.tier_rows import Manifest
from headrace.core.tiering import Kept, LocalSegment, log_start_by_retention
from headrace.errors import ErrorCode
from headrace.node_config import NotStarted
from headrace.tier.layout import SegmentName, parse_key
from headrace.tier.memory import Mishap
from tests.broker.copying import (
    TieredWorld,
    copied,
    fill,
    partition_of,
    pointer_of,
    rows_of,
    tier_log_of,
    tiering,
)
from tests.broker.support import EARLIEST, NOW_MS, TOPIC, Served, until

HOUR_MS = 3_600_000


async def alter(served: Served, **settings: str) -> ErrorCode:
    assert served.node.broker is not None
    edits = [Edit(name.replace("_", "."), EditKind.SET, text) for name, text in settings.items()]
    outcome = await served.node.broker.controller.alter_topic_settings(TOPIC, lambda _: edits)
    assert outcome is not None
    return outcome.code


def local_bases(served: Served) -> list[int]:
    return [segment.base_offset for segment in partition_of(served).log.segments]


async def on_one_segment(served: Served) -> None:
    await copied(served)
    await until(lambda: len(partition_of(served).log.segments) == 1)


async def test_remote_segments_expire_by_age_and_the_log_start_follows() -> None:
    async with tiering(topic={"retention.ms": str(HOUR_MS)}) as (world, served, client):
        await fill(client, 10)
        await on_one_segment(served)
        world.clock.now_ms = NOW_MS + HOUR_MS + 1
        partition = partition_of(served)
        await until(lambda: partition.log_start_offset == partition.local_log_start_offset == 10)

        def is_over() -> bool:
            pointer = pointer_of(served)
            return pointer is not None and (pointer.log_start_offset, pointer.highest_remote_offset) == (10, -1)

        await until(lambda: world.segments() == {} and is_over())
        assert await client.offset(EARLIEST) == 10


async def test_who_stops_leading_while_the_new_start_is_published_moves_no_log() -> None:
    async with tiering(topic={"retention.ms": str(HOUR_MS)}) as (world, served, client):
        await fill(client, 10)
        await on_one_segment(served)
        tier_log, partition = tier_log_of(served), partition_of(served)

        async def publish_as_the_last_deed(tier: Tier, of: TierLog, manifest: Manifest) -> None:
            await publish(tier, of, manifest)
            of.is_over = True

        with patch("headrace.broker.tier_expiry.publish", publish_as_the_last_deed):
            world.clock.now_ms = NOW_MS + HOUR_MS + 1
            await until(lambda: tier_log.is_over)
            await asyncio.sleep(0)
            assert partition.log_start_offset == 0


async def test_how_long_it_took_to_measure_a_log_is_told() -> None:
    """By the clock: the time of a loop, that of uvloop at least, stands still within a turn."""
    async with tiering() as (world, served, client):

        def slowly(remote: RemoteLog, local: Sequence[LocalSegment], kept: Kept, log_start: int, now_ms: int) -> int:
            world.clock.now_ms += 20
            return log_start_by_retention(remote, local, kept, log_start, now_ms)

        with patch("headrace.broker.tier_expiry.log_start_by_retention", slowly):
            await fill(client, 10)
            assert served.node.broker is not None and served.node.broker.tier is not None
            metrics = served.node.broker.tier.metrics
            await until(lambda: metrics.size_computation_ms == 20)
            (family,) = [one for one in metrics.families() if one.name.endswith("remotelogsizecomputationtime")]
            assert family.samples[0].value == 20


async def test_local_retention_by_time_reaches_what_is_appended_to() -> None:
    async with tiering(topic={"local.retention.bytes": "-2", "local.retention.ms": "1000"}) as (world, served, client):
        await fill(client, 10)
        partition = partition_of(served)
        world.clock.now_ms = NOW_MS + 1_001
        await until(lambda: partition.local_log_start_offset == partition.log_end_offset == 10)
        assert partition.log_start_offset == 0 and rows_of(served)[-1].end_offset == 9
        assert len(await client.read_all()) == 10
        await fill(client, 1)
        assert len(await client.read_all()) == 11


async def test_retention_by_time_reaches_what_is_appended_to() -> None:
    async with tiering(topic={"local.retention.bytes": "-2", "retention.ms": "1000"}) as (world, served, client):
        await fill(client, 10)
        world.clock.now_ms = NOW_MS + 1_001
        partition = partition_of(served)
        await until(lambda: partition.log_start_offset == partition.log_end_offset == 10)
        await until(lambda: world.segments() == {})
        assert await client.offset(EARLIEST) == await client.offset() == 10


async def test_the_log_start_is_published_before_anything_is_deleted() -> None:
    """T8-5: whoever starts from what is in force finds no hole."""
    async with tiering(topic={"retention.ms": str(HOUR_MS)}) as (world, served, client):
        await fill(client, 10)
        await on_one_segment(served)
        seen: list[bool] = []

        def mishap(operation: str, key: str) -> Mishap:
            if operation == "delete" and key.endswith(".segment"):
                in_force, name = tier_log_of(served).manifest, parse_key(key)
                assert in_force is not None and name is not None and isinstance(name.object, SegmentName)
                seen.append(name.object.base_offset < in_force.log_start_offset)
            return Mishap()

        world.bucket.mishap = mishap
        world.clock.now_ms = NOW_MS + HOUR_MS + 1
        await until(lambda: world.segments() == {})
        assert seen and all(seen)


async def test_a_limit_of_bytes_counts_the_tier_and_the_disk_once() -> None:
    async with tiering(topic={"retention.bytes": "600"}) as (world, served, client):
        await fill(client, 30)
        await on_one_segment(served)
        partition = partition_of(served)

        def kept() -> int:
            return sum(row.sections.log[1] for row in rows_of(served)) + partition.log.size_bytes

        await until(lambda: partition.log_start_offset > 0 and kept() < 600 + 300)
        assert kept() >= 600
        await until(lambda: len(world.segments()) == len(rows_of(served)))
        assert rows_of(served)[0].base_offset == partition.log_start_offset


async def test_a_store_that_fails_and_loses_answers_delays_and_leaves_nothing_behind() -> None:
    async with tiering(topic={"retention.bytes": "600"}) as (world, served, client):
        calls = 0

        def mishap(operation: str, _: str) -> Mishap:
            nonlocal calls
            calls += 1
            if operation not in ("put", "delete"):
                return Mishap()
            return Mishap(fails=calls % 3 == 0, answer_lost=calls % 3 == 1)

        world.bucket.mishap = mishap
        await fill(client, 15)
        await until(lambda: calls > 100)
        world.bucket.mishap = lambda *_: Mishap()
        await fill(client, 15)
        await on_one_segment(served)
        await until(lambda: world.strays(pointer_of(served)) == [] and tier_log_of(served).rounds_to_sweep > 20)
        partition, rows = partition_of(served), rows_of(served)
        assert rows[0].base_offset <= partition.log_start_offset
        assert rows[-1].end_offset + 1 == partition.local_log_start_offset


async def test_nothing_more_is_copied_where_that_is_disabled_and_disks_keep_it_as_without_a_tier() -> None:
    async with tiering() as (world, served, client):
        await fill(client, 10)
        await on_one_segment(served)
        before = world.segments()
        assert await alter(served, remote_log_copy_disable="true") == 0
        await until(lambda: partition_of(served).config.remote_log_copy_disable)
        await fill(client, 10)
        await asyncio.sleep(0.05)
        assert world.segments() == before
        assert len(local_bases(served)) > 2
        assert await alter(served, retention_bytes="300") == 0
        await until(lambda: world.segments() == {} and len(local_bases(served)) <= 2)
        partition = partition_of(served)
        assert partition.log_start_offset == partition.local_log_start_offset > 10


async def test_a_topic_that_is_tiered_no_more_keeps_what_is_on_the_disk() -> None:
    async with tiering(topic={"local.retention.bytes": "500"}) as (world, served, client):
        await fill(client, 20)
        await copied(served)
        await until(lambda: local_bases(served)[0] > 0)
        assert await alter(served, remote_storage_enable="false") == ErrorCode.INVALID_CONFIG
        assert await alter(served, remote_storage_enable="false", remote_log_delete_on_disable="true") == DONE.code
        await until(lambda: pointer_of(served) is None and world.objects() == {})
        partition = partition_of(served)
        assert partition.log_start_offset == partition.local_log_start_offset == local_bases(served)[0] > 0
        assert len(local_bases(served)) > 1
        # And tiered once more.
        assert await alter(served, remote_storage_enable="true", remote_log_delete_on_disable="false") == 0
        await until(lambda: pointer_of(served) is not None and len(world.segments()) > 0)
        await copied(served)
        assert rows_of(served)[0].base_offset == partition.log_start_offset


async def test_the_objects_of_a_deleted_topic_go_also_those_that_come_late() -> None:
    async with tiering() as (world, served, client):
        await fill(client, 10)
        await on_one_segment(served)
        broker = served.node.broker
        assert broker is not None
        late = next(iter(world.segments().values()))
        await client.delete_topic(TOPIC)
        await until(lambda: world.objects() == {})
        world.bucket.objects[late] = b"late"
        await until(lambda: world.objects() == {})
        await until(lambda: not broker.image.tier and not broker.image.tier_topics)


async def test_a_store_that_lets_two_create_the_same_object_is_refused_at_the_start() -> None:
    with TieredWorld() as world:
        world.bucket.is_create_only = False
        with pytest.raises(NotStarted, match="second create-only write"):
            await world.node().start()


async def test_a_node_serves_before_its_store_does() -> None:
    with TieredWorld() as world:
        world.bucket.mishap = lambda *_: Mishap(fails=True)
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings={"remote.storage.enable": "true", "segment.bytes": "300"})
            await fill(client, 10)
            assert world.objects() == {}
            world.bucket.mishap = lambda *_: Mishap()
            await copied(served)
