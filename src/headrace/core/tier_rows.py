"""What a leader knows of the remote part of a partition: rows of segments, in a manifest that never changes.

A change makes a new manifest with the next number; it is in force once the pointer in the metadata store names it.
"""

from collections.abc import Collection
from enum import IntEnum
from itertools import pairwise

import msgspec


class SegmentState(IntEnum):
    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2


COPY_STARTED, COPY_FINISHED, DELETE_STARTED = SegmentState

Section = tuple[int, int]
"""Where in the object it begins, and how many bytes it has."""


class Sections(msgspec.Struct, frozen=True, array_like=True):
    """The parts of a segment's one object. A segment without aborted transactions has no `txnindex`."""

    log: Section
    index: Section
    timeindex: Section
    txnindex: Section | None
    snapshot: Section | None
    epochs: Section

    def told(self) -> dict[str, list[int]]:
        """By name, those that are there."""
        places: dict[str, Section | None] = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: list(place) for name, place in places.items() if place is not None}


class SegmentRow(msgspec.Struct, frozen=True, array_like=True):
    """One remote segment, or one that is being copied or deleted."""

    id: str
    """128 random bits in hexadecimal: two attempts to copy a segment are two objects."""
    base_offset: int
    end_offset: int
    """Of the last record that may be in it, inclusive: the next segment begins behind it."""
    bytes: int
    """Of the whole object."""
    max_timestamp_ms: int
    epochs: tuple[tuple[int, int], ...]
    """(epoch, first offset in it), rising in both; the first begins at `base_offset`."""
    state: SegmentState
    finished_ms: int
    """Wall clock when the copy was finished, -1 before that."""
    sections: Sections

    @property
    def leader_epoch(self) -> int:
        """The one in which its last records were written."""
        return self.epochs[-1][0]

    def ranges(self) -> list[tuple[int, int, int]]:
        """(epoch, first offset, last offset), all of them together the segment."""
        ends = [start - 1 for _, start in self.epochs[1:]] + [self.end_offset]
        return [(epoch, start, end) for (epoch, start), end in zip(self.epochs, ends, strict=True)]


class Manifest(msgspec.Struct, frozen=True):
    topic_id: str
    """In hexadecimal."""
    partition: int
    leader_epoch: int
    """Of the leader that wrote it. Never falls from one manifest of a partition to the next."""
    number: int
    """Of this manifest: rises by one with every change."""
    log_start_offset: int
    rows: tuple[SegmentRow, ...]

    @property
    def bytes(self) -> int:
        """Of all finished segments."""
        return sum(row.bytes for row in self.rows if row.state is COPY_FINISHED)


class NotInManifest(ValueError):
    """A change of a row that is not there, or not in a state from which it may change so."""


NEXT = {
    (COPY_STARTED, COPY_FINISHED),
    (COPY_STARTED, DELETE_STARTED),
    (COPY_FINISHED, DELETE_STARTED),
    (DELETE_STARTED, DELETE_STARTED),
}


def empty_manifest(topic_id: bytes, partition: int, leader_epoch: int, log_start_offset: int) -> Manifest:
    return Manifest(topic_id.hex(), partition, leader_epoch, 0, log_start_offset, ())


def check_row(row: SegmentRow) -> str:
    """What is wrong with it in itself, as one clause; empty if nothing is."""
    starts = [start for _, start in row.epochs]
    epochs = [epoch for epoch, _ in row.epochs]
    if not 0 <= row.base_offset <= row.end_offset:
        return f"offsets {row.base_offset} to {row.end_offset}"
    if not starts or starts[0] != row.base_offset or starts[-1] > row.end_offset:
        return f"epochs {row.epochs} for offsets {row.base_offset} to {row.end_offset}"
    if any(one >= two for values in (starts, epochs) for one, two in pairwise(values)):
        return f"epochs {row.epochs}, which do not rise"
    return ""


def adding(manifest: Manifest, row: SegmentRow, leader_epoch: int) -> Manifest:
    """The copy of a segment begins."""
    assert row.state is COPY_STARTED and not check_row(row), check_row(row)
    assert all(known.id != row.id for known in manifest.rows), "every attempt to copy has an id of its own"
    return _changed(manifest, leader_epoch, rows=(*manifest.rows, row))


def finishing(manifest: Manifest, row_id: str, finished_ms: int, leader_epoch: int) -> Manifest:
    """The object is whole and durable. Raises NotInManifest."""
    rows = _moved(manifest, {row_id}, COPY_FINISHED)
    rows = tuple(msgspec.structs.replace(row, finished_ms=finished_ms) if row.id == row_id else row for row in rows)
    return _changed(manifest, leader_epoch, rows=rows)


def deleting(manifest: Manifest, row_ids: Collection[str], log_start_offset: int, leader_epoch: int) -> Manifest:
    """From here on nobody reads these, and the log begins at `log_start_offset` at the least. Raises NotInManifest."""
    start = max(manifest.log_start_offset, log_start_offset)
    return _changed(manifest, leader_epoch, rows=_moved(manifest, row_ids, DELETE_STARTED), log_start_offset=start)


def without(manifest: Manifest, row_ids: Collection[str], leader_epoch: int) -> Manifest:
    """Their objects are gone. Raises NotInManifest for one whose deletion never began."""
    gone = [row for row in manifest.rows if row.id in row_ids]
    if len(gone) != len(row_ids) or any(row.state is not DELETE_STARTED for row in gone):
        raise NotInManifest(f"Not all of {sorted(row_ids)} are being deleted.")
    return _changed(manifest, leader_epoch, rows=tuple(row for row in manifest.rows if row.id not in row_ids))


def starting_at(manifest: Manifest, log_start_offset: int, leader_epoch: int) -> Manifest:
    """The log begins there, or where it began before if that is later."""
    start = max(manifest.log_start_offset, log_start_offset)
    return _changed(manifest, leader_epoch, rows=manifest.rows, log_start_offset=start)


def _moved(manifest: Manifest, row_ids: Collection[str], state: SegmentState) -> tuple[SegmentRow, ...]:
    known = {row.id: row.state for row in manifest.rows}
    for row_id in sorted(row_ids):
        if (known.get(row_id), state) not in NEXT:
            raise NotInManifest(f"Segment {row_id} is {known.get(row_id)!r}, and cannot become {state!r}.")
    return tuple(msgspec.structs.replace(row, state=state) if row.id in row_ids else row for row in manifest.rows)


def _changed(
    manifest: Manifest, leader_epoch: int, rows: tuple[SegmentRow, ...], log_start_offset: int | None = None
) -> Manifest:
    assert leader_epoch >= manifest.leader_epoch, "a deposed leader changes nothing"
    return msgspec.structs.replace(
        manifest,
        leader_epoch=leader_epoch,
        number=manifest.number + 1,
        log_start_offset=manifest.log_start_offset if log_start_offset is None else log_start_offset,
        rows=rows,
    )
