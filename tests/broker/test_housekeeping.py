"""What a node does on its own: retention, rolling, syncing by age, checkpoints, forgetting, and not giving up."""

import errno
from collections.abc import Callable

import pytest

from headrace.broker import housekeeping as module
from headrace.broker.broker import Broker
from headrace.broker.housekeeping import SLICE_PARTITIONS, Housekeeping
from headrace.model import TopicPartition
from headrace.storage.log_dir import LogDir
from headrace.storage.offset_files import HIGH_WATERMARKS_NAME, OffsetFiles
from tests.broker.support import (
    EARLIEST,
    NOW_MS,
    TOPIC,
    Client,
    Served,
    World,
    numbered,
    records_of,
    serving,
    until,
)

OFTEN = {
    "log.retention.check.interval.ms": "2",
    "log.flush.scheduler.interval.ms": "2",
    "log.flush.offset.checkpoint.interval.ms": "2",
    "producer.id.expiration.check.interval.ms": "2",
}
SMALL_SEGMENTS = {"segment.bytes": "200", "file.delete.delay.ms": "0"}
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")


def broker_of(served: Served) -> Broker:
    assert served.node.broker is not None
    return served.node.broker


def start_of(served: Served, topic: str = TOPIC) -> int:
    partition = broker_of(served).partitions.find_by_name(topic, 0)
    assert not isinstance(partition, int)
    return partition.log_start_offset


def logs_on_disk(world: World, topic: str = TOPIC) -> list[int]:
    """First offsets of the segments."""
    names = world.memory.names(f"/data/logs/{topic}-0")
    return [int(name.removesuffix(".log")) for name in names if name.endswith(".log")]


async def fill(client: Client, count: int = 6, topic: str = TOPIC) -> None:
    """One segment per record, a second apart."""
    for number in range(count):
        await client.produce(records_of([bytes(100)], timestamps=[NOW_MS + 1000 * number]), topic=topic)


async def test_segments_older_than_the_retention_go_and_newer_ones_stay() -> None:
    async with serving(OFTEN, topic={**SMALL_SEGMENTS, "retention.ms": "10000"}) as (served, client):
        await fill(client)
        served.world.clock.now_ms = NOW_MS + 10_000 + 2_500
        await until(lambda: start_of(served) == 3)
        assert await client.offset(EARLIEST) == 3
        assert (await client.fetch(2)).error_code == 1
        await until(lambda: logs_on_disk(served.world) == [3, 4, 5])
        names, folder = served.world.memory.names, f"/data/logs/{TOPIC}-0"
        await until(lambda: not [name for name in names(folder) if name.endswith(".deleted")])


async def test_a_partition_that_is_silent_for_long_ends_empty_and_goes_on_at_its_offset() -> None:
    async with serving(OFTEN, topic={"retention.ms": "10000"}) as (served, client):
        await fill(client, 3)
        served.world.clock.now_ms += 100_000
        await until(lambda: start_of(served) == 3)
        assert (await client.produce()).base_offset == 3


async def test_the_largest_partitions_shrink_to_their_size() -> None:
    async with serving(OFTEN, topic={**SMALL_SEGMENTS, "retention.bytes": "500"}) as (served, client):
        await fill(client)
        await until(lambda: start_of(served) == 3)
        assert await client.offset() == 6


async def test_partitions_nobody_asked_for_since_the_start_shrink_too() -> None:
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings={**SMALL_SEGMENTS, "retention.ms": "10000"})
            await fill(client)
        world.clock.now_ms += 100_000
        async with world.started(settings=OFTEN) as served:
            await until(lambda: start_of(served) == 6)


async def test_what_waits_for_its_sync_does_not_expire() -> None:
    topic = {**SMALL_SEGMENTS, "retention.ms": "10000", "flush.messages": "1"}
    async with serving(topic=topic) as (served, client):
        await fill(client, 2)
        served.world.offload.hold("files")
        unsynced = client.send(records_of([bytes(100)]))
        await until(lambda: served.world.offload.held("files"))
        served.world.clock.now_ms += 1_000_000
        sweep = Housekeeping(broker_of(served)).enforce_retention()
        while start_of(served) < 2:
            sweep.send(None)
        assert start_of(served) == 2
        sweep.close()
        served.world.offload.release("files")
        await unsynced
        assert await client.offset() == 3


async def test_old_segments_are_completed_though_nobody_writes() -> None:
    async with serving(OFTEN, topic={"segment.ms": "1000"}) as (served, client):
        await client.produce()
        assert logs_on_disk(served.world) == [0]
        served.world.clock.now_ms += 1_001
        await until(lambda: logs_on_disk(served.world) == [0, 1])


async def test_records_older_than_flush_ms_survive_a_power_loss() -> None:
    with World(settings=OFTEN) as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings={"flush.ms": "1000"})
            await client.produce()
            world.clock.now_ms += 1_000
            path = f"/data/logs/{CHECKPOINTS[0]}"
            await until(lambda: world.memory.exists(path) and f"{TOPIC} 0 1".encode() in world.memory.read(path))
            await client.produce()
            await served.kill()
        world.memory.lose_power()
        async with world.started() as served:
            assert await (await served.client()).offset() == 1


async def test_checkpoints_tell_what_is_synced_and_what_was_acknowledged() -> None:
    async with serving(topic={"flush.messages": "1"}) as (served, client):
        await client.produce()
        served.world.offload.hold("files")
        unsynced = client.send()
        await until(lambda: served.world.offload.held("files"))
        (directory,) = broker_of(served).partitions.directories
        checkpoint = Housekeeping(broker_of(served)).checkpoint()
        checkpoint.send(None)
        served.world.offload.swap("files")
        served.world.offload.step("files")
        for name in CHECKPOINTS:
            assert f"{TOPIC} 0 1\n".encode() in served.world.memory.read(f"{directory.path}/logs/{name}")
        checkpoint.close()
        served.world.offload.release("files")
        await unsynced


async def test_the_files_of_a_deleted_topic_leave_the_disk() -> None:
    async with serving(OFTEN, topic=SMALL_SEGMENTS) as (served, client):
        await client.produce()
        await client.delete_topic()

        def is_gone() -> bool:
            return not [name for name in served.world.memory.names("/data/logs") if name.startswith(TOPIC)]

        await until(is_gone)


async def test_deleted_files_stay_for_their_delay_and_then_go(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    empty_trash = LogDir.empty_trash

    def counted(directory: LogDir, now_ms: int) -> bool:
        looks.append(now_ms)
        return empty_trash(directory, now_ms)

    monkeypatch.setattr(LogDir, "empty_trash", counted)
    topic = {**SMALL_SEGMENTS, "retention.ms": "10000", "file.delete.delay.ms": "30000"}
    async with serving(OFTEN, topic=topic) as (served, client):

        def deleted() -> list[str]:
            memory = served.world.memory
            directories = [name for name in memory.names("/data/logs") if name.startswith(TOPIC)]
            names = [f"{name}/{file}" for name in directories for file in memory.names(f"/data/logs/{name}")]
            return [name for name in names if "-delete/" in name or name.endswith(".log.deleted")]

        async def rounds(count: int = 5) -> None:
            """So many times the trash was looked at since."""
            seen_before = len(looks)
            await until(lambda: len(looks) >= seen_before + count)

        await fill(client)
        served.world.clock.now_ms = NOW_MS + 10_000 + 2_500
        await until(lambda: start_of(served) == 3)
        await rounds()
        assert len(deleted()) == 3
        served.world.clock.now_ms += 29_000
        await client.delete_topic()
        await rounds()
        assert {name.partition("/")[0].rpartition("-")[2] for name in deleted()} == {"delete"}
        served.world.clock.now_ms += 30_000
        await until(lambda: deleted() == [])


async def test_files_that_cannot_be_removed_do_not_stop_retention() -> None:
    async with serving(OFTEN, topic={**SMALL_SEGMENTS, "retention.ms": "10000"}) as (served, client):
        fault = served.world.memory.fail("remove", "*.deleted", errno.EIO, times=3)
        await fill(client)
        served.world.clock.now_ms = NOW_MS + 10_000 + 2_500
        await until(lambda: start_of(served) == 3)
        await until(lambda: fault.times == 0)
        served.world.clock.now_ms += 1_000
        await until(lambda: start_of(served) == 4)
        assert (await client.produce()).error_code == 0


async def test_a_chore_goes_on_after_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = []

    def broken(_: LogDir, _now_ms: int) -> bool:
        rounds.append(1)
        if len(rounds) == 1:
            raise KeyError("bug")
        return False

    monkeypatch.setattr(LogDir, "empty_trash", broken)
    monkeypatch.setattr(LogDir, "has_trash", True)
    async with serving(OFTEN) as (served, _):
        await until(lambda: len(rounds) > 2)
        assert len(served.world.tracebacks.seen) == 1
        served.world.tracebacks.seen.clear()


async def test_a_log_that_fails_in_a_sweep_is_offline_and_the_others_are_looked_after() -> None:
    async with serving(OFTEN, topic={**SMALL_SEGMENTS, "retention.ms": "10000"}, partitions=3) as (served, client):
        for partition in range(3):
            for _ in range(3):
                await client.produce(records_of([bytes(100)]), partition)
        served.world.memory.fail("rename", f"*/{TOPIC}-1/*", errno.EIO)
        served.world.clock.now_ms += 100_000

        def starts() -> list[int]:
            return [partition.log_start_offset for partition in broker_of(served).partitions]

        await until(lambda: starts() == [3, 0, 3])
        assert [(await client.produce(partition=p)).error_code for p in range(3)] == [0, 56, 0]


async def test_others_are_served_between_the_slices_of_a_sweep() -> None:
    count = 2 * SLICE_PARTITIONS + 1
    async with serving(partitions=count) as (served, client):
        for partition in range(count):
            await client.produce(partition=partition)
        sweep = Housekeeping(broker_of(served)).flush_by_age()
        assert len(list(sweep.__await__())) == 3  # turns of the loop


async def test_the_longest_idle_producers_are_forgotten_first_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PRODUCER_IDS_MAX", 3)
    async with serving(partitions=2) as (served, client):
        for producer_id in range(5):
            served.world.clock.now_ms += 1
            await client.produce(numbered((producer_id, 0, 0)), producer_id % 2)
        await Housekeeping(broker_of(served)).expire_producers()
        left = {
            producer_id
            for partition in broker_of(served).partitions
            for producer_id, _ in partition.log.producers.items()
        }
        assert left == {2, 3, 4}


async def test_high_watermarks_that_moved_are_written_without_waiting_for_the_other_checkpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[str] = []
    looks: list[LogDir] = []
    write, look = OffsetFiles._write, LogDir.high_watermarks_job

    def noted(files: OffsetFiles, name: str, offsets: dict[TopicPartition, int]) -> None:
        written.append(name)
        write(files, name, offsets)

    def counted(directory: LogDir) -> Callable[[], None]:
        looks.append(directory)
        return look(directory)

    monkeypatch.setattr(OffsetFiles, "_write", noted)
    monkeypatch.setattr(LogDir, "high_watermarks_job", counted)
    async with serving({"replica.high.watermark.checkpoint.interval.ms": "2"}) as (served, client):

        async def written_once(offset: int) -> None:
            """Although it is looked at again and again."""
            path, line = f"/data/logs/{HIGH_WATERMARKS_NAME}", f"{TOPIC} 0 {offset}\n".encode()
            written.clear()
            await client.produce()
            await until(lambda: served.world.memory.exists(path) and line in served.world.memory.read(path))
            seen = len(looks)
            await until(lambda: len(looks) > seen + 5)
            assert written == [HIGH_WATERMARKS_NAME]

        await written_once(1)
        await written_once(2)


HOUR_MS = 3_600_000


STRAYS = ("stranger-0", "earlier-7.00112233445566778899aabbccddeeff-stray", "not-ours-stray")


def with_strays(world: World) -> Callable[[], set[str]]:
    """One of now, one of an earlier run, and one that somebody else named so. Which of them are there, aside."""
    for name in STRAYS:
        world.memory.make_directory(f"/data/logs/{name}")
    world.memory.create("/data/logs/stranger-0/precious")
    return lambda: {name.partition("-")[0] for name in world.memory.names("/data/logs") if name.endswith("-stray")}


async def test_tsm_5_what_no_topic_claims_is_kept_for_an_hour_and_then_goes(caplog: pytest.LogCaptureFixture) -> None:
    """The hour of what an earlier run set aside begins again."""
    with World() as world:
        strays = with_strays(world)
        async with world.started() as served:
            chores = Housekeeping(broker_of(served))
            await chores.remove_strays()
            world.clock.now_ms += HOUR_MS - 1
            await chores.remove_strays()
            assert strays() == {"stranger", "earlier", "not"}
            world.clock.now_ms += 1
            await chores.remove_strays()
            assert strays() == {"not"}
        removed = [record.getMessage() for record in caplog.records if record.getMessage().startswith("removed ")]
        assert len(removed) == 2 and "/data/logs/stranger-0." in removed[1]


@pytest.mark.parametrize("kept", ["0", "-1"])
async def test_a_setting_says_how_long_strays_are_kept(kept: str) -> None:
    with World(settings={**OFTEN, "stray.log.retention.ms": kept}) as world:
        strays = with_strays(world)
        async with world.started() as served:
            if kept == "0":
                await until(lambda: strays() == {"not"})
            else:
                chores = Housekeeping(broker_of(served))
                for _ in range(2):
                    await chores.remove_strays()
                    world.clock.now_ms += 1000 * HOUR_MS
                assert strays() == {"stranger", "earlier", "not"}


async def test_a_stray_that_cannot_be_removed_is_tried_again() -> None:
    with World(settings={**OFTEN, "stray.log.retention.ms": "0"}) as world:
        strays = with_strays(world)
        fault = world.memory.fail("remove", "*/stranger-0.*", errno.EIO, times=3)
        async with world.started():
            await until(lambda: strays() == {"not"})
            assert fault.times == 0
