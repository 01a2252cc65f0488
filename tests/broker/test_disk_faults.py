"""Disks that fill up, break or lie, below a whole node: who is told what, and who does not notice."""

import asyncio
import errno

import pytest

from headrace.errors import ErrorCode
from headrace.storage.memory_files import MemoryFiles
from headrace.wire.messages.fetch import FetchResponse
from headrace.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    TopicRequest,
)
from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.messages.produce import ProduceResponse
from tests.broker.support import (
    TOPIC,
    Client,
    World,
    delete_records,
    fetch_request,
    only_partition,
    produce_request,
    records_of,
    serving,
    until,
    values_of,
)

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
FOR_EVER = 1 << 60
TWO_DISKS = "/a,/b"


async def codes(client: Client, count: int) -> list[int]:
    """What producing to each partition is answered with."""
    request = produce_request({index: records_of() for index in range(count)})
    answer = await client.ask(request, ProduceResponse, 12)
    return [a.error_code for a in answer.responses[0].partition_responses]


def partitions_in(files: MemoryFiles, directory: str) -> set[int]:
    return {int(n.rpartition("-")[2]) for n in files.names(f"{directory}/logs") if n.startswith(TOPIC + "-")}


async def lookup_codes(client: Client) -> set[int]:
    """What every way to ask for partition 0 is answered with."""
    asked = [ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in (-1, -2, -3, 5)]
    found = {(await client.list_offsets(one))[0].error_code for one in asked}
    found.add((await client.fetch(0)).error_code)
    epochs = OffsetForLeaderTopic(topic=TOPIC, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
    ended = await client.ask(OffsetForLeaderEpochRequest(topics=[epochs]), OffsetForLeaderEpochResponse)
    found.add(ended.topics[0].partitions[0].error_code)
    found.add((await delete_records(client, 0))[0][0])
    return found


async def test_tdur_3_a_full_disk_takes_its_partitions_offline_and_no_others() -> None:
    async with serving(data=TWO_DISKS, partitions=6) as (served, client):
        assert await codes(client, 6) == [0] * 6
        files = served.world.memory
        full, fine = partitions_in(files, "/a"), partitions_in(files, "/b")
        assert len(full) == len(fine) == 3
        waiting = (await served.client()).peer.send(fetch_request(1, min(full), max_wait_ms=60_000), FetchResponse, 12)
        await until(lambda: served.node.broker and served.node.broker.fetch_events._waiting)
        files.fail("write", "/a/*", errno.ENOSPC, times=FOR_EVER)
        assert await codes(client, 6) == [STORAGE_ERROR if index in full else 0 for index in range(6)]
        assert (await waiting).responses[0].partitions[0].error_code == STORAGE_ERROR
        for index in full:
            assert (await client.fetch(0, index)).error_code == STORAGE_ERROR
        for index in fine:
            assert len(values_of((await client.fetch(0, index)).records)) == 2
        assert await served.page("/readyz") == (503, "offline: /a\n")
        assert (await served.page("/healthz"))[0] == 200


async def test_new_partitions_go_to_the_disk_that_is_left() -> None:
    async with serving(data=TWO_DISKS) as (served, client):
        served.world.memory.fail("write", "/a/*", errno.ENOSPC, times=FOR_EVER)
        await client.create_topic("more", partitions=4)
        # The first write to the broken disk finds it out.
        answers = [await client.produce(topic=name, partition=p) for name in (TOPIC, "more") for p in range(1)]
        assert STORAGE_ERROR in {a.error_code for a in answers}
        await client.create_topic("later", partitions=4)
        assert [(await client.produce(topic="later", partition=p)).error_code for p in range(4)] == [0] * 4


async def test_after_a_full_disk_was_freed_and_the_node_restarted_everything_is_there() -> None:
    with World(data=TWO_DISKS) as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(partitions=4)
            assert await codes(client, 4) == [0] * 4
            world.memory.fail("write", "/a/*", errno.ENOSPC, times=FOR_EVER, bytes_written=20)
            first = await codes(client, 4)
            assert sorted(first) == [0, 0, STORAGE_ERROR, STORAGE_ERROR]
        world.memory.faults.clear()
        async with world.started() as served:
            client = await served.client()
            assert [await client.offset(partition=p) for p in range(4)] == [2 if code == 0 else 1 for code in first]
            assert await codes(client, 4) == [0] * 4
            assert (await served.page("/readyz"))[0] == 200


async def test_a_full_disk_gets_back_the_space_that_was_kept_for_it() -> None:
    async with serving({"disk.reserve.bytes": "1000"}, data=TWO_DISKS, partitions=2) as (served, client):
        files = served.world.memory
        assert [files.size(f"{disk}/.headrace-reserve") for disk in ("/a", "/b")] == [1000, 1000]
        files.fail("write", "/a/*.log", errno.ENOSPC)
        assert sorted(await codes(client, 2)) == [0, STORAGE_ERROR]
        assert [files.exists(f"{disk}/.headrace-reserve") for disk in ("/a", "/b")] == [False, True]


async def test_a_disk_without_room_for_the_reserve_is_used_nevertheless() -> None:
    with World(settings={"disk.reserve.bytes": "1000"}) as world:
        world.memory.fail("create", "*/.headrace-reserve", errno.ENOSPC)
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            assert (await client.produce()).error_code == 0


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EDQUOT])
async def test_a_disk_that_takes_nothing_at_all_does_not_stop_the_broker(number: int) -> None:
    """Not even the reserve can be given back."""
    async with serving({"disk.reserve.bytes": "1000"}, data=TWO_DISKS, partitions=2) as (served, client):
        for operation in ("write", "create", "remove", "rename", "sync", "sync_directory"):
            served.world.memory.fail(operation, "/a/*", number, times=FOR_EVER)
        assert sorted(await codes(client, 2)) == [0, STORAGE_ERROR]
        assert sorted(await codes(client, 2)) == [0, STORAGE_ERROR]
        served.world.memory.faults.clear()


async def test_tdur_5_after_a_failed_sync_nothing_is_acknowledged_any_more() -> None:
    async with serving(topic={"flush.messages": "1"}) as (served, client):
        assert (await client.produce(records_of([b"safe"]))).error_code == 0
        served.world.memory.fail("sync", "*.log", errno.EIO)
        asked = [client.send(acks=acks) for acks in (1, -1, 1)]
        assert [only_partition(await future).error_code for future in asked] == [STORAGE_ERROR] * 3
        assert (await client.produce()).error_code == STORAGE_ERROR
        assert (await served.page("/readyz"))[0] == 200  # the disk itself passed its probe


async def test_tdur_5_a_failed_sync_by_age_stops_the_partition_too() -> None:
    settings = {"log.flush.scheduler.interval.ms": "2"}
    async with serving(settings, topic={"flush.ms": "5"}) as (served, client):
        assert (await client.produce()).error_code == 0
        served.world.memory.fail("sync", "*.log", errno.EIO)
        served.world.clock.now_ms += 5

        async def refused() -> bool:
            return (await client.produce()).error_code == STORAGE_ERROR

        async with asyncio.timeout(30):
            while not await refused():
                served.world.clock.now_ms += 5


@pytest.mark.parametrize("operation", ["write", "sync"])
async def test_tdur_6_an_error_in_one_file_stops_one_partition_of_fifty(operation: str) -> None:
    """As a leader; the follower's case is T461-1."""
    async with serving(topic={"flush.messages": "1"}, partitions=50) as (served, client):
        assert await codes(client, 50) == [0] * 50
        served.world.memory.fail(operation, f"*/{TOPIC}-7/*.log", errno.EIO)
        assert await codes(client, 50) == [STORAGE_ERROR if index == 7 else 0 for index in range(50)]
        assert await codes(client, 50) == [STORAGE_ERROR if index == 7 else 0 for index in range(50)]
        assert await client.offset(partition=8) == 3
        _, metrics = await served.page("/metrics")
        assert "kafka_server_replicamanager_offlinereplicacount 1\n" in metrics
        assert "kafka_log_logmanager_offlinelogdirectorycount 0\n" in metrics


async def test_nobody_leads_a_partition_whose_disk_has_failed() -> None:
    async with serving(partitions=2) as (served, client):
        served.world.memory.fail("write", f"*/{TOPIC}-1/*.log", errno.EIO)
        assert await codes(client, 2) == [0, STORAGE_ERROR]
        by_name = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        told = (await client.ask(by_name, MetadataResponse)).topics[0].partitions
        described = await client.ask(
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)]), DescribeTopicPartitionsResponse
        )
        for good, bad in (told, described.topics[0].partitions):
            assert (good.error_code, good.leader_id, good.offline_replicas) == (0, 1, [])
            assert (bad.error_code, bad.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            assert (bad.replica_nodes, bad.isr_nodes, bad.offline_replicas) == ([1], [1], [1])


async def test_a_failing_probe_takes_the_whole_directory_along() -> None:
    async with serving(data=TWO_DISKS, partitions=6) as (served, client):
        assert await codes(client, 6) == [0] * 6
        broken = partitions_in(served.world.memory, "/a")
        served.world.memory.fail("write", f"/a/logs/{TOPIC}-*.log", errno.EIO)
        served.world.memory.fail("create", "/a/logs/.headrace-probe*", errno.EIO)
        await codes(client, 6)
        assert await codes(client, 6) == [STORAGE_ERROR if index in broken else 0 for index in range(6)]
        assert (await served.page("/readyz"))[0] == 503


@pytest.mark.parametrize("operation", ["make_directory", "create", "rename", "sync", "sync_directory", "write"])
async def test_whatever_fails_at_the_first_append_is_told_to_the_producer(operation: str) -> None:
    async with serving(topic={"flush.messages": "1"}) as (served, client):
        served.world.memory.fail(operation, f"*/{TOPIC}-0*", errno.EIO)
        assert (await client.produce()).error_code == STORAGE_ERROR
        assert await lookup_codes(client) == {STORAGE_ERROR}


async def test_a_roll_that_fails_stops_the_partition_with_what_it_has() -> None:
    async with serving(topic={"segment.bytes": "200"}) as (served, client):
        assert (await client.produce(records_of([bytes(100)]))).error_code == 0
        served.world.memory.fail("create", "*.snapshot", errno.EIO)
        assert (await client.produce(records_of([bytes(100)]))).error_code == STORAGE_ERROR
        assert await lookup_codes(client) == {STORAGE_ERROR}


async def restarted_with(world: World, harm: str, number: int) -> tuple[list[int], set[int]]:
    """A partition with records, a clean stop, and then a disk that fails in one operation."""
    async with world.started() as served:
        client = await served.client()
        await client.create_topic()
        await client.produce()
    world.memory.fail(harm, f"*/{TOPIC}-0*", number, times=FOR_EVER)
    async with world.started() as served:
        client = await served.client()
        answered = [(await client.produce()).error_code for _ in range(2)]
        return answered, await lookup_codes(client)


@pytest.mark.parametrize("harm", ["names", "read", "write"])
async def test_a_log_that_cannot_be_opened_or_continued_is_offline_and_the_broker_lives(harm: str) -> None:
    with World() as world:
        answered, lookups = await restarted_with(world, harm, errno.EIO)
        assert answered == [STORAGE_ERROR] * 2
        assert lookups == {STORAGE_ERROR}


async def test_a_partition_that_does_not_say_whose_it_is_keeps_no_other_from_starting() -> None:
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(partitions=3)
            assert await codes(client, 3) == [0, 0, 0]
            await served.kill()
        world.memory.fail("read", f"*/{TOPIC}-1/partition.metadata", errno.EIO, times=FOR_EVER)
        async with world.started() as served:
            assert await codes(await served.client(), 3) == [0, STORAGE_ERROR, 0]


async def corrupted(world: World) -> None:
    """A byte of what was synced is changed while nobody looks."""
    async with world.started() as served:
        client = await served.client()
        await client.create_topic(settings={"flush.messages": "1"})
        await client.produce()
        broker = served.node.broker
        assert broker is not None
        for directory in broker.partitions.directories:
            directory.checkpoint_job()()
        await served.kill()
    world.memory.open(f"/data/logs/{TOPIC}-0/{0:020d}.log").write(70, [b"\xff"])


async def test_a_corrupt_log_is_offline_from_the_start_and_others_are_served() -> None:
    with World() as world:
        await corrupted(world)
        async with world.started() as served:
            client = await served.client()
            assert (await client.produce()).error_code == STORAGE_ERROR
            assert await lookup_codes(client) == {STORAGE_ERROR}
            await client.create_topic("other")
            assert (await client.produce(topic="other")).error_code == 0


async def lazily_corrupted(world: World) -> None:
    """Found out only when the log is opened, which after a clean stop is when somebody asks."""
    async with world.started() as served:
        client = await served.client()
        await client.create_topic(settings={"segment.bytes": "200"})
        for _ in range(4):
            await client.produce(records_of([bytes(100)]))
    world.memory.create(f"/data/logs/{TOPIC}-0/{0:020d}.log")


async def delete_code(client: Client) -> int:
    return (await delete_records(client, 1))[0][0]


async def test_a_log_found_broken_when_it_is_first_asked_for_is_offline_from_then_on() -> None:
    with World() as world:
        await lazily_corrupted(world)
        for ask in (
            lambda client: client.produce(),
            lambda client: client.fetch(0),
            lambda client: client.list_offsets(ListOffsetsPartition(partition_index=0, timestamp=5)),
            lambda client: delete_code(client),
        ):
            async with world.started() as served:
                client = await served.client()
                answer = await ask(client)
                first = answer[0] if isinstance(answer, list) else answer
                assert (first if isinstance(first, int) else first.error_code) == STORAGE_ERROR
                assert await lookup_codes(client) == {STORAGE_ERROR}
                assert (await served.page("/readyz"))[0] == 200


async def test_a_read_that_fails_is_told_and_stops_the_partition() -> None:
    async with serving(partitions=2) as (served, client):
        assert await codes(client, 2) == [0, 0]
        served.world.memory.fail("read", f"*/{TOPIC}-0/*.log", errno.EIO)
        assert (await client.fetch(0)).error_code == STORAGE_ERROR
        assert await codes(client, 2) == [STORAGE_ERROR, 0]
        assert values_of((await client.fetch(0, 1)).records) == [b"a value"] * 2


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_a_machine_that_is_short_of_something_takes_nothing_offline_for_reading(number: int) -> None:
    async with serving() as (served, client):
        await client.produce()
        served.world.memory.fail("read", "*.log", number, times=2)
        assert (await client.fetch(0)).error_code == STORAGE_ERROR
        (found,) = await client.list_offsets(ListOffsetsPartition(partition_index=0, timestamp=5))
        assert found.error_code == STORAGE_ERROR
        assert values_of((await client.fetch(0)).records) == [b"a value"]
        assert (await client.produce()).base_offset == 1


async def test_a_machine_that_is_short_of_something_costs_a_writer_its_partition_and_not_the_directory() -> None:
    async with serving(partitions=2) as (served, client):
        assert await codes(client, 2) == [0, 0]
        served.world.memory.fail("write", f"*/{TOPIC}-0/*.log", errno.EMFILE)
        served.world.memory.fail("create", "*/.headrace-probe", errno.EMFILE)
        assert await codes(client, 2) == [STORAGE_ERROR, 0]
        assert await codes(client, 2) == [STORAGE_ERROR, 0]
        assert (await served.page("/readyz"))[0] == 200


async def test_a_failed_lookup_by_time_stops_the_partition() -> None:
    async with serving() as (served, client):
        await client.produce()
        served.world.memory.fail("read", "*.log", errno.EIO)
        asked = ListOffsetsPartition(partition_index=0, timestamp=5)
        (found,) = await client.list_offsets(asked)
        assert found.error_code == STORAGE_ERROR
        assert await lookup_codes(client) == {STORAGE_ERROR}


async def test_records_that_cannot_be_deleted_are_not_said_to_be() -> None:
    async with serving(topic={"segment.bytes": "200"}) as (served, client):
        for _ in range(4):
            await client.produce(records_of([bytes(100)]))
        served.world.memory.fail("rename", "*.log", errno.EIO)
        assert await delete_records(client, 3) == [(STORAGE_ERROR, -1)]


async def test_producers_who_wait_for_a_sync_are_answered_when_their_directory_goes() -> None:
    async with serving(topic={"flush.messages": "1"}, partitions=2) as (served, client):
        served.world.offload.hold("files")
        waiting = client.send(partition=0)
        await until(lambda: served.world.offload.held("files"))
        served.world.memory.fail("write", f"*/{TOPIC}-1/*.log", errno.ENOSPC)
        other = await served.client()
        assert (await other.produce(partition=1)).error_code == STORAGE_ERROR
        assert only_partition(await waiting).error_code == STORAGE_ERROR


async def test_a_checkpoint_that_cannot_be_written_takes_the_directory_offline() -> None:
    settings = {"log.flush.offset.checkpoint.interval.ms": "5"}
    async with serving(settings, data=TWO_DISKS, partitions=2) as (served, client):
        assert await codes(client, 2) == [0, 0]
        served.world.memory.fail("create", "/b/logs/recovery-point-offset-checkpoint*", errno.EIO, times=FOR_EVER)
        broker = served.node.broker
        assert broker is not None
        await until(lambda: broker.faults.offline_directories == {"/b"})
        assert sorted(await codes(client, 2)) == [0, STORAGE_ERROR]


async def test_topics_on_a_failed_disk_can_be_deleted_and_made_again() -> None:
    async with serving(data=TWO_DISKS, partitions=2) as (served, client):
        served.world.memory.fail("write", "/a/*", errno.ENOSPC, times=FOR_EVER)
        served.world.memory.fail("rename", "/a/*", errno.EIO, times=FOR_EVER)
        await codes(client, 2)
        await client.delete_topic()
        await client.create_topic(partitions=2)
        assert await codes(client, 2) == [0, 0]
        assert [await client.offset(partition=p) for p in range(2)] == [1, 1]


@pytest.mark.parametrize("times", [1, FOR_EVER])
async def test_a_topic_made_anew_never_shows_the_records_of_one_whose_files_could_not_be_removed(times: int) -> None:
    async with serving() as (served, client):
        await client.produce(records_of([b"old"]))
        served.world.memory.fail("rename", f"*/{TOPIC}-0", errno.EIO, times=times)
        await client.delete_topic()
        await client.create_topic()
        answer = await client.produce(records_of([b"new"]))
        if times == 1:
            assert (answer.error_code, answer.base_offset) == (0, 0)
            assert values_of((await client.fetch(0)).records) == [b"new"]
        else:
            assert answer.error_code == STORAGE_ERROR
            assert await lookup_codes(client) == {STORAGE_ERROR}


async def test_a_node_without_any_working_directory_ends_with_a_sentence() -> None:
    async with serving(data=TWO_DISKS, partitions=4) as (served, client):
        fatal = served.node.fatal
        assert fatal is not None
        served.world.memory.fail("write", "/a/*", errno.ENOSPC, times=FOR_EVER)
        assert sorted(await codes(client, 4)) == [0, 0, STORAGE_ERROR, STORAGE_ERROR]
        assert not fatal.done()
        served.world.memory.fail("write", "/b/*", errno.ENOSPC, times=FOR_EVER)
        assert await codes(client, 4) == [STORAGE_ERROR] * 4
        assert fatal.result().startswith("No data directory is left: /b is offline, ")
        assert (await served.page("/readyz"))[0] == 503
