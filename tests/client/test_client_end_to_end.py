"""Producer, Consumer and Admin against a whole broker in this process, over sockets, also when connections break."""

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Collection
from typing import Any

import pytest

from headrace.client import (
    Admin,
    Consumer,
    ConsumerRecord,
    NewTopic,
    Outside,
    Producer,
    Resource,
    ResourceType,
)
from headrace.core.fetching import FetchingSession, Verdict
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.testing import Cluster
from tests.client.lossy import LossyNetwork

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


async def read_all(bootstrap: str, topic: str, outside: Outside | None = None) -> list[ConsumerRecord]:
    """To the end that the topic has now."""
    async with Consumer(bootstrap, outside=outside) as consumer:
        partitions = await consumer.partitions_of(topic)
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        records: list[ConsumerRecord] = []
        async with asyncio.timeout(60):
            while any([await consumer.position(p) < ends[p] for p in partitions]):  # a generator cannot await here
                records += await consumer.poll(1000)
        return records


def by_partition(records: list[ConsumerRecord]) -> dict[int, list[ConsumerRecord]]:
    grouped = defaultdict(list)
    for record in records:
        grouped[record.partition].append(record)
    return grouped


@pytest.mark.parametrize("codec", CODECS)
async def test_what_is_sent_is_read_whole_and_in_order(codec: str) -> None:
    async with Cluster() as cluster, Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 3)])
        async with Producer(cluster.bootstrap, compression=codec, batch_bytes=4_000) as producer:
            futures = [
                producer.send(
                    "t", b"value %d" % n, b"key %d" % (n % 50), timestamp_ms=1_000 + n, headers=[("n", b"%d" % n)]
                )
                for n in range(2_000)
            ]
        stored = [future.result() for future in futures]
        read = {(record.partition, record.offset): record for record in await read_all(cluster.bootstrap, "t")}
        assert len(read) == 2_000
        for n, where in enumerate(stored):
            expected = ConsumerRecord(
                "t",
                where.partition,
                where.offset,
                1_000 + n,
                b"key %d" % (n % 50),
                b"value %d" % n,
                (("n", b"%d" % n),),
            )
            assert read[where.partition, where.offset] == expected


async def test_lost_answers_store_nothing_twice_and_nothing_out_of_order() -> None:
    """Every fifth time that bytes come back, they are lost with their connection."""
    counter = itertools.count(1)
    network = LossyNetwork(lambda: next(counter) % 5 == 0)
    async with Cluster({"num.partitions": "2"}) as cluster:
        async with Producer(
            cluster.bootstrap, linger_ms=0, batch_bytes=500, outside=Outside(network=network)
        ) as producer:
            await producer.send("t", b"first", partition=0)
            futures = []
            for n in range(300):
                futures.append(producer.send("t", b"%d" % n, partition=n % 2))
                await asyncio.sleep(0.002)
            await producer.flush()
        assert network.cut > 3
        offsets = [future.result().offset for future in futures]
        read = by_partition(await read_all(cluster.bootstrap, "t"))
        assert [record.value for record in read[0]] == [b"first", *[b"%d" % n for n in range(0, 300, 2)]]
        assert [record.value for record in read[1]] == [b"%d" % n for n in range(1, 300, 2)]
        assert offsets == [n // 2 + (1 if n % 2 == 0 else 0) for n in range(300)]


async def test_a_consumer_whose_connections_break_reads_each_record_once() -> None:
    chance = random.Random(7)
    network = LossyNetwork(lambda: chance.random() < 0.15)
    async with Cluster({"num.partitions": "4"}) as cluster:
        async with Producer(cluster.bootstrap, batch_bytes=2_000) as producer:
            for n in range(3_000):
                producer.send("t", b"%d" % n, b"%d" % n)
        async with Consumer(
            cluster.bootstrap, max_wait_ms=50, max_bytes=20_000, outside=Outside(network=network)
        ) as consumer:
            consumer.assign(await consumer.partitions_of("t"))
            records: list[ConsumerRecord] = []
            async with asyncio.timeout(60):
                while len(records) < 3_000:
                    records += await consumer.poll(1000)
            assert await consumer.poll(50) == []
        assert network.cut > 3
        for partition in by_partition(records).values():
            assert [record.offset for record in partition] == list(range(len(partition)))


async def test_through_churn_each_record_is_read_once_and_no_session_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    answered = FetchingSession.answered

    def note(
        session: FetchingSession[Any, Any], code: int, session_id: int, keys: Collection[Any], throttled: bool = False
    ) -> Verdict:
        codes.append(code)
        return answered(session, code, session_id, keys, throttled)

    monkeypatch.setattr(FetchingSession, "answered", note)
    chance = random.Random(3)
    everything = [TopicPartition("t", n) for n in range(20)]
    positions = dict.fromkeys(everything, 0)
    sent = dict.fromkeys(everything, 0)
    async with (
        Cluster({"num.partitions": "20"}) as cluster,
        Producer(cluster.bootstrap, linger_ms=1) as producer,
        Consumer(cluster.bootstrap, max_wait_ms=20, max_bytes=20_000, max_partition_bytes=2_000) as consumer,
    ):
        await producer.partitions_of("t")
        assigned = set(chance.sample(everything, 10))
        consumer.assign(assigned)
        rounds = read = 0
        while rounds < 300 or read < 500:  # a busy machine reads less in each round
            rounds += 1
            for partition in chance.choices(everything, k=15):
                producer.send("t", b"%d" % sent[partition], partition=partition.partition)
                sent[partition] += 1
            for record in await consumer.poll(2):
                partition = TopicPartition(record.topic, record.partition)
                assert partition in assigned and record.offset == positions[partition]
                assert record.value == b"%d" % record.offset
                positions[partition] += 1
                read += 1
            if chance.random() < 0.2:
                changed = set(chance.sample(everything, 3))
                for partition in assigned & changed:
                    positions[partition] = 0
                assigned ^= changed
                consumer.assign(assigned)
            if chance.random() < 0.2:
                partition = chance.choice(sorted(assigned))
                positions[partition] = chance.randint(0, positions[partition])
                consumer.seek(partition, positions[partition])
            if chance.random() < 0.1:
                partition = chance.choice(sorted(assigned))
                consumer.pause([partition])
                consumer.resume([partition])
    assert set(codes) == {0} and len(codes) > 30


async def test_topics_and_settings_are_made_changed_and_deleted() -> None:
    async with Cluster() as cluster, Admin(cluster.bootstrap) as admin:
        (created,) = await admin.create_topics([NewTopic("t", 2, configs={"retention.ms": "60000"})])
        assert (created.name, created.partitions) == ("t", 2)
        with pytest.raises(KafkaError, match="topic 't' was not created"):
            await admin.create_topics([NewTopic("t")])
        await admin.create_topics([NewTopic("checked")], validate_only=True)
        assert await admin.list_topics() == ["t"]
        await admin.create_partitions({"t": 5})
        (described,) = await admin.describe_topics(["t"])
        assert [p.partition for p in described.partitions] == list(range(5))
        assert described.topic_id == created.topic_id and described.partitions[0].leader == 1
        topic = Resource(ResourceType.TOPIC, "t")
        await admin.alter_configs(topic, set={"retention.bytes": "1000000"}, delete=["retention.ms"])
        settings = {entry.name: entry.value for entry in (await admin.describe_configs([topic]))[topic]}
        assert settings["retention.bytes"] == "1000000" and settings["retention.ms"] == "604800000"
        with pytest.raises(KafkaError, match="settings of topic 't' were not changed") as caught:
            await admin.alter_configs(topic, set={"retention.ms": "soon"})
        assert caught.value.code == ErrorCode.INVALID_CONFIG
        await admin.delete_topics(["t"])
        assert await admin.list_topics() == []
        with pytest.raises(KafkaError, match="topic 't' does not exist"):
            await admin.describe_topics(["t"])


async def test_a_cluster_and_its_disks_are_described() -> None:
    async with Cluster() as cluster, Admin(cluster.bootstrap) as admin:
        described = await admin.describe_cluster()
        assert [f"{broker.host}:{broker.port}" for broker in described.brokers] == [cluster.bootstrap]
        await admin.create_topics([NewTopic("t", 1)])
        async with Producer(cluster.bootstrap) as producer:
            await producer.send("t", bytes(10_000))
        sizes = [p.size_bytes for d in await admin.describe_log_dirs() for p in d.partitions if p.topic == "t"]
        assert len(sizes) == 1 and sizes[0] > 10_000
        broker = Resource(ResourceType.BROKER, str(described.brokers[0].node_id))
        assert any(entry.name == "num.partitions" for entry in (await admin.describe_configs([broker]))[broker])


async def test_deleted_records_are_gone_and_times_find_offsets() -> None:
    t0 = TopicPartition("t", 0)
    async with Cluster() as cluster, Admin(cluster.bootstrap) as admin, Consumer(cluster.bootstrap) as consumer:
        await admin.create_topics([NewTopic("t", 1)])
        async with Producer(cluster.bootstrap) as producer:
            for n in range(10):
                producer.send("t", b"%d" % n, timestamp_ms=1_000 * n)
        found = await consumer.offsets_for_times({t0: 4_500})
        hit = found[t0]
        assert hit is not None and (hit.offset, hit.timestamp) == (5, 5_000)
        assert (await consumer.offsets_for_times({t0: 99_000}))[t0] is None
        assert await admin.delete_records({t0: 4}) == {t0: 4}
        assert await consumer.beginning_offsets([t0]) == {t0: 4}
        consumer.assign([t0])
        consumer.seek(t0, 1)
        records = await consumer.poll(10_000)
        assert records[0].offset == 4


async def test_an_unknown_topic_is_named() -> None:
    async with Cluster({"auto.create.topics.enable": "false"}) as cluster, Admin(cluster.bootstrap) as admin:
        with pytest.raises(KafkaError, match="topic 'nowhere'"):
            await admin.describe_topics(["nowhere"])
        with pytest.raises(KafkaError, match="topic 'nowhere' does not exist"):
            await admin.delete_topics(["nowhere"])


async def test_a_busy_node_stops_cleanly_under_its_clients() -> None:
    """Nobody hangs, and each record is either acknowledged or failed with a sentence."""
    async with Cluster() as cluster:
        bootstrap = cluster.bootstrap
        producer = await Producer(bootstrap, delivery_ms_max=500, linger_ms=0).__aenter__()
        await producer.send("t", b"first")
        consumer = await Consumer(bootstrap, max_wait_ms=60_000).__aenter__()
        consumer.assign(await consumer.partitions_of("t"))
        assert len(await consumer.poll(10_000)) == 1
        futures = [producer.send("t", b"%d" % n) for n in range(100)]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert all(isinstance(result, KafkaError) or not isinstance(result, BaseException) for result in results)
    await producer.__aexit__(None, None, None)
    await consumer.__aexit__(None, None, None)
