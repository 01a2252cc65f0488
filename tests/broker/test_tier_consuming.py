"""Consumers of a tiered partition see what they would see if all of it were on the disk."""

import asyncio
import random
import re
from unittest.mock import patch

import pytest

from headrace.broker.handlers import k02_list_offsets
from headrace.broker.partitions import Hosted
from headrace.broker.tier_loads import BACKOFF_MS
from headrace.errors import ErrorCode
from headrace.storage.times import Found
from headrace.tier.memory import Mishap
from headrace.tier.times import RemoteSegment, first_at_or_after
from headrace.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.broker.copying import TIERED, TieredWorld, copied, fill, partition_of, rows_of, tiering
from tests.broker.marked import UNVERIFIED, end, in_transaction, produce, read_committed
from tests.broker.support import NOW_MS, TOPIC, Client, Served, records_of, until, values_of

TOPIC_TYPE = 2
SET = 0
MAX_TIMESTAMP = -3
KEPT_LOCALLY = {"local.retention.bytes": "-1"}
HOT = "hot"


async def alter_topic(client: Client, name: str, value: str) -> None:
    change = IncrementalAlterableConfig(name=name, config_operation=SET, value=value)
    resource = IncrementalAlterConfigsResource(resource_type=TOPIC_TYPE, resource_name=TOPIC, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await client.ask(request, IncrementalAlterConfigsResponse)
    assert [one.error_code for one in answer.responses] == [0]


async def tier_away(served: Served, client: Client, topic: str = TOPIC) -> Hosted:
    """Only the active segment stays on the disk."""
    await copied(served)
    partition = partition_of(served, topic)
    await alter_topic(client, "local.retention.bytes", "0")
    await until(lambda: len(partition.log.segments) == 1 and partition.local_log_start_offset > 0)
    return partition


async def test_reading_across_the_seam_has_no_gap_and_repeats_nothing() -> None:
    """T8-2."""
    async with tiering() as (_, served, client):
        await fill(client, 40)
        expected = [b"%d" % number + bytes(20) for number in range(40)]
        assert await client.read_all() == expected
        await copied(served)
        partition = partition_of(served)
        await until(lambda: len(partition.log.segments) == 1)
        assert partition.local_log_start_offset > 30
        assert await client.read_all() == expected
        for offset in range(41):
            assert await client.read_all(offset) == expected[offset:]


async def test_reading_goes_on_while_segments_go_to_the_tier_and_from_the_disk() -> None:
    async with tiering() as (_, served, client):
        reader = await served.client()

        async def read(count: int) -> list[bytes | None]:
            found: list[bytes | None] = []
            while len(found) < count:
                fetched = await reader.fetch(len(found), max_wait_ms=50)
                assert fetched.error_code == 0
                found += values_of(fetched.records)
            return found

        reading = asyncio.create_task(read(150))
        await fill(client, 150)
        assert await reading == [b"%d" % number + bytes(20) for number in range(150)]
        assert await read(150) == [b"%d" % number + bytes(20) for number in range(150)]


async def test_committed_records_are_the_same_from_the_tier() -> None:
    draw = random.Random(5)
    async with tiering(UNVERIFIED, topic=KEPT_LOCALLY) as (_, served, client):
        sequences: dict[int, int] = {}
        opened: set[int] = set()
        for number in range(150):
            pid = draw.randrange(8, 13)
            if pid in opened and draw.random() < 0.4:
                assert await end(client, draw.random() < 0.5, pid=pid) == [0]
                opened.remove(pid)
                continue
            sequence = sequences[pid] = sequences.get(pid, -1) + 1
            answer = await produce(client, in_transaction(sequence, b"%d" % number, pid=pid), tid=f"t{pid}")
            assert answer.error_code == 0
            opened.add(pid)
        for pid in sorted(opened):
            assert await end(client, False, pid=pid) == [0]
        await fill(client, 6)
        offsets = range(0, await client.offset(), 7)
        local = [await read_committed(client, offset) for offset in offsets]
        partition = await tier_away(served, client)
        assert partition.local_log_start_offset > 140
        assert sum(row.sections.txnindex is not None for row in rows_of(served)) > 3
        assert [await read_committed(client, offset) for offset in offsets] == local
        assert 6 < len(local[0]) < 120


async def test_lookups_by_time_find_the_same_records_in_the_tier() -> None:
    draw = random.Random(3)
    async with tiering(topic=KEPT_LOCALLY) as (_, served, client):
        for _ in range(40):
            times = [NOW_MS + draw.randrange(-50, 60) for _ in range(draw.randrange(1, 4))]
            await client.produce(records_of([b"v" * 20] * len(times), timestamps=times))
        await client.produce(records_of([b"last" * 100], timestamps=[NOW_MS - 100]))
        asked = [MAX_TIMESTAMP, *range(NOW_MS - 60, NOW_MS + 65)]

        async def look_up() -> list[tuple[int, int, int]]:
            found = []
            for timestamp in asked:
                entry = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
                (one,) = await client.list_offsets(entry)
                assert one.error_code == 0
                found.append((one.timestamp, one.offset, one.leader_epoch))
            return found

        local = await look_up()
        partition = await tier_away(served, client)
        assert partition.local_log_start_offset > 20
        assert await look_up() == local
        assert len({offset for _, offset, _ in local}) > 3


async def test_a_lookup_by_time_misses_nothing_that_goes_from_the_disk_meanwhile() -> None:
    """A remote segment may begin before the local log and hold what is asked for behind that: by then it is gone."""
    async with tiering(topic={"local.retention.bytes": "700"}) as (_, served, client):
        await fill(client, 20)
        await copied(served)
        partition = partition_of(served)
        await until(lambda: partition.local_log_start_offset > 0)
        assert len(partition.log.segments) > 1
        another, looked = await served.client(), 0

        async def slowly(segments: list[RemoteSegment], timestamp: int, start: int, limit: int) -> Found | None:
            nonlocal looked
            looked += 1
            if looked > 1:
                return await first_at_or_after(segments, timestamp, start, limit)
            await tier_away(served, another)
            return None

        with patch("headrace.broker.tier_lookups.first_at_or_after", slowly):
            (found,) = await client.list_offsets(ListOffsetsPartition(partition_index=0, timestamp=0))
        assert (found.error_code, found.offset, looked) == (0, 0, 2)


def timeless(name: str, *timestamps: int) -> ListOffsetsTopic:
    partitions = [ListOffsetsPartition(partition_index=at, timestamp=time) for at, time in enumerate(timestamps)]
    return ListOffsetsTopic(name=name, partitions=partitions)


async def two_topics(served: Served, client: Client) -> None:
    """One of which is in the tier, and the other one is not."""
    await client.create_topic(HOT)
    await client.produce(records_of([b"hot"]), topic=HOT)
    await fill(client, 20)
    await copied(served)
    await until(lambda: len(partition_of(served).log.segments) == 1)


async def test_one_slow_lookup_carries_a_timeout_and_the_others_their_answers() -> None:
    """T8-7."""
    async with tiering() as (world, served, client):
        await two_topics(served, client)
        world.bucket.mishap = lambda operation, _: Mishap(delay_ms=60_000 if operation == "get" else 0)
        request = ListOffsetsRequest(topics=[timeless(TOPIC, 0), timeless(HOT, 0)], timeout_ms=100)
        slow, fast = (await client.ask(request, ListOffsetsResponse, 11)).topics
        assert slow.partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert (fast.partitions[0].error_code, fast.partitions[0].offset) == (0, 0)
        for sentinel in (-1, -2, -4, -5, -6):
            asked = ListOffsetsRequest(topics=[timeless(TOPIC, sentinel)])
            (answer,) = (await client.ask(asked, ListOffsetsResponse)).topics
            assert answer.partitions[0].error_code == 0, "they never wait"
        world.bucket.mishap = lambda *_: Mishap(fails=True)
        assert (await client.ask(request, ListOffsetsResponse, 11)).topics[0].partitions[0].error_code == 7
        world.bucket.mishap = lambda *_: Mishap()
        assert (await client.ask(request, ListOffsetsResponse, 11)).topics[0].partitions[0].offset == 0


async def test_records_on_the_disk_do_not_wait_for_the_tier() -> None:
    async with tiering({"remote.fetch.max.wait.ms": "60000"}) as (world, served, client):
        await two_topics(served, client)
        world.bucket.mishap = lambda operation, _: Mishap(delay_ms=300_000 if operation == "get" else 0)
        for wait_ms in (0, 60_000):
            async with asyncio.timeout(30):
                cold, hot = await fetch_both(client, wait_ms)
            assert (cold.error_code, cold.records) == (0, b"")
            assert values_of(hot.records) == [b"hot"]


async def fetch_both(client: Client, wait_ms: int) -> tuple[PartitionData, PartitionData]:
    topics = [
        FetchTopic(topic=name, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
        for name in (TOPIC, HOT)
    ]
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, session_id=0, session_epoch=-1, topics=topics
    )
    answer = await client.ask(request, FetchResponse, 12)
    parts = {topic.topic: topic.partitions[0] for topic in answer.responses}
    return parts[TOPIC], parts[HOT]


async def test_what_the_store_does_not_give_in_time_is_no_error_and_comes_later() -> None:
    async with tiering({"remote.fetch.max.wait.ms": "30"}) as (world, served, client):
        await fill(client, 20)
        await copied(served)
        await until(lambda: len(partition_of(served).log.segments) == 1)
        world.bucket.mishap = lambda operation, _: Mishap(fails=operation == "get")
        part = await client.fetch(0, max_wait_ms=60_000)
        assert (part.error_code, part.records, part.high_watermark) == (0, b"", 20)
        world.bucket.mishap = lambda *_: Mishap()
        world.clock.now_ms += BACKOFF_MS
        async with asyncio.timeout(60):
            while not part.records:
                part = await client.fetch(0, max_wait_ms=60_000)
                assert part.error_code == 0
        assert values_of(part.records)[0] == b"0" + bytes(20)


async def test_a_session_goes_on_in_the_tier_when_segments_go_from_the_disk_under_it() -> None:
    async with tiering(topic=KEPT_LOCALLY) as (_, served, client):
        await fill(client, 20)
        entry = FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[entry])]
        )
        request.session_id, request.session_epoch = 0, 0
        opened = await client.ask(request, FetchResponse, 12)
        assert opened.session_id and opened.responses[0].partitions[0].records
        await tier_away(served, client)
        again = FetchRequest(
            max_wait_ms=60_000, min_bytes=1, max_bytes=1, session_id=opened.session_id, session_epoch=1, topics=[]
        )
        part = (await client.ask(again, FetchResponse, 12)).responses[0].partitions[0]
        assert values_of(part.records)[0] == b"2" + bytes(20)


async def test_several_remote_partitions_are_read_by_one_fetch_within_its_limit() -> None:
    with TieredWorld() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(partitions=4, settings=TIERED)
            for partition in range(4):
                for number in range(10):
                    await client.produce(records_of([b"%d" % number + bytes(20)]), partition)
            broker = served.node.broker
            assert broker is not None
            hosted = [broker.partitions.find_by_name(TOPIC, index) for index in range(4)]
            await until(lambda: all(isinstance(one, Hosted) and len(one.log.segments) == 1 for one in hosted))
            batch = len((await client.fetch(0)).records or b"")
            asked = [FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1) for at in range(4)]

            async def fetch(max_bytes: int) -> dict[int, int]:
                request = FetchRequest(
                    max_wait_ms=1_000,
                    min_bytes=1,
                    max_bytes=max_bytes,
                    session_id=0,
                    session_epoch=-1,
                    topics=[FetchTopic(topic=TOPIC, partitions=asked)],
                )
                parts = (await client.ask(request, FetchResponse, 12)).responses[0].partitions
                assert all(part.error_code == 0 for part in parts)
                return {part.partition_index: len(part.records or b"") for part in parts}

            async with asyncio.timeout(30):
                for entry in asked:
                    entry.partition_max_bytes = 1 << 20
                while 0 in (await fetch(1 << 20)).values():
                    pass
            assert min((await fetch(1 << 20)).values()) >= batch
            for entry in asked:
                entry.partition_max_bytes = 1
            assert sorted(bool(size) for size in (await fetch(1 << 20)).values()) == [False, False, False, True]


async def test_too_many_reads_are_an_error_of_the_partition_alone() -> None:
    settings = {"remote.log.reader.threads": "1", "remote.log.reader.max.pending.tasks": "1"}
    async with tiering({**settings, "remote.fetch.max.wait.ms": "60000"}) as (world, served, client):
        await two_topics(served, client)
        world.bucket.mishap = lambda operation, _: Mishap(delay_ms=300_000 if operation == "get" else 0)
        others = [await served.client() for _ in range(2)]
        waiting = [asyncio.create_task(other.fetch(at)) for at, other in enumerate(others, start=1)]
        assert served.node.broker is not None
        reads = served.node.broker.tier_reads
        assert reads is not None
        await until(lambda: reads.loads.running + reads.loads.waiting == 2)
        cold, hot = await fetch_both(client, 60_000)
        assert cold.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values_of(hot.records) == [b"hot"]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize("offset", [0, 5])
async def test_a_segment_that_cannot_be_read_is_an_error_of_the_partition_that_passes(offset: int) -> None:
    async with tiering() as (world, served, client):
        await two_topics(served, client)
        kept = dict(world.bucket.objects)
        world.bucket.objects.clear()
        cold, hot = await fetch_both(client, 60_000)
        assert cold.error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)
        assert values_of(hot.records) == [b"hot"]
        part = await client.fetch(offset, max_wait_ms=60_000)
        assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        world.bucket.objects.update(kept)
        world.clock.now_ms += BACKOFF_MS
        part = await client.fetch(offset, max_wait_ms=60_000)
        assert values_of(part.records)[0] == b"%d" % offset + bytes(20)


async def test_monitoring_tells_what_is_read_from_the_tier() -> None:
    async with tiering() as (world, served, client):
        await two_topics(served, client)
        await client.read_all()
        status, page = await served.page("/metrics")
        assert status == 200
        reads = [line for line in page.splitlines() if line.startswith("kafka_log_remote")]
        assert reads == [
            "kafka_log_remote_remotestoragethreadpool_remotelogreadertaskqueuesize 0",
            "kafka_log_remote_remotestoragethreadpool_remotelogreaderavgidlepercent 1.0",
        ]
        fetched = re.search(rf'remotefetchbytes_total{{topic="{TOPIC}"}} (\d+)', page)
        assert fetched is not None and 0 < int(fetched[1]) <= world.bucket.bytes_read


@pytest.mark.parametrize("event", ["guard", "deposed", "epoch"])
async def test_what_forbids_an_answer_while_the_tier_is_asked_is_told(
    event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T8-7."""
    async with tiering() as (world, served, client):
        await two_topics(served, client)
        partition, broker = partition_of(served), served.node.broker
        assert broker is not None
        lookups = broker.tier_lookups
        assert lookups is not None
        world.bucket.mishap = lambda *_: Mishap(delay_ms=60_000)
        asked = ListOffsetsPartition(partition_index=0, timestamp=0, current_leader_epoch=partition.leader_epoch)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])], timeout_ms=120_000)
        lookup = asyncio.create_task(client.ask(request, ListOffsetsResponse, 11))
        await until(lambda: world.bucket.calls.get("get", 0) and lookups.running)
        world.bucket.mishap = lambda *_: Mishap()
        if event == "guard":
            monkeypatch.setattr(k02_list_offsets._Lookup, "_is_withheld", lambda *_: True)
            (running,) = lookups.running
            running.done(None)
            expected = ErrorCode.OFFSET_NOT_AVAILABLE
        elif event == "deposed":
            lookups.ended(partition)
            expected = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            monkeypatch.setattr(partition, "leader_epoch", partition.leader_epoch + 1)
            (running,) = lookups.running
            running.done(None)
            expected = ErrorCode.FENCED_LEADER_EPOCH
        async with asyncio.timeout(30):
            answer = await lookup
        assert answer.topics[0].partitions[0].error_code == expected
