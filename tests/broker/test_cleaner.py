"""Compaction on a running node: what clients see of it, what ends it, and what monitoring is told."""

import asyncio
import errno
from collections.abc import Callable, Iterator

import pytest

from headrace.broker.partitions import Hosted
from headrace.errors import ErrorCode
from headrace.runtime import BesideLoop, StepsLost
from headrace.storage.cleaning import Rewritten
from headrace.wire.batch import NewRecord, build, headers, read_records
from headrace.wire.compression import Codec
from tests.broker.support import NOW_MS, TOPIC, Client, Served, World, delete_records, serving, until
from tests.broker.trio import Trio, play

OFTEN = {
    "log.cleaner.backoff.ms": "2",
    "log.flush.scheduler.interval.ms": "2",
    "log.retention.check.interval.ms": "2",
    "log.flush.offset.checkpoint.interval.ms": "5",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "300",
    "file.delete.delay.ms": "0",
    "min.cleanable.dirty.ratio": "0",
}
DAY_MS = 86_400_000


def keyed(*records: tuple[bytes | None, bytes | None], codec: Codec = Codec.NONE) -> bytearray:
    return build([NewRecord(NOW_MS, key, value) for key, value in records], codec=codec)


async def fill(client: Client, count: int = 40, keys: int = 4, topic: str = TOPIC) -> None:
    for number in range(count):
        answer = await client.produce(keyed((b"%d" % (number % keys), b"%d" % number)), topic=topic)
        assert answer.error_code == 0


async def records(client: Client, offset: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    """All from there on, as a consumer reads them."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    while True:
        answer = await client.fetch(offset)
        assert answer.error_code == 0
        if not answer.records:
            return found
        for at, header in headers(answer.records):
            found += [(record.offset, record.key, record.value) for record in read_records(answer.records, at)]
            offset = header.last_offset + 1


def partition_of(served: Served, topic: str = TOPIC) -> Hosted:
    assert served.node.broker is not None
    partition = served.node.broker.partitions.find_by_name(topic, 0)
    assert isinstance(partition, Hosted)
    return partition


def is_clean(partition: Hosted) -> bool:
    """Everything but the active segment is."""
    log = partition.log
    return (
        log.cleaning is None
        and log.segments.active is not None
        and (log.first_dirty_offset == log.segments.active.base_offset > 0)
    )


async def metric(served: Served, name: str) -> float:
    """Over all its labels."""
    lines = [line.split(" ") for line in (await served.page("/metrics"))[1].splitlines() if line.startswith(name)]
    assert lines
    return sum(float(value) for _, value in lines)


@pytest.mark.parametrize("codec", Codec)
async def test_a_record_without_a_key_is_refused_by_a_compacted_topic_only(codec: Codec) -> None:
    async with serving(topic={"cleanup.policy": "compact,delete"}) as (_, client):
        refused = await client.produce(keyed((b"k", b"v"), (None, b"v"), codec=codec))
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert refused.error_message is not None and "compacted" in refused.error_message
        assert (await client.produce(keyed((b"k", b"v"), (b"", None), codec=codec))).error_code == 0
        await client.create_topic("other", settings={"cleanup.policy": "delete"})
        assert (await client.produce(keyed((None, b"v"), codec=codec), topic="other")).error_code == 0


async def test_records_of_a_topic_that_is_only_compacted_cannot_be_deleted_by_offset() -> None:
    async with serving(topic={"cleanup.policy": "compact"}) as (_, client):
        await fill(client, 4)
        assert await delete_records(client, 2) == [(ErrorCode.POLICY_VIOLATION, -1)]
        await client.create_topic("other", settings={"cleanup.policy": "compact,delete"})
        await fill(client, 4, topic="other")
        assert await delete_records(client, 2, topic="other") == [(0, 2)]


async def test_the_newest_record_of_each_key_stays_at_its_offset_also_after_a_restart() -> None:
    with World(settings=OFTEN) as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings=COMPACTED)
            await fill(client)
            partition = partition_of(served)
            await until(lambda: is_clean(partition))
            first_dirty = partition.log.first_dirty_offset
            found = await records(client)
            assert len(found) < 20
            assert [(key, value) for _, key, value in found[-4:]] == [
                (b"%d" % (n % 4), b"%d" % n) for n in range(36, 40)
            ]
            assert all(value == b"%d" % offset for offset, _, value in found)
        assert f"{TOPIC} 0 {first_dirty}" in world.memory.read("/data/logs/cleaner-offset-checkpoint").decode()
        async with world.started() as served:
            client = await served.client()
            assert await records(client) == found
            assert partition_of(served).log.first_dirty_offset == first_dirty
            assert (await client.produce(keyed((b"0", b"40")))).base_offset == 40


async def test_tcomp_2_who_reads_from_the_beginning_during_compaction_learns_the_same() -> None:
    async with serving(OFTEN, topic=COMPACTED) as (served, client):
        reader = await served.client()
        seen: dict[bytes | None, bytes | None] = {}
        offset = 0

        async def read() -> None:
            nonlocal offset
            for found in await records(reader, offset):
                assert found[0] >= offset
                offset, seen[found[1]] = found[0] + 1, found[2]

        for round_ in range(6):
            await fill(client, 20, keys=3 + round_)
            await read()
            await asyncio.sleep(0)
        await until(lambda: is_clean(partition_of(served)))
        await read()
        late = {key: value for _, key, value in await records(await served.client())}
        assert seen == late


async def test_a_tombstone_goes_when_its_time_is_over() -> None:
    topic = {**COMPACTED, "delete.retention.ms": str(DAY_MS)}
    async with serving(OFTEN, topic=topic) as (served, client):
        await client.produce(keyed((b"gone", b"1")))
        await client.produce(keyed((b"gone", None)))
        await fill(client, 10)
        partition = partition_of(served)
        await until(lambda: is_clean(partition))
        assert (1, b"gone", None) in await records(client)
        served.world.clock.now_ms += DAY_MS + 1
        await fill(client, 10)
        await until(lambda: is_clean(partition))
        assert b"gone" not in [key for _, key, _ in await records(client)]


async def test_a_topic_that_is_compacted_and_deleted_loses_old_segments_too() -> None:
    topic = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "1000"}
    async with serving(OFTEN, topic=topic) as (served, client):
        await fill(client, 20)
        await until(lambda: is_clean(partition_of(served)))
        served.world.clock.now_ms += 10_000
        await until(lambda: partition_of(served).log_start_offset == 20)
        assert await records(client, 20) == []
        assert (await client.produce(keyed((b"k", b"v")))).base_offset == 20


async def test_a_topic_that_is_only_compacted_keeps_records_for_ever() -> None:
    async with serving(OFTEN, topic={**COMPACTED, "retention.ms": "1000", "retention.bytes": "1"}) as (served, client):
        await fill(client, 20)
        served.world.clock.now_ms += 10 * DAY_MS
        await until(lambda: is_clean(partition_of(served)))
        assert partition_of(served).log_start_offset == 0
        assert {key for _, key, _ in await records(client)} == {b"0", b"1", b"2", b"3"}


async def test_young_records_are_left_alone_and_those_that_wait_too_long_are_not() -> None:
    lazy = {**COMPACTED, "min.compaction.lag.ms": "60000"}
    async with serving(OFTEN, topic=lazy) as (served, client):
        await fill(client, 20)
        await client.create_topic("soon", settings={"cleanup.policy": "compact", "max.compaction.lag.ms": "60000"})
        await fill(client, 20, topic="soon")
        await until(lambda: partition_of(served).log.recovery_point > 10)
        for _ in range(5):
            await asyncio.sleep(0.005)
        assert partition_of(served).log.first_dirty_offset == partition_of(served, "soon").log.first_dirty_offset == 0
        served.world.clock.now_ms += 60_001
        # Its one segment, which is far from full, is rolled for it.
        await until(lambda: is_clean(partition_of(served)) and is_clean(partition_of(served, "soon")))


async def test_one_log_that_cannot_be_compacted_is_counted_and_others_go_on() -> None:
    with World(settings=OFTEN) as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings={**COMPACTED, "min.cleanable.dirty.ratio": "1", "segment.bytes": "2000"})
            await client.create_topic("other", settings=COMPACTED)
            partition = partition_of(served)
            await fill(client, 10)
            first = partition.log.segments[0]
            world.memory.open(first.log.path).write(65, [b"\xff\xff"])
            await fill(client, 60)
            await fill(client, 20, topic="other")
            await until(lambda: is_clean(partition_of(served, "other")))
            assert served.node.broker is not None
            stats = served.node.broker.cleaner_stats
            await until(lambda: partition in stats.uncleanable)
            assert "checksum" in stats.uncleanable[partition]
            assert await metric(served, "kafka_log_logcleanermanager_uncleanable_partitions_count") == 1
            assert await metric(served, "kafka_log_logcleanermanager_uncleanable_bytes") > 2_000
            assert (await client.produce(keyed((b"k", b"v")))).error_code == 0
            assert await metric(served, "headrace_compactionrounds_total") > 0
            assert await metric(served, "kafka_log_logcleaner_max_buffer_utilization_percent") >= 0


async def test_a_disk_that_is_full_postpones_a_round_and_harms_nothing() -> None:
    async with serving(OFTEN, topic=COMPACTED) as (served, client):
        served.world.memory.fail("write", "*.cleaned", errno.ENOSPC)
        await fill(client, 20)
        await asyncio.sleep(0.02)
        assert partition_of(served).log.first_dirty_offset == 0
        served.world.clock.now_ms += 60_001
        await until(lambda: is_clean(partition_of(served)))
        assert partition_of(served).fault == 0


async def test_a_process_that_is_killed_while_it_compacts_postpones_a_round_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever kills it, the kernel for want of memory say: the log is not marked for the life of the node."""
    begin, killed = BesideLoop.begin, 0

    def dying(apart: BesideLoop, work: Callable[[], Iterator[object]]) -> Iterator[object]:
        nonlocal killed
        steps = begin(apart, work)
        if killed:
            return steps
        killed += 1
        return (_killed() if isinstance(step, Rewritten) else step for step in steps)

    monkeypatch.setattr(BesideLoop, "begin", dying)
    async with serving(OFTEN, topic=COMPACTED) as (served, client):
        await fill(client, 20)
        await until(lambda: killed)
        await asyncio.sleep(0.02)
        assert served.node.broker is not None and not served.node.broker.cleaner_stats.uncleanable
        assert partition_of(served).log.first_dirty_offset == 0
        served.world.clock.now_ms += 60_001
        await until(lambda: is_clean(partition_of(served)))
        assert {key for _, key, _ in await records(client)} == {b"0", b"1", b"2", b"3"}
        assert partition_of(served).fault == 0


def _killed() -> object:
    raise StepsLost("the process that took them ended with -9")


async def test_a_disk_that_fails_in_the_middle_of_a_swap_takes_that_partition_offline() -> None:
    async with serving(OFTEN, topic=COMPACTED) as (served, client):
        await client.create_topic("other", settings=COMPACTED)
        served.world.memory.fail("rename", f"*/{TOPIC}-0/*.log", errno.EIO)
        await fill(client, 20, topic="other")
        for number in range(60):
            if (await client.produce(keyed((b"%d" % (number % 3), b"v")))).error_code:
                break
        await until(lambda: partition_of(served).fault)
        await until(lambda: is_clean(partition_of(served, "other")))
        assert (await client.produce(keyed((b"k", b"v")), topic="other")).error_code == 0


async def test_a_topic_is_deleted_or_gets_another_policy_while_it_is_compacted() -> None:
    async with serving(OFTEN, topic=COMPACTED) as (served, client):
        served.world.offload.hold("cleaner-0")
        await fill(client, 20)
        partition = partition_of(served)
        await until(lambda: partition.log.cleaning is not None)
        assert await metric(served, "headrace_compactionprogresspercent") == 0
        await client.delete_topic()
        served.world.offload.release("cleaner-0")
        await client.create_topic(settings=COMPACTED)
        await fill(client, 20)
        await until(lambda: is_clean(partition_of(served)))
        assert len(await records(client)) < 12


async def test_a_stop_in_the_middle_of_a_round_is_clean() -> None:
    with World(settings=OFTEN) as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings=COMPACTED)
            world.offload.hold("cleaner-0")
            await fill(client)
            await until(lambda: partition_of(served).log.cleaning is not None)
            expected = {key: value for _, key, value in await records(client)}
            world.offload.release("cleaner-0")
        async with world.started() as served:
            client = await served.client()
            assert partition_of(served).log.recovery is None
            assert {key: value for _, key, value in await records(client)} == expected


def test_tcomp_8_replicas_compact_for_themselves_and_a_follower_that_starts_late_gets_what_is_left() -> None:
    settings = {**OFTEN, "log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "500"}

    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings={**COMPACTED, "min.insync.replicas": "1"})
        client = await trio.client(1)
        trio.world.nodes[2].kill()
        await fill(client, 60)
        await trio.until(lambda: is_clean(trio.partition(1)) and is_clean(trio.partition(2)))
        trio.world.nodes[2].start()
        await trio.serves(3)
        await trio.until(lambda: trio.partition(3).log_end_offset == 60)
        await fill(client, 20)
        await trio.until(lambda: all(is_clean(trio.partition(node)) for node in (1, 2, 3)))
        await trio.until(lambda: all(trio.partition(node).high_watermark == 80 for node in (1, 2, 3)))
        expected = {key: (offset, value) for offset, key, value in await records(client)}
        for leader in (2, 3):
            await trio.move_to(leader)
            client = await trio.client(leader)
            assert {key: (offset, value) for offset, key, value in await records(client)} == expected
            trio.world.nodes[leader - 1].kill()
            trio.world.nodes[leader - 1].start()
            await trio.serves(leader)
        await fill(await trio.client(await _leader(trio)), 4)

    async def _leader(trio: Trio) -> int:
        await trio.until(lambda: trio.record().leader in (1, 2, 3))
        await trio.leads(trio.record().leader)
        return trio.record().leader

    play(scenario, settings, replicates=True)
