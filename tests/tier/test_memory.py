"""The store of the simulator fails as real ones do."""

import asyncio
from collections.abc import Sequence

import pytest

from headrace.storage.memory_files import MemoryFiles
from headrace.tier.memory import MemoryBucket, MemoryStore, Mishap
from headrace.tier.probing import probe
from headrace.tier.store import ObjectExists, ObjectMissing, Refused, Source, StoreUnavailable


def opened(bucket: MemoryBucket) -> MemoryStore:
    return MemoryStore(bucket, MemoryFiles())


async def test_a_call_that_fails_does_nothing() -> None:
    bucket = MemoryBucket(lambda *_: Mishap(fails=True))
    bucket.objects["c/b"] = b"b"
    store = opened(bucket)
    for call in (store.put("c/a", [b"a"]), store.get("c/b", 0, 1), store.size("c/b"), store.delete("c/b")):
        with pytest.raises(StoreUnavailable):
            await call
    with pytest.raises(StoreUnavailable):
        [entry async for entry in store.list("")]
    assert bucket.objects == {"c/b": b"b"}


async def test_a_call_whose_answer_is_lost_has_happened() -> None:
    bucket = MemoryBucket(lambda *_: Mishap(answer_lost=True))
    bucket.objects["c/b"] = b"b"
    store = opened(bucket)
    for call in (store.put("c/a", [b"a"]), store.delete("c/b")):
        with pytest.raises(StoreUnavailable):
            await call
    assert bucket.objects == {"c/a": b"a"}
    with pytest.raises(ObjectExists):
        await store.put("c/a", [b"a"])


async def test_a_slow_call_happens_when_its_time_is_over() -> None:
    bucket = MemoryBucket(lambda operation, _: Mishap(delay_ms=7 if operation == "put" else 0))
    slept: list[tuple[int, bool]] = []

    async def sleep_ms(delay_ms: int) -> None:
        slept.append((delay_ms, "c/a" in bucket.objects))

    store = MemoryStore(bucket, MemoryFiles(), sleep_ms)
    await store.put("c/a", [b"abc"])
    assert slept == [(7, False)]
    assert await store.get("c/a", 1, 3) == b"bc"
    assert (bucket.calls, bucket.bytes_read) == ({"put": 1, "get": 1}, 2)


async def test_a_late_call_is_told_as_failed_and_happens_nevertheless() -> None:
    bucket = MemoryBucket(lambda *_: Mishap(late_ms=1))
    bucket.objects |= {"c/b": b"b", "c/c": b"first"}
    store = opened(bucket)
    for call in (store.put("c/a", [b"a"]), store.put("c/c", [b"late"]), store.delete("c/b")):
        with pytest.raises(StoreUnavailable):
            await call
    assert bucket.objects == {"c/b": b"b", "c/c": b"first"}
    async with asyncio.timeout(30):
        while bucket.objects != {"c/a": b"a", "c/c": b"first"}:  # noqa: ASYNC110  # the bucket has no event of its own
            await asyncio.sleep(0.001)


async def test_a_probe_whose_first_answer_was_lost_and_tried_again_refuses_nothing() -> None:
    class TriesAgain(MemoryStore):
        async def put(self, key: str, parts: Sequence[Source]) -> None:
            if key not in bucket.objects:
                await super().put(key, parts)
            await super().put(key, parts)

    bucket = MemoryBucket()
    await probe(TriesAgain(bucket, MemoryFiles()), 1)
    assert bucket.objects == {}


async def test_a_store_that_takes_nothing_and_says_that_all_exists_is_refused() -> None:
    class Stubborn(MemoryStore):
        async def put(self, key: str, parts: Sequence[Source]) -> None:
            raise ObjectExists(f"{key} {parts}")

    with pytest.raises(Refused, match="just stored"):
        await probe(Stubborn(MemoryBucket(), MemoryFiles()), 1)


async def test_a_listing_bears_changes_in_its_middle() -> None:
    bucket = MemoryBucket()
    store = opened(bucket)
    for n in range(7):
        await store.put(f"c/{n}", [b"x"])
    seen = []
    async for key, _ in store.list("c/"):
        seen.append(key)
        bucket.objects.pop("c/5", None)
    assert seen == [f"c/{n}" for n in range(7) if n != 5]


async def test_a_store_that_lets_a_second_write_win_is_refused() -> None:
    bucket = MemoryBucket()
    bucket.is_create_only = False
    with pytest.raises(Refused, match="second create-only write of an object win"):
        await probe(opened(bucket), 1)
    assert bucket.objects == {}


async def test_a_store_that_loses_what_it_stored_is_refused() -> None:
    class Forgetful(MemoryStore):
        async def get(self, key: str, start: int, end: int) -> bytes:
            raise ObjectMissing(f"{key} {start} {end}")

    with pytest.raises(Refused, match="just stored"):
        await probe(Forgetful(MemoryBucket(), MemoryFiles()), 1)


async def test_a_store_that_is_away_is_not_refused_but_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        await probe(opened(MemoryBucket(lambda *_: Mishap(fails=True))), 1)
