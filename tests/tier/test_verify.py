"""Damage to a remote segment is found, wherever it is."""

import msgspec
import pytest

from headrace.core.tier_rows import SegmentRow
from headrace.storage.memory_files import MemoryFiles
from headrace.tier import verify
from headrace.tier.memory import MemoryBucket, MemoryStore
from headrace.tier.verify import verify_segment
from tests.tier.rows import Stored, stored_segment

KEY = "c/t/0/a.segment"


async def problems_of(content: bytes | bytearray, row: SegmentRow) -> list[str]:
    bucket = MemoryBucket()
    bucket.objects[KEY] = bytes(content)
    return await verify_segment(MemoryStore(bucket, MemoryFiles()), KEY, row)


@pytest.fixture
def stored() -> Stored:
    return stored_segment()


@pytest.mark.parametrize("chunk_bytes", [1, 60, 61, 97, 1 << 20])
async def test_a_whole_segment_has_no_problem_in_whatever_pieces_it_is_read(
    stored: Stored, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "CHUNK_BYTES", chunk_bytes)
    assert await problems_of(stored.content, stored.row) == []


async def test_progress_adds_up_to_the_object(stored: Stored) -> None:
    bucket = MemoryBucket()
    bucket.objects[KEY] = bytes(stored.content)
    told: list[int] = []
    assert await verify_segment(MemoryStore(bucket, MemoryFiles()), KEY, stored.row, told.append) == []
    assert sum(told) == len(stored.content) == bucket.bytes_read


async def test_every_flipped_byte_of_the_log_is_found(stored: Stored) -> None:
    for at in range(stored.row.sections.log[1]):
        harmed = bytearray(stored.content)
        harmed[at] ^= 0x20
        assert await problems_of(harmed, stored.row), f"byte {at}"


async def test_every_flipped_byte_of_the_offset_index_the_snapshot_and_the_epochs_is_found(stored: Stored) -> None:
    sections = stored.row.sections
    assert sections.snapshot is not None
    for start, length in (sections.index, sections.snapshot, sections.epochs):
        for at in range(start, start + length):
            harmed = bytearray(stored.content)
            harmed[at] ^= 0x40
            # The lowest epochs lie before the segment, and newlines may become other separators of the same list.
            if await problems_of(harmed, stored.row) == []:
                assert (start, length) == sections.epochs, f"byte {at}"


async def test_indexes_that_do_not_fit_the_segment_are_found(stored: Stored) -> None:
    sections = stored.row.sections
    assert sections.txnindex is not None
    for start, _ in (sections.timeindex, sections.txnindex):
        harmed = bytearray(stored.content)
        harmed[start] = 0x7F
        assert await problems_of(harmed, stored.row)
    for name in ("index", "timeindex", "txnindex"):
        start, length = getattr(sections, name)
        cut = msgspec.structs.replace(sections, **{name: (start, length - 1)})
        (problem, *_) = await problems_of(stored.content, msgspec.structs.replace(stored.row, sections=cut))
        assert "no whole entries" in problem


async def test_an_object_that_is_missing_or_short_is_a_problem(stored: Stored) -> None:
    assert await problems_of(stored.content[:-1], stored.row) == [
        f"The object has {len(stored.content) - 1} bytes instead of {len(stored.content)}."
    ]
    store = MemoryStore(MemoryBucket(), MemoryFiles())
    assert "missing" in (await verify_segment(store, KEY, stored.row))[0]


async def test_what_the_manifest_says_is_compared_with_the_log(stored: Stored) -> None:
    for change in (
        {"end_offset": stored.row.end_offset - 1},
        {"base_offset": stored.row.base_offset + 1},
        {"max_timestamp_ms": stored.row.max_timestamp_ms - 1},
        {"epochs": ((1, 10), (2, 16))},
        {"epochs": ((1, 10), (3, 14))},
    ):
        assert await problems_of(stored.content, msgspec.structs.replace(stored.row, **change)), change
