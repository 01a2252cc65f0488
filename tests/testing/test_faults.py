"""What a test can do to the brokers of an embedded cluster."""

import asyncio

import pytest

from headrace.client import Admin, Consumer, NewTopic, Producer
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.testing import CLIENTS, Cluster


async def produce(cluster: Cluster, value: bytes) -> int:
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        return (await producer.send("t", value, partition=0)).offset


async def create(cluster: Cluster, **configs: str) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 2, configs=configs)])


async def test_a_killed_broker_comes_back_with_its_data() -> None:
    async with Cluster() as cluster:
        await create(cluster)
        assert await produce(cluster, b"1") == 0
        cluster.restart(1)
        await cluster.until_serving()
        assert await produce(cluster, b"2") == 1
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            values: list[bytes | None] = []
            while len(values) < 2:
                values += [record.value for record in await consumer.poll(1000)]
        assert values == [b"1", b"2"]


async def test_power_loss_spares_what_was_synced() -> None:
    async with Cluster() as cluster:
        await create(cluster, **{"flush.messages": "1"})
        boot_id = cluster.clock(1).boot_id()
        assert await produce(cluster, b"1") == 0
        cluster.lose_power(1)
        cluster.start(1)
        await cluster.until_serving()
        assert cluster.clock(1).boot_id() != boot_id
        assert await produce(cluster, b"2") == 1


@pytest.mark.parametrize("how", ["pause", "cut"])
async def test_a_broker_that_is_away_answers_when_it_is_back(how: str) -> None:
    async with Cluster() as cluster:
        await create(cluster)
        if how == "pause":
            cluster.pause(1)
        else:
            cluster.cut(1, CLIENTS)
        waiting = asyncio.ensure_future(produce(cluster, b"1"))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        cluster.resume(1)
        cluster.heal()
        assert await waiting == 0


async def test_a_disk_error_of_one_partition_leaves_the_other_alone() -> None:
    async with Cluster() as cluster:
        await create(cluster)
        cluster.fail_disk(1, "t", 1)
        async with Producer(cluster.bootstrap, linger_ms=0, delivery_ms_max=1_000) as producer:
            with pytest.raises(KafkaError):
                await producer.send("t", b"x", partition=1)
            assert (await producer.send("t", b"x", partition=0)).offset == 0


def test_faults_reach_a_cluster_in_its_own_thread() -> None:
    with Cluster() as cluster:
        cluster.kill(1)
        cluster.start(1)
        cluster.wait_until_serving()
        asyncio.run(create(cluster))
        assert asyncio.run(produce(cluster, b"1")) == 0


async def test_whoever_or_whatever_is_not_there_is_refused_in_words() -> None:
    """A test that hits nobody, or the wrong one, would show nothing."""
    with pytest.raises(ValueError, match="at least one broker"):
        Cluster(brokers=0)
    async with Cluster() as cluster:
        for number in (0, 2, -1):
            with pytest.raises(ValueError, match="numbers 1 to 1"):
                cluster.kill(number)
        with pytest.raises(ValueError, match="numbers 1 to 1"):
            cluster.cut(1, 2)
        with pytest.raises(ValueError, match="CLIENTS"):
            cluster.cut(1, "client")
        with pytest.raises(ValueError, match="write, sync, read"):
            cluster.fail_disk(1, operation="fsync")
        with pytest.raises(ValueError, match="runs"):
            cluster.start(1)
