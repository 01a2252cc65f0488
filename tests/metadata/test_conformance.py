"""What every metadata store does, shown on each of them."""

import asyncio

import pytest

from headrace.metadata.store import MAX_OPS, Cmp, MetadataStoreError, MetaStore, Put
from tests.metadata.conftest import Opener


async def test_a_created_key_has_the_revision_that_created_it(store: MetaStore) -> None:
    ok, rev = await store.txn([Cmp(b"/t/a", 0)], [Put(b"/t/a", b"1")])
    assert ok
    assert rev > 0
    assert await store.load(b"/t/") == ([(b"/t/a", b"1", rev, rev)], rev)


async def test_of_two_that_create_a_key_one_succeeds_and_the_other_writes_nothing(opener: Opener) -> None:
    one, two = await opener(), await opener()
    assert (await one.txn([Cmp(b"/t/a", 0)], [Put(b"/t/a", b"one")])).ok
    assert not (await two.txn([Cmp(b"/t/a", 0), Cmp(b"/t/b", 0)], [Put(b"/t/a", b"two"), Put(b"/t/b", b"two")])).ok
    assert [(kv.key, kv.value) for kv in (await two.load(b"/")).kvs] == [(b"/t/a", b"one")]


async def test_a_change_keeps_the_create_revision_and_moves_the_other(opener: Opener) -> None:
    one, two = await opener(), await opener()
    _, created = await one.txn([Cmp(b"k", 0)], [Put(b"k", b"1")])
    ok, changed = await two.txn([Cmp(b"k", created)], [Put(b"k", b"2")])
    assert ok and changed > created
    assert (await one.load(b"k")).kvs == [(b"k", b"2", created, changed)]
    assert not (await one.txn([Cmp(b"k", created)], [Put(b"k", b"3")])).ok
    assert (await one.txn([Cmp(b"k", created, "create")], [Put(b"k", b"3")])).ok


async def test_a_refused_transaction_tells_the_current_revision_and_moves_none(store: MetaStore) -> None:
    _, rev = await store.txn([Cmp(b"k", 0)], [Put(b"k", b"1")])
    assert await store.txn([Cmp(b"k", rev + 1)], [Put(b"k", b"2")]) == (False, rev)
    assert await store.txn([Cmp(b"k", rev)]) == (True, rev)
    assert (await store.load(b"")).rev == rev


async def test_a_deleted_and_created_key_is_a_new_one(store: MetaStore) -> None:
    _, first = await store.txn([Cmp(b"k", 0)], [Put(b"k", b"1")])
    ok, deleted = await store.txn([Cmp(b"k", first)], deletes=[b"k"])
    assert ok and deleted > first
    assert (await store.load(b"k")).kvs == []
    _, second = await store.txn([Cmp(b"k", 0)], [Put(b"k", b"1")])
    assert not (await store.txn([Cmp(b"k", first, "create")])).ok
    assert (await store.txn([Cmp(b"k", second, "create")])).ok


async def test_deleting_what_is_absent_succeeds_and_moves_no_revision(store: MetaStore) -> None:
    rev = (await store.load(b"")).rev
    assert await store.txn([Cmp(b"k", 0)], deletes=[b"k"]) == (True, rev)


async def test_one_transaction_writes_all_its_keys_at_one_revision(store: MetaStore) -> None:
    keys = [b"/p/%03d" % n for n in range(MAX_OPS)]
    ok, rev = await store.txn([Cmp(key, 0) for key in keys], [Put(key, b"v") for key in keys])
    assert ok
    assert await store.load(b"/p/") == ([(key, b"v", rev, rev) for key in keys], rev)


async def test_load_gives_the_keys_with_the_prefix_in_order(store: MetaStore) -> None:
    keys = [b"/p/10", b"/p/2", b"/p", b"/q/", b"/p0", b"/p/\xff\xff", b"\xff\xff"]
    await store.txn([Cmp(key, 0) for key in keys], [Put(key, b"") for key in keys])
    assert [kv.key for kv in (await store.load(b"/p/")).kvs] == [b"/p/10", b"/p/2", b"/p/\xff\xff"]
    assert [kv.key for kv in (await store.load(b"\xff")).kvs] == [b"\xff\xff"]
    assert [kv.key for kv in (await store.load(b"")).kvs] == sorted(keys)


async def test_concurrent_increments_are_each_counted_once(opener: Opener) -> None:
    stores = [await opener(), await opener()]
    await stores[0].txn([Cmp(b"n", 0)], [Put(b"n", b"0")])

    async def increment(store: MetaStore) -> None:
        while True:
            (kv,), _ = await store.load(b"n")
            if (await store.txn([Cmp(b"n", kv.mod_rev)], [Put(b"n", b"%d" % (int(kv.value) + 1))])).ok:
                return

    await asyncio.gather(*(increment(stores[n % 2]) for n in range(20)))
    assert (await stores[0].load(b"n")).kvs[0].value == b"20"


async def test_what_was_written_is_there_when_the_store_is_opened_again(opener: Opener) -> None:
    store = await opener()
    _, rev = await store.txn([Cmp(b"k", 0)], [Put(b"k", b"1")])
    await store.close()
    assert await (await opener()).load(b"") == ([(b"k", b"1", rev, rev)], rev)


async def test_a_closed_store_says_so(store: MetaStore) -> None:
    await store.close()
    with pytest.raises(MetadataStoreError, match="closed"):
        await store.load(b"")


@pytest.mark.parametrize(
    ("when", "puts", "deletes"),
    [
        ([], [Put(b"k", b"")], []),
        ([Cmp(b"other", 0)], [Put(b"k", b"")], []),
        ([], [], [b"k"]),
        ([Cmp(b"k", 0)], [Put(b"k", b""), Put(b"k", b"")], []),
        ([Cmp(b"%d" % n, 0) for n in range(129)], [], []),
        ([Cmp(b"%d" % n, 0) for n in range(128)], [Put(b"%d" % n, b"") for n in range(64)], [b"x"] * 65),
    ],
    ids=["no compare", "another key's", "unfenced delete", "key twice", "129 compares", "129 writes"],
)
async def test_an_unfenced_or_too_large_transaction_is_a_bug(
    store: MetaStore, when: list[Cmp], puts: list[Put], deletes: list[bytes]
) -> None:
    with pytest.raises(AssertionError):
        await store.txn(when, puts, deletes)
    assert (await store.load(b"")).kvs == []
