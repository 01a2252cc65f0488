"""A remote segment is read from any offset to any other, whole batches at a time, whatever its index is like."""

from collections.abc import Sequence
from struct import pack

import msgspec
import pytest

from headrace.core.producers import AbortedTransaction
from headrace.core.tier_rows import SegmentRow
from headrace.errors import CorruptLog
from headrace.storage.memory_files import MemoryFiles
from headrace.storage.txn_index import encode_entry
from headrace.tier.memory import MemoryBucket, MemoryStore, Mishap
from headrace.tier.segment_reading import AbortIndex, SegmentReader, aborted_between
from headrace.tier.store import ObjectMissing, StoreUnavailable
from headrace.wire.batch import headers
from tests.tier.rows import stored_segment

KEY = "a/segment"
BASE = 10
BATCHES = 40


def kept(keep_every: int) -> tuple[MemoryBucket, SegmentRow]:
    """A segment with every so many entries of its index."""
    content, row = stored_segment(BATCHES, BASE)
    at, size = row.sections.index
    index = b"".join(bytes(content[at + 8 * n : at + 8 * n + 8]) for n in range(keep_every, size // 8, keep_every))
    place = (len(content), len(index))
    bucket = MemoryBucket()
    bucket.put(KEY, bytes(content) + index)
    return bucket, msgspec.structs.replace(row, sections=msgspec.structs.replace(row.sections, index=place))


async def offsets(reader: SegmentReader) -> list[int]:
    found: list[int] = []
    while (data := await reader.next()) is not None:
        chunk = [offset for _, head in headers(data) for offset in range(head.base_offset, head.last_offset + 1)]
        assert sum(head.size for _, head in headers(data)) == len(data), "only whole batches"
        found += chunk
    return found


@pytest.mark.parametrize("keep_every", [1, 3, 1000])
@pytest.mark.parametrize("chunk_bytes", [50, 500, 1 << 20])
async def test_all_between_two_offsets_comes_once_and_in_order(keep_every: int, chunk_bytes: int) -> None:
    bucket, row = kept(keep_every)
    store = MemoryStore(bucket, MemoryFiles())
    for start, end in [(10, 90), (10, 11), (37, 38), (36, 60), (89, 90)]:
        found = await offsets(SegmentReader(store, KEY, row, start, end, chunk_bytes))
        assert found == list(range(found[0], found[-1] + 1))
        assert found[0] <= start and end - 1 <= found[-1]
        if keep_every == 1:
            assert start - found[0] <= 3 and found[-1] - end <= 3, "little more than is asked for"


async def test_a_call_that_fails_is_made_again_and_nothing_is_left_out() -> None:
    bucket, row = kept(3)
    failing = iter([True, False] * 1_000)
    bucket.mishap = lambda *_: Mishap(fails=next(failing))
    reader = SegmentReader(MemoryStore(bucket, MemoryFiles()), KEY, row, 10, 90, 500)
    found: list[int] = []
    while True:
        try:
            found += await offsets(reader)
            break
        except StoreUnavailable:
            # What came before the failure was looked at in `offsets`, and lost with it: so the rest must be there.
            found = []
    assert found[-1] == 89


async def test_what_is_gone_or_cut_off_is_told() -> None:
    bucket, row = kept(1000)
    store = MemoryStore(bucket, MemoryFiles())
    with pytest.raises(ObjectMissing):
        await SegmentReader(store, "another", row, 10, 90).next()
    content = bytearray(bucket.objects[KEY])
    content[8:12] = pack(">i", 1 << 20)
    bucket.objects[KEY] = bytes(content)
    for chunk_bytes in (100, 1 << 20):
        with pytest.raises(CorruptLog, match="ends inside a batch"):
            await SegmentReader(store, KEY, row, 10, 90, chunk_bytes).next()


async def test_aborted_transactions_are_looked_for_as_far_as_they_may_matter() -> None:
    bucket = MemoryBucket()

    def index(name: str, *entries: tuple[int, int, int, int]) -> AbortIndex:
        content = b"".join(encode_entry(AbortedTransaction(*entry)) for entry in entries)
        bucket.put(name, b"ahead" + content)
        return AbortIndex(name, (5, len(content)))

    indexes = [index("a", (1, 0, 5, 0), (2, 3, 12, 3)), index("b", (3, 18, 25, 18)), index("c", (4, 19, 40, 30))]
    store = MemoryStore(bucket, MemoryFiles())

    async def found(asked: Sequence[AbortIndex], start: int, end: int) -> tuple[list[int], bool]:
        aborted, is_complete = await aborted_between(store, asked, start, end)
        return [one.producer_id for one in aborted], is_complete

    assert await found(indexes, 0, 10) == ([1, 2], True)
    assert bucket.calls["get"] == 2, "the third cannot matter"
    assert await found(indexes[:1], 6, 10) == ([2], False)
    assert await found(indexes, 6, 20) == ([2, 3, 4], True)
    assert await found(indexes, 13, 35) == ([3, 4], False)
    bucket.objects["a"] = b"\xff" * 100
    with pytest.raises(CorruptLog, match="a: The transaction index has version"):
        await found(indexes, 0, 10)
