"""Every part of a segment is found again in its object."""

from headrace.storage.memory_files import MemoryFiles
from headrace.tier.memory import MemoryBucket, MemoryStore
from headrace.tier.segment_object import read_section, segment_object
from headrace.tier.store import FilePart


async def test_every_section_is_read_back_and_absent_ones_ask_for_nothing() -> None:
    files = MemoryFiles()
    files.make_directory("/d")
    files.create("/d/a.log").write(0, [b"the log, and more"])
    made = segment_object(FilePart("/d/a.log", 0, 7), b"index", b"", None, b"snapshot", b"epochs")
    bucket = MemoryBucket()
    store = MemoryStore(bucket, files)
    await store.put("c/a", made.parts)
    assert made.bytes == await store.size("c/a") == 26
    sections = made.sections
    found = [await read_section(store, "c/a", place) for place in (sections.log, sections.index, sections.snapshot)]
    assert found == [b"the log", b"index", b"snapshot"]
    assert await read_section(store, "c/a", sections.epochs) == b"epochs"
    asked = dict(bucket.calls)
    assert await read_section(store, "c/a", sections.txnindex) == await read_section(store, "c/a", (3, 0)) == b""
    assert bucket.calls == asked
