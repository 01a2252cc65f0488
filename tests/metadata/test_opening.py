"""Which store a URL opens, and what is said of one that cannot be opened."""

import sys
from pathlib import Path

import pytest

from headrace.metadata import etcd_members
from headrace.metadata.etcd import EtcdStore
from headrace.metadata.opening import etcd_addresses, open_store
from headrace.metadata.sqlite import SqliteStore
from headrace.metadata.store import Cmp, MetadataStoreError, Put
from headrace.system import SystemClock, ThreadOffload
from tests.servers.etcd import EtcdCluster
from tests.servers.process import lasting_port


async def test_a_file_is_opened_by_its_name(tmp_path: Path, offload: ThreadOffload) -> None:
    store = await open_store(f"sqlite:{tmp_path}/m.db", offload, SystemClock())
    assert isinstance(store, SqliteStore)
    await store.close()


async def test_an_etcd_is_opened_by_the_addresses_of_its_members(
    etcd_of_three: EtcdCluster, offload: ThreadOffload
) -> None:
    store = await open_store("etcd://" + ",".join(etcd_of_three.addresses), offload, SystemClock())
    assert isinstance(store, EtcdStore)
    key = b"/opened"
    kvs = (await store.load(key)).kvs
    assert (await store.txn([Cmp(key, kvs[0].mod_rev if kvs else 0)], [Put(key, b"")])).ok
    await store.close()


async def test_an_etcd_that_is_not_there_is_reported_in_one_sentence(
    offload: ThreadOffload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_members, "READY_S_MAX", 0.2)
    address = f"127.0.0.1:{lasting_port()}"
    with pytest.raises(MetadataStoreError, match=f"^No etcd can be reached at {address}$"):
        await open_store(f"etcd://{address}", offload, SystemClock())


async def test_without_grpc_an_etcd_cannot_be_used_and_the_extra_is_named(
    offload: ThreadOffload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "headrace.metadata.etcd")
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MetadataStoreError, match=r"headrace\[etcd\]"):
        await open_store("etcd://h1:2379", offload, SystemClock())


def test_etcd_addresses_have_a_default_port() -> None:
    assert etcd_addresses("etcd://h1:2379,h2,[::1]:2381,[::2]") == ["h1:2379", "h2:2379", "[::1]:2381", "[::2]:2379"]


@pytest.mark.parametrize(
    "url", ["sqlite:", "etcd://", "etcd://h1:x", "etcd://h1:2379,", "etcd://h1:0", "zookeeper://h1", "", "m.db"]
)
async def test_what_is_no_store_is_refused_in_one_sentence(url: str, offload: ThreadOffload) -> None:
    with pytest.raises(MetadataStoreError, match=r"^Cannot use .* as metadata store: "):
        await open_store(url, offload, SystemClock())
