"""An etcd cluster whose members die and hang: nothing is lost, told twice, or said to be done that is not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.metadata.etcd import EtcdStore
from headrace.metadata.store import Cmp, Lease, MetadataStoreError, OutcomeUnknown, Put
from headrace.system import SystemClock
from tests.metadata.conftest import DEADLINE_S, started_etcd, until
from tests.servers.etcd import EtcdCluster

FAILOVER_S_MAX = 120.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    started = started_etcd(tmp_path, 3)
    yield started
    started.close()


class Counter:
    """Writes 1, 2, 3... into one key, and hears every change of it."""

    def __init__(self, store: EtcdStore, lease: Lease) -> None:
        self._store = store
        self._lease = lease
        self.heard: list[int] = []
        self.in_doubt = 0

    async def listen(self) -> None:
        async with contextlib.aclosing(self._store.watch(b"/n", 0)) as watch:
            async for revision in watch:
                self.heard += [int(event.value or b"") for event in revision.events]

    async def count(self, times: int) -> int:
        """Succeeds that many times, through whatever happens; returns what the key holds then."""
        value = 0
        async with asyncio.timeout(FAILOVER_S_MAX):
            while times:
                assert self._lease.is_valid(SystemClock().boot_ms()), "a lease must outlive an election"
                try:
                    kvs, _ = await self._store.load(b"/n")
                    value, rev = (int(kvs[0].value), kvs[0].mod_rev) if kvs else (0, 0)
                    value += 1
                    if (await self._store.txn([Cmp(b"/n", rev)], [Put(b"/n", b"%d" % value)])).ok:
                        times -= 1
                except OutcomeUnknown:
                    self.in_doubt += 1
                except MetadataStoreError:
                    await asyncio.sleep(0.05)
        return value


async def test_the_death_and_the_hanging_of_a_leader_lose_no_change_and_no_lease(cluster: EtcdCluster) -> None:
    leader = cluster.leader()
    # Asks the leader first, so that its failures are met.
    addresses = sorted(cluster.addresses, key=lambda address: address != leader.address)
    store = await EtcdStore.open(addresses, SystemClock())
    lease = await store.grant(9_000, 1_000)
    counter = Counter(store, lease)
    listening = asyncio.create_task(counter.listen())
    await counter.count(20)
    leader.kill()
    await counter.count(20)
    await asyncio.to_thread(cluster.restart, leader)
    leader = await asyncio.to_thread(cluster.leader)
    leader.pause()
    last = await counter.count(20)
    leader.resume()
    await until(lambda: bool(counter.heard) and counter.heard[-1] >= last)
    listening.cancel()
    await asyncio.wait([listening])
    # Each success wrote one more than there was, so that every value comes once.
    assert counter.heard == list(range(1, len(counter.heard) + 1))
    assert 60 <= len(counter.heard) <= 60 + counter.in_doubt
    assert not lease.lost.is_set()
    await store.close()


async def test_without_a_majority_nothing_is_said_to_be_written_and_a_watch_is_only_silent(
    cluster: EtcdCluster,
) -> None:
    # Asks the survivor first: those who find nobody at all are told at once.
    store = await EtcdStore.open(cluster.addresses[::-1], SystemClock())
    _, rev = await store.txn([Cmp(b"/k", 0)], [Put(b"/k", b"1")])
    async with contextlib.aclosing(store.watch(b"/k", rev)) as watch:
        listening = asyncio.ensure_future(anext(watch))
        for member in cluster.members[:2]:
            member.kill()
        with pytest.raises(OutcomeUnknown):
            await store.txn([Cmp(b"/k", rev)], [Put(b"/k", b"2")])
        assert not listening.done()
        for member in cluster.members[:2]:
            member.start(cluster.initial)
        await asyncio.to_thread(cluster.wait_ready)
        async with asyncio.timeout(DEADLINE_S):
            kvs = (await store.load(b"/k")).kvs
            # Whether the doubtful transaction came through or not, the next one settles it.
            while not (await store.txn([Cmp(b"/k", kvs[0].mod_rev)], [Put(b"/k", b"3")])).ok:
                kvs = (await store.load(b"/k")).kvs
            heard = await listening
            values = [heard.events[0].value]
            while values[-1] != b"3":
                values.append((await anext(watch)).events[0].value)
        assert values in ([b"3"], [b"2", b"3"])
    await store.close()
