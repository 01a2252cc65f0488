"""The store in memory fails as it is told: what the tests of nodes and the simulator stand on."""

import asyncio
import contextlib

import pytest

from headrace.metadata.memory import Fault, MemoryData, MemoryStore
from headrace.metadata.store import Cmp, MetadataStoreError, OutcomeUnknown, Put
from tests.broker.stepped import SteppedClock
from tests.metadata.conftest import until


async def outcome(store: MemoryStore, key: bytes) -> str:
    try:
        return str((await store.txn([Cmp(key, 0)], [Put(key, b"")])).ok)
    except (OutcomeUnknown, MetadataStoreError) as error:
        return type(error).__name__


async def test_transactions_fail_on_demand() -> None:
    store = MemoryStore()
    store.faults.extend(
        [Fault.UNAVAILABLE, Fault.UNKNOWN_DROPPED, None, Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_LATE, Fault.UNKNOWN_LATE]
    )
    assert [await outcome(store, key) for key in (b"a", b"b", b"c", b"d", b"e", b"c")] == [
        "MetadataStoreError",
        "OutcomeUnknown",
        "True",
        "OutcomeUnknown",
        "OutcomeUnknown",
        "OutcomeUnknown",
    ]
    assert [kv.key for kv in (await store.load(b"")).kvs] == [b"c", b"d"]
    assert store.apply_late() == [True, False]
    assert [kv.key for kv in (await store.load(b"")).kvs] == [b"c", b"d", b"e"]


async def test_a_late_transaction_comes_by_itself_though_its_node_is_gone() -> None:
    data = MemoryData()
    store = MemoryStore(data)
    store.late_ms = 20
    store.faults.append(Fault.UNKNOWN_LATE_BY_ITSELF)
    assert await outcome(store, b"k") == "OutcomeUnknown"
    assert data.rev == 0
    await store.close()
    await until(lambda: data.rev == 1)


async def test_a_transaction_that_comes_twice_finds_what_the_first_one_did() -> None:
    """A copy changes nothing while the key is there, and makes it again when somebody has deleted it."""
    data = MemoryData()
    store = MemoryStore(data)
    store.late_ms = 20
    for key in (b"kept", b"deleted"):
        store.faults.append(Fault.UNKNOWN_TWICE)
        assert await outcome(store, key) == "OutcomeUnknown"
    assert (await store.txn([Cmp(b"deleted", 2)], deletes=[b"deleted"])).ok
    assert data.rev == 3
    await until(lambda: data.rev == 4)
    await asyncio.sleep(0.05)
    assert [(kv.key, kv.mod_rev) for kv in data.load(b"").kvs] == [(b"deleted", 4), (b"kept", 1)]
    await store.close()


async def test_others_run_before_an_operation_is_answered() -> None:
    store = MemoryStore()
    seen: list[str] = []

    async def write() -> None:
        await store.txn([Cmp(b"a", 0)], [Put(b"a", b"")])
        seen.append("written")

    task = asyncio.create_task(write())
    await asyncio.sleep(0)
    seen.append("meanwhile")
    await task
    assert seen == ["meanwhile", "written"]


async def test_an_operation_takes_as_long_as_it_is_told() -> None:
    data = MemoryData()
    slow = MemoryStore(data)
    slow.delay_ms = 100
    began = asyncio.get_running_loop().time()
    assert (await slow.txn([Cmp(b"k", 0)], [Put(b"k", b"")])).ok
    assert asyncio.get_running_loop().time() - began >= 0.1


@pytest.mark.parametrize("fault", ["held", "unavailable"])
async def test_a_watch_that_is_held_back_tells_all_when_it_is_let_go(fault: str) -> None:
    data = MemoryData()
    store, other = MemoryStore(data), MemoryStore(data)
    if fault == "held":
        store.hold_watch()
    else:
        store.unavailable = True
    async with contextlib.aclosing(store.watch(b"", 0)) as watch:
        first = asyncio.ensure_future(anext(watch))
        for key in (b"a", b"b"):
            await other.txn([Cmp(key, 0)], [Put(key, b"")])
        await asyncio.wait([first], timeout=0.05)
        assert not first.done()
        store.hold_watch(False)
        store.unavailable = False
        assert [(await first).rev, (await anext(watch)).rev] == [1, 2]


async def test_a_watch_that_is_woken_for_nothing_tells_nothing() -> None:
    store = MemoryStore()
    async with contextlib.aclosing(store.watch(b"", 0)) as watch:
        first = asyncio.ensure_future(anext(watch))
        for _ in range(10):
            store.wake_watches()
            await asyncio.sleep(0.001)
        assert not first.done()
        await store.txn([Cmp(b"k", 0)], [Put(b"k", b"")])
        store.wake_watches()
        assert (await first).rev == 1


async def test_a_lease_whose_beats_are_lost_is_invalid_before_others_see_it_expire() -> None:
    clock = SteppedClock()
    data = MemoryData(clock)
    holder, other = MemoryStore(data, clock), MemoryStore(data, clock)
    lease = await holder.grant(9_000, 5)
    await holder.txn([Cmp(b"k", 0)], [Put(b"k", b"", lease.id)])
    clock.now_ms += 1_000
    await until(lambda: lease.beat_sent_ms == clock.now_ms)
    holder.beats_lost = True
    clock.now_ms += 8_437
    assert lease.is_valid(clock.boot_ms())
    clock.now_ms += 1
    assert not lease.is_valid(clock.boot_ms())
    clock.now_ms += 561
    assert (await other.load(b"k")).kvs != []
    clock.now_ms += 1
    assert (await other.load(b"k")).kvs == []
    assert not lease.lost.is_set()
    holder.beats_lost = False
    await asyncio.wait_for(lease.lost.wait(), 60)


async def test_a_revoke_fails_on_demand() -> None:
    store = MemoryStore()
    store.revoke_faults.extend([Fault.UNAVAILABLE, Fault.UNKNOWN_DROPPED, Fault.UNKNOWN_APPLIED])
    lease = await store.grant(9_000, 1_000)
    await store.txn([Cmp(b"k", 0)], [Put(b"k", b"", lease.id)])
    with pytest.raises(MetadataStoreError):
        await store.revoke(lease.id)
    assert not lease.is_valid(lease.beat_sent_ms)
    with pytest.raises(OutcomeUnknown):
        await store.revoke(lease.id)
    assert b"k" in store.data.kvs
    with pytest.raises(OutcomeUnknown):
        await store.revoke(lease.id)
    assert store.data.kvs == {}
