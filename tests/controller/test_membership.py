"""Registrations and leaderships: every incarnation of a node appends under epochs of its own."""

import asyncio

import pytest

from headrace.controller.topics import NewTopic
from headrace.core.cluster import IsrMember
from headrace.metadata import records
from headrace.metadata.memory import Fault, MemoryData, MemoryStore
from headrace.metadata.store import Lease, MetadataStoreError, NotOffered
from tests.controller.world import check_image, started


async def test_a_broker_has_the_epoch_of_the_revision_that_registered_it() -> None:
    store = MemoryStore()
    controller = await started(store)
    (kv,) = store.data.load(records.broker_key(1)).kvs
    broker = controller.image.brokers[1]
    assert (broker.epoch, broker.host, broker.port) == (kv.create_rev, "127.0.0.1", 9092)


async def test_every_start_is_a_new_registration() -> None:
    data = MemoryData()
    first = (await started(MemoryStore(data))).image.brokers[1].epoch
    second = (await started(MemoryStore(data))).image.brokers[1].epoch
    assert second > first
    assert len(data.load(records.BROKERS).kvs) == 1


async def test_registration_leaves_brokers_whose_number_begins_alike() -> None:
    data = MemoryData()
    await started(MemoryStore(data), node_id=10)
    await started(MemoryStore(data), node_id=1)
    assert [kv.key for kv in data.load(records.BROKERS).kvs] == [b"/b/1", b"/b/10"]


async def test_a_stopped_node_takes_its_registration_back() -> None:
    store = MemoryStore()
    controller = await started(store)
    await controller.stop()
    assert store.data.load(records.BROKERS).kvs == []


async def test_a_restarted_node_leads_under_a_new_epoch_with_its_new_registration() -> None:
    data = MemoryData()
    first = await started(MemoryStore(data))
    await first.create_topics([NewTopic("t", 300), NewTopic("u", 2)])
    assert {record.leader_epoch for record in first.image.topics["t"].partitions} == {0}
    second = await started(MemoryStore(data))
    for topic in second.image.topics.values():
        for record in topic.partitions:
            assert (record.leader_epoch, record.partition_epoch) == (1, 1)
            assert record.isr == (IsrMember(1, second.image.brokers[1].epoch),)
    assert len({id(record) for record in second.image.topics["t"].partitions}) == 1
    check_image(second.image, data)


async def test_partitions_of_other_leaders_are_left_alone() -> None:
    data = MemoryData()
    first = await started(MemoryStore(data))
    await first.create_topics([NewTopic("t", 2)])
    second = await started(MemoryStore(data), node_id=2)
    assert {record.leader_epoch for record in second.image.topics["t"].partitions} == {0}


async def test_leaderships_are_taken_through_failures_of_the_store() -> None:
    for fault in Fault:
        data = MemoryData()
        await (await started(MemoryStore(data))).create_topics([NewTopic("t", 500)])
        store = MemoryStore(data)
        store.faults.extend([None, None, None, fault, None, fault])
        restarted = await started(store)
        assert not store.faults
        store.apply_late()
        epochs = {record.leader_epoch for record in restarted.image.topics["t"].partitions}
        assert epochs == {1}, fault
        check_image(restarted.image, data)


class StoreOfLongLeases(MemoryStore):
    async def grant(self, ttl_ms: int, beat_ms: int) -> Lease:
        del beat_ms
        raise NotOffered(f"A lease of {ttl_ms} ms is too short")


async def test_a_session_that_the_store_never_grants_is_refused_at_once() -> None:
    async with asyncio.timeout(10):
        with pytest.raises(MetadataStoreError, match=r"broker\.session\.timeout\.ms cannot be had: A lease of 9000 ms"):
            await started(StoreOfLongLeases())
