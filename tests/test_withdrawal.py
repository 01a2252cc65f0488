"""A dead incarnation's registration ends at once, and only that one's."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.core.cluster import BrokerRecord
from headrace.metadata import records
from headrace.metadata.memory import Fault, MemoryStore
from headrace.metadata.store import Cmp, Put, TxnResult
from headrace.storage.os_files import OsFiles
from headrace.withdrawal import Dead, Ending, NotWithdrawn, last_incarnation, withdraw_from

KEY = records.broker_key(1)
DEAD = Dead(1, "old", 0, "here")


def record(incarnation: str, origin: str = "here") -> bytes:
    return records.encode(BrokerRecord(incarnation, "127.0.0.1", 9092, None, origin=origin))


async def registered(store: MemoryStore, incarnation: str, origin: str = "here") -> int:
    """The lease of a node that was registered as 1, and is the controller."""
    lease = await store.grant(9_000, 2_000)
    office = records.encode(records.ControllerRecord(1, incarnation))
    puts = [
        Put(KEY, record(incarnation, origin), lease.id),
        Put(records.CONTROLLER_KEY, office, lease.id),
        Put(records.offline_key(1, 0), b"{}", lease.id),
    ]
    assert (await store.txn([Cmp(put.key, 0) for put in puts], puts)).ok
    return lease.id


async def keys(store: MemoryStore) -> list[bytes]:
    return [kv.key for kv in (await store.load(b"/")).kvs]


def test_all_that_the_incarnation_holds_ends() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        lease_id = await registered(store, "old")
        before = (await store.load(b"/")).rev
        assert await withdraw_from(store, DEAD._replace(lease_id=lease_id)) is Ending.WITHDRAWN
        assert await keys(store) == []
        changes = store.watch(b"/", before)
        first = await anext(changes)
        # Nobody ever sees a dead controller that is no node any more, or the other way round.
        assert {event.key for event in first.events} == {KEY, records.CONTROLLER_KEY}
        assert await withdraw_from(store, DEAD) is Ending.GONE
        await changes.aclose()
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(("incarnation", "origin"), [("new", "here"), ("old", "elsewhere")])
def test_another_incarnation_and_a_copy_of_the_directory_stay(incarnation: str, origin: str) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await registered(store, incarnation, origin)
        before = await keys(store)
        assert await withdraw_from(store, DEAD) is Ending.ANOTHER
        assert await keys(store) == before
        await store.close()

    asyncio.run(scenario())


def test_a_node_that_registers_again_meanwhile_stays() -> None:
    class Racing(MemoryStore):
        async def txn(self, when: Sequence[Cmp], puts: Sequence[Put] = (), deletes: Sequence[bytes] = ()) -> TxnResult:
            if not self.raced:
                self.raced = True
                found = [Cmp(kv.key, kv.mod_rev) for kv in (await self.load(b"/")).kvs]
                await super().txn(found, deletes=[compare.key for compare in found])
                await super().txn([Cmp(KEY, 0)], [Put(KEY, record("new"))])
            return await super().txn(when, puts, deletes)

        raced = True

    async def scenario() -> None:
        store = Racing()
        await registered(store, "old")
        store.raced = False
        assert await withdraw_from(store, DEAD) is Ending.ANOTHER
        assert KEY in await keys(store)
        await store.close()

    asyncio.run(scenario())


def test_a_controller_that_is_another_node_stays_in_office() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await store.txn([Cmp(KEY, 0)], [Put(KEY, record("old"))])
        office = records.encode(records.ControllerRecord(2, "of two"))
        await store.txn([Cmp(records.CONTROLLER_KEY, 0)], [Put(records.CONTROLLER_KEY, office)])
        assert await withdraw_from(store, DEAD) is Ending.WITHDRAWN
        assert await keys(store) == [records.CONTROLLER_KEY]
        await store.close()

    asyncio.run(scenario())


def test_a_lease_that_cannot_be_revoked_changes_nothing() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        lease_id = await registered(store, "old")
        store.revoke_faults.append(Fault.UNAVAILABLE)
        assert await withdraw_from(store, DEAD._replace(lease_id=lease_id)) is Ending.WITHDRAWN
        await store.close()

    asyncio.run(scenario())


def test_a_directory_that_is_no_nodes_is_one_sentence(tmp_path: Path) -> None:
    files = OsFiles(4)
    with pytest.raises(NotWithdrawn, match="is no data directory of a node: No such file or directory"):
        last_incarnation(files, str(tmp_path), str)
    (tmp_path / "logs").mkdir()
    with pytest.raises(NotWithdrawn, match="does not say whose directory this is"):
        last_incarnation(files, str(tmp_path), str)
