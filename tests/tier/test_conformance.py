"""What every object store does, shown on each of them."""

import asyncio
from pathlib import Path

import pytest

from headrace.tier.probing import PROBE_PREFIX, probe
from headrace.tier.store import (
    FilePart,
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    RangeMissing,
    Source,
    SourceUnreadable,
)
from tests.tier.conftest import Opener

RACERS = 12


async def listed(store: ObjectStore, prefix: str = "") -> dict[str, int]:
    return {key: size async for key, size in store.list(prefix)}


async def test_an_object_is_read_by_ranges_by_everybody(opener: Opener) -> None:
    one, two = opener(), opener()
    await one.put("c/t/0/a.segment", [b"hello ", b"", b"world"])
    assert await two.get("c/t/0/a.segment", 0, 11) == b"hello world"
    assert await two.get("c/t/0/a.segment", 4, 7) == b"o w"
    assert await two.size("c/t/0/a.segment") == 11


async def test_parts_of_files_and_bytes_become_one_object(store: ObjectStore, tmp_path: Path) -> None:
    log, index = tmp_path / "a.log", tmp_path / "a.index"
    log.write_bytes(bytes(range(256)) * 5000)
    index.write_bytes(b"0123456789")
    parts: list[Source] = [
        b"head",
        FilePart(str(log), 100, 1_000_000),
        FilePart(str(index), 0, 10),
        FilePart(str(index), 3, 0),
    ]
    await store.put("c/a", parts)
    expected = b"head" + log.read_bytes()[100:1_000_100] + b"0123456789"
    assert await store.size("c/a") == len(expected)
    assert await store.get("c/a", 0, len(expected)) == expected


async def test_an_object_is_created_once(opener: Opener) -> None:
    one, two = opener(), opener()
    await one.put("c/a", [b"one"])
    with pytest.raises(ObjectExists):
        await two.put("c/a", [b"two, longer"])
    assert await two.get("c/a", 0, 3) == b"one"
    assert await listed(one) == {"c/a": 3}


async def test_of_many_that_create_an_object_at_once_one_wins(opener: Opener) -> None:
    stores = [opener() for _ in range(3)]
    puts = [stores[n % 3].put("c/race", [b"%04d" % n * 1000]) for n in range(RACERS)]
    results = await asyncio.gather(*puts, return_exceptions=True)
    winners = [n for n, result in enumerate(results) if result is None]
    assert len(winners) == 1
    assert all(isinstance(result, ObjectExists) for n, result in enumerate(results) if n not in winners)
    assert await stores[0].get("c/race", 0, 4000) == b"%04d" % winners[0] * 1000


async def test_an_object_that_is_missing_or_too_short_is_told_apart_from_failure(store: ObjectStore) -> None:
    for asked in (store.get("c/none", 0, 1), store.size("c/none")):
        with pytest.raises(ObjectMissing):
            await asked
    await store.put("c/a", [b"abc"])
    for start, end in ((0, 4), (2, 5), (3, 4), (10, 20)):
        with pytest.raises(RangeMissing):
            await store.get("c/a", start, end)
    assert await store.get("c/a", 2, 3) == b"c"


async def test_a_deleted_object_is_gone_and_may_be_deleted_and_created_again(opener: Opener) -> None:
    one, two = opener(), opener()
    await one.put("c/a", [b"abc"])
    await two.delete("c/a")
    with pytest.raises(ObjectMissing):
        await one.get("c/a", 0, 1)
    await one.delete("c/a")
    await one.delete("never/was")
    await two.put("c/a", [b"new"])
    assert await one.get("c/a", 0, 3) == b"new"


async def test_a_listing_holds_what_is_below_the_prefix(store: ObjectStore) -> None:
    keys = ["c/t/0/a", "c/t/0/b", "c/t/1/a", "c/t/10/a", "c/t2/0/a", "d/x"]
    for key in keys:
        await store.put(key, [key.encode()])
    assert await listed(store) == {key: len(key) for key in keys}
    assert await listed(store, "c/t/") == {key: len(key) for key in keys[:4]}
    assert await listed(store, "c/t/1/") == {"c/t/1/a": 7}
    assert await listed(store, "nothing/") == {}


async def test_a_source_that_is_gone_or_short_leaves_nothing(store: ObjectStore, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(b"abc")
    for part in (FilePart(str(tmp_path / "gone"), 0, 1), FilePart(str(short), 1, 3)):
        with pytest.raises(SourceUnreadable):
            await store.put("c/a", [b"head", part])
    assert await listed(store) == {}


async def test_a_probe_leaves_nothing_and_refuses_none_of_these(store: ObjectStore) -> None:
    await probe(store, random_bits=1 << 127)
    assert await listed(store, PROBE_PREFIX) == {}
