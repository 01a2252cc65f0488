"""Segments on their way to the tier: what is copied, when it goes from the disk, and what trouble leaves behind."""

import asyncio
from itertools import pairwise
from unittest.mock import patch

import pytest

from headrace.broker.partitions import Hosted
from headrace.broker.tier_metrics import Counts
from headrace.tier.memory import Mishap
from headrace.tier.verify import verify_segment
from tests.broker.copying import (
    TIERED,
    TieredWorld,
    copied,
    fill,
    partition_of,
    pointer_of,
    rows_of,
    tier_log_of,
    tiering,
)
from tests.broker.support import TOPIC, Served, delete_records, until

PROBED = 4
"""Calls of the store before a node serves."""
KEPT_LOCALLY = {"local.retention.bytes": "-1"}


def bases(partition: Hosted) -> list[int]:
    return [segment.base_offset for segment in partition.log.segments]


async def test_complete_segments_are_copied_whole_and_the_active_one_is_not() -> None:
    async with tiering(topic=KEPT_LOCALLY) as (world, served, client):
        await fill(client, 10)
        await copied(served)
        partition, rows = partition_of(served), rows_of(served)
        assert [row.base_offset for row in rows] == bases(partition)[:-1]
        assert rows[-1].end_offset + 1 == bases(partition)[-1]
        for row, segment in zip(rows, partition.log.segments, strict=False):
            key = world.segments()[row.id]
            assert await verify_segment(world.store, key, row) == []
            start, length = row.sections.log
            assert world.bucket.objects[key][start : start + length] == segment.log.read(0, segment.size)
        pointer = pointer_of(served)
        assert pointer is not None and pointer.highest_remote_offset == rows[-1].end_offset
        assert pointer.segments == len(rows)
        assert world.strays(pointer) == []


async def test_what_is_copied_goes_from_the_disk_by_local_retention_and_the_log_begins_where_it_did() -> None:
    async with tiering() as (_, served, client):
        await fill(client, 10)
        await copied(served)
        partition = partition_of(served)
        await until(lambda: len(partition.log.segments) == 1)
        assert partition.log_start_offset == 0
        assert partition.local_log_start_offset == partition.log.local_log_start_offset == bases(partition)[0] > 0


async def test_nothing_goes_from_the_disk_before_its_copy_is_finished() -> None:
    """T8-1."""
    async with tiering() as (world, served, client):
        world.bucket.mishap = lambda operation, key: Mishap(fails=operation == "put" and key.endswith(".segment"))
        await fill(client, 10)
        await until(lambda: world.bucket.calls.get("put", 0) > 10)
        partition = partition_of(served)
        assert bases(partition)[0] == 0
        status, page = await served.page("/metrics")
        assert status == 200
        assert f"remotecopylagsegments {len(bases(partition)) - 1}\n" in page
        assert "remotecopyerrors_total 0\n" not in page
        world.bucket.mishap = lambda *_: Mishap()
        await copied(served)
        await until(lambda: bases(partition)[0] > 0)
        await until(lambda: world.strays(pointer_of(served)) == [])


async def test_a_copy_whose_publication_is_not_known_does_not_count() -> None:
    """Nothing is deleted by a manifest that is stored, and not in force."""
    async with tiering(topic=KEPT_LOCALLY) as (world, served, client):
        await fill(client, 4)
        await copied(served)
        pointer = pointer_of(served)
        world.store.stop_after = world.store.calls + 3  # the manifest that finishes the next copy
        await fill(client, 3)
        await world.store.has_stopped.wait()
        tier_log = tier_log_of(served)
        assert pointer is not None and tier_log.highest_remote_offset == pointer.highest_remote_offset


async def test_an_object_that_is_there_because_an_answer_was_lost_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    """An adapter that tries again by itself meets what it stored before."""
    async with tiering(topic=KEPT_LOCALLY) as (world, served, client):
        seen = 0

        def half_lost(operation: str, key: str) -> Mishap:
            nonlocal seen
            if operation == "put":
                seen += 1
                if seen % 2:
                    world.bucket.objects[key] = b"as it was stored before"
            return Mishap()

        world.bucket.mishap = half_lost
        await fill(client, 10)
        await until(lambda: seen > 10)
        world.bucket.mishap = lambda *_: Mishap()
        await copied(served)
        await until(lambda: world.strays(pointer_of(served)) == [])
        assert not [record for record in caplog.records if record.exc_info]


async def test_what_is_stored_although_its_answer_was_lost_is_not_stored_again() -> None:
    async with tiering(topic=KEPT_LOCALLY) as (world, served, client):
        put = world.bucket.put

        def put_twice(key: str, content: bytes) -> None:
            put(key, content)
            put(key, content)

        with patch.object(world.bucket, "put", put_twice):
            await fill(client, 10)
            await copied(served)
        assert len(world.segments()) == len(rows_of(served)) == served_counts(served).copy_requests
        assert served_counts(served).copy_errors == 0


def served_counts(served: Served) -> Counts:
    assert served.node.broker is not None and served.node.broker.tier is not None
    return served.node.broker.tier.metrics.of(TOPIC)


@pytest.mark.parametrize("power", [False, True])
async def test_a_restart_knows_where_the_log_begins_and_where_the_disk_does(power: bool) -> None:
    with TieredWorld() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings=TIERED)
            await fill(client, 10)
            await copied(served)
            partition = partition_of(served)
            await until(lambda: len(partition.log.segments) == 1)
            local = partition.local_log_start_offset
            assert partition.log.local.is_full
            await served.kill()
            if power:
                world.memory.lose_power()
        async with world.started() as served:
            partition = partition_of(served)
            assert partition.log.local.is_full, "T1303-21"
            assert (partition.log_start_offset, partition.local_log_start_offset) == (0, local)
            await copied(served)
            await until(lambda: world.strays(pointer_of(served)) == [])
        async with world.started() as served:
            partition = partition_of(served)
            assert partition.log_if_open is None or partition.log_start_offset == 0
            assert (partition.log_start_offset, partition.local_log_start_offset) == (0, local)


async def life(world: TieredWorld, when: str, step: int, retention: str) -> bool:
    """A node that is killed at a call of its store. False if it never came to that."""
    async with world.started() as served:
        client = await served.client()
        if when == "before":
            world.store.stop_before = step
        else:
            world.store.stop_after = step
        await client.create_topic(settings={**TIERED, "retention.bytes": retention})
        await fill(client, 9)
        await until(lambda: world.store.has_stopped.is_set() or is_quiet(world, served))
        await served.kill()
        return world.store.has_stopped.is_set()


def is_quiet(world: TieredWorld, served: Served) -> bool:
    """All is copied and expired that is to be, and nothing is left to sweep."""
    tier_log, partition = tier_log_of(served), partition_of(served)
    highest, active = tier_log.highest_remote_offset, partition.log.segments.active
    assert active is not None
    return (
        highest is not None
        and highest + 1 == active.base_offset
        and len(partition.log.segments) == 1
        and tier_log.rounds_to_sweep > 20
        and world.strays(pointer_of(served)) == []
    )


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("retention", ["-1", "400"])
async def test_a_death_at_any_step_leaves_no_hole_and_no_orphan(when: str, retention: str) -> None:
    """T8-4 and T8-5."""
    for step in range(PROBED + 1, 100):
        with TieredWorld() as world:
            came_to_it = await life(world, when, step, retention)
            async with world.started() as served:
                await until(lambda: is_quiet(world, served))
                partition, rows = partition_of(served), rows_of(served)
                assert rows[0].base_offset <= partition.log_start_offset
                assert all(one.end_offset + 1 == two.base_offset for one, two in pairwise(rows))
                assert rows[-1].end_offset + 1 == partition.local_log_start_offset
                assert all(row.id in world.segments() for row in rows)
                assert (partition.log_start_offset > 0) == (retention != "-1")
        if not came_to_it:
            assert step > 12
            return


async def test_a_leadership_begins_its_work_when_the_one_before_has_ended_its_own() -> None:
    """In one leader epoch: what the first has stored, and is about to publish, looks like nobody's to the second."""
    async with tiering(topic=KEPT_LOCALLY) as (world, served, client):
        await fill(client, 4)
        await copied(served)
        broker, partition = served.node.broker, partition_of(served)
        assert broker is not None and broker.tier is not None
        world.store.stop_after = world.store.calls + 1  # a manifest is stored, and not in force
        await fill(client, 3)
        await world.store.has_stopped.wait()
        before = dict(world.bucket.objects)
        broker.tier.ended(partition)
        broker.tier.began(partition)
        await asyncio.wait_for(tier_log_of(served).is_loaded.wait(), 10)
        world.store.has_stopped.clear()
        world.store.stop_after = -1
        await asyncio.sleep(0.05)
        assert world.bucket.objects == before


async def test_deleted_records_go_from_the_tier_too() -> None:
    async with tiering() as (world, served, client):
        await fill(client, 12)
        await copied(served)
        partition = partition_of(served)
        await until(lambda: len(partition.log.segments) == 1)
        assert await delete_records(client, 4) == [(0, 4)]
        await until(lambda: rows_of(served)[0].base_offset > 0)
        assert rows_of(served)[0].base_offset <= partition.log_start_offset == 4 < partition.local_log_start_offset
        pointer = pointer_of(served)
        assert pointer is not None
        await until(lambda: len(world.segments()) == len(rows_of(served)))
        assert await delete_records(client, -1) == [(0, 12)]
        await until(lambda: rows_of(served) == [] and world.segments() == {})
        assert partition.log_start_offset == partition.local_log_start_offset == 12
