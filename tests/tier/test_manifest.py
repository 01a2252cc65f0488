"""A manifest comes back as it was written, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.tier_rows import DELETE_STARTED, Manifest, Sections, SegmentRow, SegmentState
from headrace.storage.memory_files import MemoryFiles
from headrace.tier.manifest import CorruptManifest, decode, encode, load
from headrace.tier.memory import MemoryBucket, MemoryStore
from headrace.tier.store import ObjectMissing
from tests.tier.rows import row

numbers = st.integers(0, 2**62)
places = st.tuples(numbers, numbers)
sections = st.builds(Sections, places, places, places, st.none() | places, st.none() | places, places)


@st.composite
def rows(draw: st.DrawFn) -> SegmentRow:
    starts = sorted(draw(st.sets(st.integers(0, 2**40), min_size=1, max_size=4)))
    epochs = sorted(draw(st.sets(st.integers(0, 2**31 - 1), min_size=len(starts), max_size=len(starts))))
    return SegmentRow(
        f"{draw(st.integers(0, 2**128 - 1)):032x}",
        starts[0],
        starts[-1] + draw(st.integers(0, 1000)),
        draw(numbers),
        draw(st.integers(-1, 2**62)),
        tuple(zip(epochs, starts, strict=True)),
        draw(st.sampled_from(SegmentState)),
        draw(st.integers(-1, 2**62)),
        draw(sections),
    )


manifests = st.builds(
    Manifest,
    st.binary(min_size=16, max_size=16).map(bytes.hex),
    st.integers(0, 100_000),
    st.integers(0, 2**31 - 1),
    numbers,
    numbers,
    st.lists(rows(), max_size=5).map(tuple),
)


@given(manifests)
def test_a_manifest_comes_back_as_it_was_written(manifest: Manifest) -> None:
    assert decode(encode(manifest)) == manifest


@given(manifests, st.data())
def test_a_manifest_that_was_harmed_is_refused(manifest: Manifest, data: st.DataObject) -> None:
    content = bytearray(encode(manifest))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptManifest):
        decode(bytes(content))
    with pytest.raises(CorruptManifest):
        decode(encode(manifest)[:at])


def test_a_manifest_of_a_newer_program_is_refused_by_its_version() -> None:
    with pytest.raises(CorruptManifest, match="version 2"):
        decode(encode(Manifest("00" * 16, 0, 0, 0, 0, ())).replace(b"manifest 1", b"manifest 2", 1))


@pytest.mark.parametrize(
    "bad",
    [row(1, 5, 4), row(1, 5, 9, (0, 6)), row(1, 5, 9, (1, 5), (1, 7)), row(1, 5, 9, (1, 5), (2, 10))],
)
def test_a_row_that_contradicts_itself_is_refused(bad: SegmentRow) -> None:
    with pytest.raises(CorruptManifest, match="segment 0"):
        decode(encode(Manifest("00" * 16, 0, 0, 0, 0, (bad,))))


async def test_a_manifest_is_loaded_from_its_object() -> None:
    manifest = Manifest("00" * 16, 0, 1, 2, 3, (row(1, 0, 1, state=DELETE_STARTED),))
    store = MemoryStore(MemoryBucket(), MemoryFiles())
    await store.put("c/manifest", [encode(manifest)])
    assert await load(store, "c/manifest") == manifest
    with pytest.raises(ObjectMissing):
        await load(store, "c/none")


async def test_an_empty_object_is_no_manifest() -> None:
    store = MemoryStore(MemoryBucket(), MemoryFiles())
    await store.put("c/manifest", [b""])
    with pytest.raises(CorruptManifest, match="empty"):
        await load(store, "c/manifest")
