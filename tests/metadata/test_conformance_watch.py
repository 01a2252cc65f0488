"""How every metadata store tells of changes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from headrace.metadata.store import Cmp, Compacted, Event, MetaStore, Put, Revision
from tests.metadata.conftest import DEADLINE_S, Opener


async def taken(watch: AsyncGenerator[Revision, None], count: int) -> list[Revision]:
    async with asyncio.timeout(DEADLINE_S):
        return [await anext(watch) for _ in range(count)]


async def test_a_watch_tells_whole_revisions_from_the_one_it_was_given(opener: Opener) -> None:
    store, other = await opener(), await opener()
    _, before = await store.txn([Cmp(b"/a", 0)], [Put(b"/a", b"0")])
    _, first = await store.txn([Cmp(b"/c", 0), Cmp(b"/b", 0)], [Put(b"/c", b"1"), Put(b"/b", b"2")])
    async with contextlib.aclosing(other.watch(b"/", before)) as watch:
        assert await taken(watch, 1) == [(first, (Event(b"/b", b"2", first, first), Event(b"/c", b"1", first, first)))]
        _, second = await store.txn([Cmp(b"/b", first), Cmp(b"/a", before)], [Put(b"/b", b"3")], [b"/a"])
        assert await taken(watch, 1) == [(second, (Event(b"/a", None, second), Event(b"/b", b"3", second, first)))]


async def test_a_client_hears_of_its_own_changes_too(store: MetaStore) -> None:
    rev = (await store.load(b"")).rev
    async with contextlib.aclosing(store.watch(b"", rev)) as watch:
        heard = asyncio.create_task(taken(watch, 1))
        await asyncio.sleep(0.1)
        _, written = await store.txn([Cmp(b"k", 0)], [Put(b"k", b"")])
        assert [revision.rev for revision in await heard] == [written]


async def test_a_watch_tells_only_of_its_prefix(store: MetaStore) -> None:
    rev = (await store.load(b"")).rev
    for key in (b"/t/a", b"/u", b"/t", b"/t/b"):
        await store.txn([Cmp(key, 0), Cmp(b"x" + key, 0)], [Put(key, b""), Put(b"x" + key, b"")])
    async with contextlib.aclosing(store.watch(b"/t/", rev)) as watch:
        told = await taken(watch, 2)
    assert [[event.key for event in revision.events] for revision in told] == [[b"/t/a"], [b"/t/b"]]


async def test_every_revision_is_told_once_and_in_order_while_many_write(opener: Opener) -> None:
    stores = [await opener(), await opener()]
    rev = (await stores[0].load(b"")).rev
    async with contextlib.aclosing(stores[0].watch(b"", rev)) as watch:
        heard = asyncio.create_task(taken(watch, 120))
        results = await asyncio.gather(
            *(stores[n % 2].txn([Cmp(b"/%d" % n, 0)], [Put(b"/%d" % n, b"v")]) for n in range(120))
        )
        assert [revision.rev for revision in await heard] == sorted(result.rev for result in results)


async def test_two_watches_of_one_store_do_not_disturb_each_other(store: MetaStore) -> None:
    rev = (await store.load(b"")).rev
    async with contextlib.aclosing(store.watch(b"/a", rev)) as one, contextlib.aclosing(store.watch(b"/b", rev)) as two:
        heard = asyncio.gather(taken(one, 1), taken(two, 1))
        await store.txn([Cmp(b"/a", 0)], [Put(b"/a", b"")])
        await store.txn([Cmp(b"/b", 0)], [Put(b"/b", b"")])
        (of_a,), (of_b,) = await heard
        assert (of_a.events[0].key, of_b.events[0].key) == (b"/a", b"/b")
    async with contextlib.aclosing(store.watch(b"/a", of_a.rev)) as again:
        _, changed = await store.txn([Cmp(b"/a", of_a.rev)], [Put(b"/a", b"2")])
        assert [revision.rev for revision in await taken(again, 1)] == [changed]


async def test_a_watch_from_before_a_compaction_is_told_to_load_again(store: MetaStore) -> None:
    _, first = await store.txn([Cmp(b"k", 0)], [Put(b"k", b"1")])
    _, second = await store.txn([Cmp(b"k", first)], deletes=[b"k"])
    _, third = await store.txn([Cmp(b"k", 0)], [Put(b"k", b"3")])
    await store.compact(second)
    await store.compact(first)  # already
    with pytest.raises(Compacted):
        await taken(store.watch(b"", first), 1)
    async with contextlib.aclosing(store.watch(b"", second)) as watch:
        assert await taken(watch, 1) == [(third, (Event(b"k", b"3", third, third),))]
    assert await store.load(b"") == ([(b"k", b"3", third, third)], third)


async def test_a_watch_ends_when_its_store_is_closed(opener: Opener) -> None:
    store = await opener()
    rev = (await store.load(b"")).rev

    async def listen() -> list[Revision]:
        return [revision async for revision in store.watch(b"", rev)]

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0.1)
    await store.close()
    assert await asyncio.wait_for(listening, DEADLINE_S) == []
    assert [revision async for revision in store.watch(b"", rev)] == []


async def test_a_watcher_that_is_cancelled_ends(store: MetaStore) -> None:
    rev = (await store.load(b"")).rev
    listening = asyncio.create_task(taken(store.watch(b"", rev), 1))
    await asyncio.sleep(0.1)
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(listening, DEADLINE_S)
    assert (await store.txn([Cmp(b"k", 0)], [Put(b"k", b"")])).ok
