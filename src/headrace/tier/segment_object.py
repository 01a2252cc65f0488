"""The one object of a segment: its log first, byte for byte, and behind it what is needed to read it."""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.core.tier_rows import Section, Sections
from headrace.tier.store import ObjectStore, Source, source_bytes


class SegmentObject(NamedTuple):
    """What to store, and where in the object each part of it is found again."""

    parts: Sequence[Source]
    sections: Sections
    bytes: int


def segment_object(
    log: Source, index: Source, timeindex: Source, txnindex: Source | None, snapshot: Source | None, epochs: Source
) -> SegmentObject:
    """`epochs` is the text of a leader-epoch-checkpoint, from the start of the log up to the end of the segment."""
    parts: list[Source] = []
    at = 0

    def place(part: Source) -> Section:
        nonlocal at
        parts.append(part)
        section = (at, source_bytes(part))
        at += section[1]
        return section

    sections = Sections(
        log=place(log),
        index=place(index),
        timeindex=place(timeindex),
        txnindex=place(txnindex) if txnindex is not None else None,
        snapshot=place(snapshot) if snapshot is not None else None,
        epochs=place(epochs),
    )
    return SegmentObject(parts, sections, at)


async def read_section(store: ObjectStore, key: str, section: Section | None) -> bytes:
    """All of it; nothing is asked of the store for one that is empty or not there."""
    if section is None or not section[1]:
        return b""
    return await store.get(key, section[0], section[0] + section[1])
