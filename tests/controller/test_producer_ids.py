"""Producer ids: never one twice, whatever the store does."""

import asyncio
import random

from headrace.controller.producer_ids import BLOCK, ProducerIds
from headrace.metadata import records
from headrace.metadata.memory import Fault, MemoryData, MemoryStore
from headrace.metadata.store import Put


def next_in_store(data: MemoryData) -> int:
    (kv,) = data.load(records.PRODUCER_IDS_KEY).kvs
    return records.decode(records.ProducerIdsRecord, kv.key, kv.value).next


async def take(ids: ProducerIds, count: int) -> list[int]:
    taken = [await ids.next() for _ in range(count)]
    assert None not in taken
    return [producer_id for producer_id in taken if producer_id is not None]


async def test_ids_are_given_from_memory_a_block_at_a_time() -> None:
    store = MemoryStore()
    ids = ProducerIds(store)
    assert await take(ids, 3) == [0, 1, 2]
    assert next_in_store(store.data) == BLOCK
    await ids.close()


async def test_two_nodes_never_give_the_same_id() -> None:
    data = MemoryData()
    nodes = [ProducerIds(MemoryStore(data)), ProducerIds(MemoryStore(data))]
    taken = [await node.next() for _ in range(3 * BLOCK) for node in nodes]
    assert None not in taken
    assert len(set(taken)) == 6 * BLOCK
    for node in nodes:
        await node.close()


async def test_no_id_of_a_million_is_given_twice_while_the_store_fails_in_every_way() -> None:
    """Tidem-9."""
    data, chance = MemoryData(), random.Random(7)
    stores = [MemoryStore(data), MemoryStore(data)]
    nodes = [ProducerIds(store) for store in stores]
    taken: set[int] = set()
    turn = refused = 0
    while len(taken) < 1_000_000:
        n = chance.randrange(2)
        if turn % 100 == 0:
            stores[n].unavailable = chance.random() < 0.2
            stores[n].faults.append(chance.choice([None, None, *Fault]))
            stores[1 - n].apply_late()
        turn += 1
        producer_id = await nodes[n].next()
        if producer_id is None:
            refused += 1
        else:
            assert producer_id not in taken
            taken.add(producer_id)
    assert refused
    for node in nodes:
        await node.close()


async def test_a_restarted_node_does_not_use_the_rest_of_its_block() -> None:
    data = MemoryData()
    first = ProducerIds(MemoryStore(data))
    assert await first.next() == 0
    await first.close()
    second = ProducerIds(MemoryStore(data))
    assert await second.next() == BLOCK
    await second.close()


async def test_the_next_block_is_fetched_before_the_last_one_ends() -> None:
    store = MemoryStore()
    ids = ProducerIds(store)
    await take(ids, BLOCK * 9 // 10)
    assert next_in_store(store.data) == BLOCK
    await take(ids, 2)
    for _ in range(10):
        await asyncio.sleep(0)  # the fetch runs beside us
    assert next_in_store(store.data) == 2 * BLOCK
    store.unavailable = True
    assert await take(ids, 1000) == list(range(902, 1902))
    await ids.close()


async def test_without_a_store_the_block_in_memory_is_used_up_then_there_is_none() -> None:
    store = MemoryStore()
    ids = ProducerIds(store)
    await take(ids, 1)
    store.unavailable = True
    await take(ids, BLOCK - 1)
    assert await ids.next() is None
    store.unavailable = False
    assert await ids.next() == BLOCK
    await ids.close()


async def test_a_block_in_doubt_is_thrown_away() -> None:
    for fault in (Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_DROPPED, Fault.UNKNOWN_LATE):
        store = MemoryStore()
        store.faults.append(fault)
        ids = ProducerIds(store)
        mine = await take(ids, 5)
        assert mine[0] == (BLOCK if fault is Fault.UNKNOWN_APPLIED else 0)
        store.apply_late()  # its compare no longer holds
        other = ProducerIds(MemoryStore(store.data))
        assert await other.next() == mine[0] + BLOCK
        await ids.close()
        await other.close()


async def test_more_callers_than_a_block_holds_are_all_served() -> None:
    ids = ProducerIds(MemoryStore())
    taken = await asyncio.gather(*(ids.next() for _ in range(2 * BLOCK + 500)))
    assert sorted(producer_id for producer_id in taken if producer_id is not None) == list(range(2 * BLOCK + 500))
    await ids.close()


async def test_the_last_ids_are_not_wrapped_round() -> None:
    store = MemoryStore()
    record = records.encode(records.ProducerIdsRecord(2**63 - 10))
    store.data.txn([], [Put(records.PRODUCER_IDS_KEY, record)], [])
    ids = ProducerIds(store)
    assert await ids.next() is None
    await ids.close()
