"""The SQLite store answers every sequence of operations as the model in memory does."""

import asyncio
import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata import sqlite_file
from headrace.metadata.memory import Fault, MemoryData, MemoryStore
from headrace.metadata.store import Cmp, MetadataStoreError, OutcomeUnknown, Put

KEYS = [b"/a", b"/a/1", b"/b"]

compares = st.builds(Cmp, st.sampled_from(KEYS), st.integers(0, 8), st.sampled_from(["mod", "create"]))
writes = st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=2))


@given(st.lists(st.tuples(st.lists(compares, max_size=2), writes, st.booleans()), max_size=12))
def test_sqlite_agrees_with_the_model(steps: list[tuple[list[Cmp], dict[bytes, bytes | None], bool]]) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    sqlite_file.create_tables(connection)
    model = MemoryData()
    for compared, written, aims_well in steps:
        if aims_well:  # else nearly every transaction would be refused
            compared = [Cmp(key, model.kvs[key].mod_rev if key in model.kvs else 0) for key in written]
        puts = [Put(key, value) for key, value in written.items() if value is not None]
        deletes = [key for key, value in written.items() if value is None]
        assert sqlite_file.txn(connection, compared, puts, deletes) == model.txn(compared, puts, deletes)
        for prefix in (b"", b"/a", b"/b"):
            assert sqlite_file.load(connection, prefix) == model.load(prefix)
    connection.close()


async def outcome(store: MemoryStore, key: bytes) -> str:
    try:
        return str((await store.txn([Cmp(key, 0)], [Put(key, b"")])).ok)
    except (OutcomeUnknown, MetadataStoreError) as error:
        return type(error).__name__


async def test_the_model_fails_on_demand() -> None:
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


async def test_the_model_lets_others_run_before_it_answers() -> None:
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
