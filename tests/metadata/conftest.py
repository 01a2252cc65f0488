"""Each kind of store, opened as several processes would open it."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from headrace.metadata.etcd import EtcdStore
from headrace.metadata.memory import MemoryData, MemoryStore
from headrace.metadata.sqlite import SqliteStore
from headrace.metadata.store import MAX_OPS, Cmp, MetaStore
from headrace.system import SystemClock, ThreadOffload
from tests.servers.etcd import EtcdCluster, EtcdMissing

Opener: TypeAlias = Callable[[], Awaitable[MetaStore]]

DEADLINE_S = 60.0
SHORT_LEASE_MS_MIN = 1_000
"""Tests do not wait for 9 s; what is asked of real leases has a test of its own."""


@pytest.fixture
def offload() -> Iterator[ThreadOffload]:
    threads = ThreadOffload()
    yield threads
    threads.close()


def started_etcd(directory: Path, size: int) -> EtcdCluster:
    try:
        return EtcdCluster(directory, size)
    except EtcdMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def etcd_of_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    cluster = started_etcd(tmp_path_factory.mktemp("etcd1"), 1)
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def etcd_of_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    cluster = started_etcd(tmp_path_factory.mktemp("etcd3"), 3)
    yield cluster
    cluster.close()


@pytest.fixture(params=["memory", "sqlite", "etcd of one", "etcd of three"])
async def opener(request: pytest.FixtureRequest, tmp_path: Path, offload: ThreadOffload) -> AsyncIterator[Opener]:
    """Opens the same store again with every call, as another process would."""
    data, opened, addresses = MemoryData(), [], []
    if request.param.startswith("etcd"):
        cluster: EtcdCluster = request.getfixturevalue(request.param.replace(" ", "_"))
        addresses = cluster.addresses
        await empty(addresses)
    turns = itertools.count()

    async def open_store() -> MetaStore:
        store: MetaStore
        if request.param == "memory":
            store = MemoryStore(data)
        elif request.param == "sqlite":
            store = await SqliteStore.open(tmp_path / "headrace.db", offload, SystemClock())
        else:
            turn = next(turns) % len(addresses)  # so that stores ask different members
            store = await open_etcd(addresses[turn:] + addresses[:turn])
        opened.append(store)
        return store

    yield open_store
    for store in opened:
        await store.close()


@pytest.fixture
async def store(opener: Opener) -> MetaStore:
    return await opener()


async def open_etcd(addresses: list[str]) -> EtcdStore:
    return await EtcdStore.open(addresses, SystemClock(), lease_ttl_ms_min=SHORT_LEASE_MS_MIN)


async def empty(addresses: list[str]) -> None:
    store = await open_etcd(addresses)
    kvs = (await store.load(b"")).kvs
    for start in range(0, len(kvs), MAX_OPS):
        some = kvs[start : start + MAX_OPS]
        await store.txn([Cmp(kv.key, kv.mod_rev) for kv in some], deletes=[kv.key for kv in some])
    await store.close()


async def until(condition: Callable[[], bool]) -> None:
    """For what no future tells."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # what tests wait for has no event of its own
            await asyncio.sleep(0.01)
