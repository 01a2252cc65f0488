"""How leases live and end, in every metadata store."""

import asyncio
import contextlib

import pytest

from headrace.metadata.store import Cmp, Lease, MetadataStoreError, MetaStore, Put
from headrace.system import SystemClock
from tests.metadata.conftest import DEADLINE_S, Opener, until

TTL_MS = 2_000


async def test_revoking_a_lease_deletes_its_keys_in_one_revision(opener: Opener) -> None:
    store, other = await opener(), await opener()
    lease = await store.grant(TTL_MS, 500)
    _, rev = await store.txn(
        [Cmp(b"/a", 0), Cmp(b"/b", 0), Cmp(b"/c", 0)],
        [Put(b"/a", b"", lease.id), Put(b"/b", b"", lease.id), Put(b"/c", b"")],
    )
    async with contextlib.aclosing(other.watch(b"/", rev)) as watch, asyncio.timeout(DEADLINE_S):
        await store.revoke(lease.id)
        told = await anext(watch)
    assert [(event.key, event.value) for event in told.events] == [(b"/a", None), (b"/b", None)]
    assert [kv.key for kv in (await store.load(b"")).kvs] == [b"/c"]
    assert not lease.is_valid(lease.beat_sent_ms)


async def test_revoking_a_lease_that_nobody_knows_is_no_error(store: MetaStore) -> None:
    rev = (await store.load(b"")).rev
    lease = await store.grant(TTL_MS, 500)
    await store.revoke(lease.id)
    await store.revoke(lease.id)
    assert (await store.load(b"")).rev == rev


async def test_a_lease_that_nobody_keeps_runs_out_and_its_keys_go(opener: Opener) -> None:
    store, other = await opener(), await opener()
    lease = await store.grant(TTL_MS, 100)
    _, rev = await store.txn([Cmp(b"/b/1", 0)], [Put(b"/b/1", b"", lease.id)])
    await store.close()
    async with contextlib.aclosing(other.watch(b"/b/", rev)) as watch, asyncio.timeout(DEADLINE_S):
        told = await anext(watch)
    assert [(event.key, event.value) for event in told.events] == [(b"/b/1", None)]


async def test_a_lease_is_gone_for_whoever_asks_though_nobody_watched(opener: Opener) -> None:
    store, other = await opener(), await opener()
    lease = await store.grant(TTL_MS, 100)
    await store.txn([Cmp(b"k", 0)], [Put(b"k", b"", lease.id)])
    await store.close()
    async with asyncio.timeout(DEADLINE_S):
        while (await other.load(b"k")).kvs:  # noqa: ASYNC110  # to be asked is what is tested
            await asyncio.sleep(0.05)
    assert (await other.txn([Cmp(b"k", 0)], [Put(b"k", b"")])).ok


async def test_a_lease_that_is_kept_outlives_its_time(store: MetaStore) -> None:
    lease = await store.grant(TTL_MS, 100)
    granted_ms = lease.beat_sent_ms
    await store.txn([Cmp(b"k", 0)], [Put(b"k", b"", lease.id)])
    await until(lambda: lease.beat_sent_ms > granted_ms + 2 * TTL_MS)
    assert lease.is_valid(lease.beat_sent_ms)
    assert not lease.lost.is_set()
    assert [kv.key for kv in (await store.load(b"")).kvs] == [b"k"]


async def test_the_holder_of_a_lease_hears_that_another_revoked_it(opener: Opener) -> None:
    store, other = await opener(), await opener()
    lease = await store.grant(TTL_MS, 100)
    assert lease.is_valid(SystemClock().boot_ms())
    await other.revoke(lease.id)
    await asyncio.wait_for(lease.lost.wait(), DEADLINE_S)
    assert not lease.is_valid(lease.beat_sent_ms)


async def test_nothing_is_written_under_a_lease_that_is_gone(store: MetaStore) -> None:
    lease = await store.grant(TTL_MS, 100)
    await store.revoke(lease.id)
    rev = (await store.load(b"")).rev
    with pytest.raises(MetadataStoreError):
        await store.txn([Cmp(b"a", 0), Cmp(b"b", 0)], [Put(b"a", b""), Put(b"b", b"", lease.id)])
    assert await store.load(b"") == ([], rev)


async def test_a_key_that_is_written_without_the_lease_stays_when_the_lease_goes(store: MetaStore) -> None:
    lease = await store.grant(TTL_MS, 100)
    _, rev = await store.txn([Cmp(b"k", 0)], [Put(b"k", b"1", lease.id)])
    await store.txn([Cmp(b"k", rev)], [Put(b"k", b"2")])
    await store.revoke(lease.id)
    assert [kv.value for kv in (await store.load(b"k")).kvs] == [b"2"]


async def test_a_closed_store_grants_no_lease(store: MetaStore) -> None:
    await store.close()
    with pytest.raises(MetadataStoreError, match="closed"):
        await store.grant(TTL_MS, 100)


@pytest.mark.parametrize(("ttl_ms", "valid_ms"), [(1_000, 500), (8_000, 7_500), (9_000, 8_438), (32_000, 30_000)])
async def test_a_lease_is_valid_from_the_sending_of_its_last_beat_with_a_margin(ttl_ms: int, valid_ms: int) -> None:
    lease = Lease(1, ttl_ms, beat_sent_ms=70_000)
    assert lease.is_valid(70_000 + valid_ms - 1)
    assert not lease.is_valid(70_000 + valid_ms)
    lease.lost.set()
    assert not lease.is_valid(70_000)
