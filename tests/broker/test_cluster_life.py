"""Clusters that replicate: shutdowns, deleted records and topics, and a store that is away. Scenarios by their ids."""

import asyncio

import pytest

from headrace.client import Producer
from headrace.errors import ErrorCode
from headrace.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.broker.asking import EARLIEST, TOPIC, records_of
from tests.broker.trio import Trio, play


class Load:
    """An idempotent producer that waits for each acknowledgement, and what it was told."""

    def __init__(self, trio: Trio, pause_s: float = 0.02) -> None:
        self.acked: list[tuple[int, bytes]] = []
        self.is_over = False
        self._trio = trio
        self._pause_s = pause_s

    async def run(self) -> None:
        number = 0
        async with Producer(self._trio.world.bootstrap, outside=self._trio.outside, linger_ms=1) as producer:
            while not self.is_over:
                value = b"%d" % number
                told = await producer.send(TOPIC, value, partition=0)
                self.acked.append((told.offset, value))
                number += 1
                await asyncio.sleep(self._pause_s)

    async def is_all_there(self) -> bool:
        """Once each, where the producer was told."""
        await self._trio.until(lambda: self._trio.record().leader > 0)
        leader = self._trio.record().leader
        await self._trio.leads(leader)
        client = await self._trio.client(leader)
        partition = self._trio.partition(leader)
        await self._trio.until(lambda: partition.high_watermark == partition.log_end_offset)
        values = await client.read_all()
        return len(values) == len(self.acked) and all(values[offset] == value for offset, value in self.acked)


def test_tsm_1_a_shutdown_under_load_shows_an_idempotent_producer_no_error() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings={"min.insync.replicas": "2"})
        load = Load(trio)
        loading = asyncio.create_task(load.run())
        for _ in range(2):
            await asyncio.sleep(2)
            leader = trio.record().leader
            node = trio.world.nodes[leader - 1]
            began_s = trio.world.loop.now_s
            await node.stop()
            assert trio.world.loop.now_s - began_s < 10
            assert trio.record().leader not in (leader, -1)
            await asyncio.sleep(2)
            node.start()
            await trio.serves(leader)
            await trio.until(lambda: len(trio.record().isr) == 3)
        load.is_over = True
        await loading
        assert len(load.acked) > 100
        assert await load.is_all_there()

    play(scenario, replicates=True)


def test_a_killed_leader_is_replaced_when_its_lease_ends_and_its_records_survive() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3])
        load = Load(trio)
        loading = asyncio.create_task(load.run())
        await asyncio.sleep(3)
        leader = trio.record().leader
        trio.world.nodes[leader - 1].kill()
        await trio.until(lambda: trio.record().leader not in (leader, -1), 30)
        before = len(load.acked)
        await trio.until(lambda: len(load.acked) > before + 20)
        trio.world.nodes[leader - 1].start()
        await trio.until(lambda: len(trio.record().isr) == 3)
        load.is_over = True
        await loading
        assert await load.is_all_there()

    play(scenario, replicates=True)


def test_tsm_3_the_log_start_never_falls_for_a_client() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3])
        leader = trio.record().leader
        client = await trio.client(leader)
        for number in range(10):
            assert (await client.produce(records_of([b"%d" % number]))).error_code == 0
        asked = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=7)])
        request = DeleteRecordsRequest(topics=[asked], timeout_ms=10_000)
        answer = await client.ask(request, DeleteRecordsResponse)
        assert (answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].low_watermark) == (0, 7)
        assert all(trio.partition(n).log_start_offset == 7 for n in (1, 2, 3))
        follower = next(n for n in (1, 2, 3) if n != leader)
        await trio.restart(follower)
        await trio.until(lambda: len(trio.record().isr) == 3)
        await trio.until(lambda: trio.partition(follower).log_start_offset == 7)
        trio.world.nodes[leader - 1].kill()
        await trio.until(lambda: trio.record().leader not in (leader, -1), 30)
        new_leader = trio.record().leader
        await trio.leads(new_leader)
        client = await trio.client(new_leader)
        await trio.until(lambda: not trio.partition(new_leader).is_list_guarded)
        assert await client.offset(EARLIEST) == 7

    play(scenario, replicates=True)


def test_tsm_4_a_topic_deleted_and_created_again_under_traffic_is_empty_and_whole() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3])
        async with Producer(trio.world.bootstrap, outside=trio.outside, linger_ms=1) as producer:
            for number in range(20):
                await producer.send(TOPIC, b"old %d" % number, partition=0)
            client = await trio.client(2)
            await client.delete_topic()
            await trio.until(lambda: not any(TOPIC in trio.broker(n).image.topics for n in (1, 2, 3)))
            await trio.topic([2, 3, 1])
            told = [await producer.send(TOPIC, b"new %d" % number, partition=0) for number in range(20)]
        assert [one.offset for one in told] == list(range(20))
        leader = await trio.client(2)
        assert await leader.read_all() == [b"new %d" % number for number in range(20)]
        await trio.until(lambda: all(trio.partition(n).log_end_offset == 20 for n in (1, 2, 3)))

    play(scenario, replicates=True)


def test_t6_9_without_the_store_nothing_that_is_stable_changes() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings={"min.insync.replicas": "2"})
        load = Load(trio, pause_s=0.2)
        loading = asyncio.create_task(load.run())
        await asyncio.sleep(2)
        before = trio.record()
        for n in (1, 2, 3):
            trio.store(n).unavailable = True
        began = len(load.acked)
        for _ in range(60):
            acked = len(load.acked)
            await asyncio.sleep(1)
            assert len(load.acked) > acked + 2
        assert trio.record() == before and len(load.acked) > began + 200
        for n in (1, 2, 3):
            trio.store(n).unavailable = False
        await trio.until(lambda: all(trio.broker(n).controller.lease_valid() for n in (1, 2, 3)))
        await asyncio.sleep(20)
        load.is_over = True
        await loading
        assert len(trio.record().isr) == 3
        assert await load.is_all_there()

    play(scenario, replicates=True)


def test_an_isolated_leader_acknowledges_nothing_and_loses_what_nobody_else_has() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3])
        leader = next(n for n in (1, 2, 3) if n != trio.controller_id)
        if trio.record().leader != leader:
            await trio.topic([leader, *(n for n in (1, 2, 3) if n != leader)], name="isolated")
        name = TOPIC if trio.record().leader == leader else "isolated"
        client = await trio.client(leader)
        assert (await client.produce(records_of([b"kept"]), topic=name)).error_code == 0
        others = [n for n in (1, 2, 3) if n != leader]
        for other in others:
            trio.world.network.cut(f"node{leader}", f"node{other}")
            trio.world.network.cut(f"node{other}", f"node{leader}")
        trio.store(leader).unavailable = True
        lost = client.send(records_of([b"lost"]), topic=name, timeout_ms=100_000)
        beside = await trio.client(leader)
        assert (await beside.produce(records_of([b"lost too"]), topic=name, acks=1)).error_code == 0
        await trio.until(lambda: trio.record(name=name).leader not in (leader, -1), 40)
        new_leader = trio.record(name=name).leader
        await trio.leads(new_leader, name=name)
        other_client = await trio.client(new_leader)
        assert (await other_client.produce(records_of([b"new"]), topic=name)).error_code == 0
        assert not lost.done()
        trio.world.network.heal_all()
        trio.store(leader).unavailable = False
        told = (await lost).responses[0].partition_responses[0]
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await trio.until(lambda: len(trio.record(name=name).isr) == 3)
        assert trio.partition(leader, name=name).log_end_offset == 2
        assert await other_client.read_all(topic=name) == [b"kept", b"new"]

    play(scenario, replicates=True)


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_node_that_cannot_tell_the_store_of_its_end_ends_all_the_same(is_slow: bool) -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3])
        for n in (1, 2, 3):
            if is_slow:
                trio.store(n).delay_ms = 1_000_000
            else:
                trio.store(n).unavailable = True
        began_s = trio.world.loop.now_s
        await trio.world.nodes[0].stop()
        assert trio.world.loop.now_s - began_s < 10
        assert trio.world.nodes[0].machine.files.exists("/data1/logs/.kafka_cleanshutdown")

    play(scenario, replicates=True)
