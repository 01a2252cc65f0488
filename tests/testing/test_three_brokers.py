"""Three embedded brokers: leaders that change, replicas that do not know what is committed, disks of one partition."""

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Admin, Consumer, NewTopic, Producer
from headrace.model import TopicPartition
from headrace.testing import Cluster

QUICK = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "TESTING.md"
T0 = TopicPartition("t", 0)


async def create(cluster: Cluster, **configs: str) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 2, 3, configs={"min.insync.replicas": "2", **configs})])


async def produce(cluster: Cluster, value: bytes, partition: int = 0) -> int:
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        return (await producer.send("t", value, partition=partition)).offset


async def test_the_example_of_the_documentation_works() -> None:
    (example,) = [
        block for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S) if "test_" in block
    ]
    names: dict[str, Any] = {}
    exec(compile(example, str(PAGE), "exec"), names)
    await names["test_no_order_is_lost_or_counted_twice_when_the_leader_changes"]()


async def test_a_killed_leader_is_followed_by_another_and_comes_back_in_sync() -> None:
    async with Cluster(QUICK, brokers=3) as cluster:
        await create(cluster)
        assert await produce(cluster, b"1") == 0
        first = cluster.leader("t", 0)
        assert first is not None
        cluster.kill(first)
        assert await produce(cluster, b"2") == 1
        assert cluster.leader("t", 0) not in (first, None)
        cluster.start(first)
        await cluster.until(lambda: cluster.in_sync("t", 0) == {1, 2, 3})


def test_brokers_in_a_thread_can_be_waited_for_too() -> None:
    """For programs that know nothing of event loops."""
    with Cluster(QUICK, brokers=3) as cluster:
        asyncio.run(create(cluster))
        assert asyncio.run(produce(cluster, b"1")) == 0
        first = cluster.leader("t", 0)
        assert first is not None
        cluster.kill(first)
        cluster.wait_until(lambda: cluster.leader("t", 0) not in (first, None))
        cluster.start(first)
        cluster.wait_until_serving()
        cluster.wait_until(lambda: cluster.in_sync("t", 0) == {1, 2, 3})
        done_by: list[str] = []
        cluster.do(lambda: done_by.append(threading.current_thread().name))
        assert done_by == ["headrace-testing"]
        cluster.do(cluster.store(first).hold_watch)
        with pytest.raises(TimeoutError):
            cluster.wait_until(lambda: False, within_s=0.05)
        assert asyncio.run(produce(cluster, b"2")) == 1


async def test_a_leader_that_does_not_know_what_is_committed_tells_no_offsets() -> None:
    async with Cluster(QUICK, brokers=3) as cluster:
        await create(cluster)
        assert await produce(cluster, b"1") == 0
        first = cluster.leader("t", 0)
        assert first is not None
        for broker in {1, 2, 3} - {first}:
            cluster.hold_high_watermark(broker)
        assert await produce(cluster, b"2") == 1
        others = sorted({1, 2, 3} - {first})
        cluster.cut(*others)
        cluster.kill(first)
        await cluster.until(lambda: cluster.leader("t", 0) not in (first, None))
        async with Consumer(cluster.bootstrap) as consumer:
            asking = asyncio.ensure_future(consumer.end_offsets([T0]))
            done, _ = await asyncio.wait([asking], timeout=0.5)
            assert not done
            cluster.heal()
            assert (await asking)[T0] == 2


async def test_a_slow_disk_of_one_partition_leaves_the_other_alone() -> None:
    async with Cluster(QUICK, brokers=3) as cluster:
        await create(cluster, **{"flush.messages": "1"})
        leader = cluster.leader("t", 1)
        assert leader is not None
        cluster.slow_disk(leader, 1e6, "t", 1)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            slow = producer.send("t", b"slow", partition=1)
            assert (await producer.send("t", b"1", partition=0)).offset == 0
            assert not slow.done()
            cluster.kill(leader)
            assert (await slow).offset == 0
