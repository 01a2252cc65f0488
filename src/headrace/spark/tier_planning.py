"""Ranges below the local log start, planned as objects of the tier: tasks read them without any broker."""

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from headrace.core.producers import AbortedTransaction
from headrace.core.tier_rows import SegmentRow
from headrace.errors import KafkaError
from headrace.model import ZERO_UUID, TopicPartition
from headrace.spark.options import Connection
from headrace.spark.planning import Cold, Piece, Range
from headrace.spark.tier_view import Remote
from headrace.tier.segment_reading import AbortIndex

log = logging.getLogger(__name__)

PIECE_BYTES_MAX = 64 << 20
"""Segments that are smaller than that are read together by one task."""

INDEXES_MAX = 32
"""Of aborted transactions that are sent with a piece. A later one than these matters to hardly anybody."""


class Part(NamedTuple):
    """Records from `start` to before `end`, in the object of one segment."""

    start: int
    end: int
    key: str
    row: SegmentRow


class Aborts(NamedTuple):
    """Where aborted transactions of a piece are found, and those of which the tier does not tell."""

    indexes: tuple[AbortIndex, ...] = ()
    across: tuple[AbortedTransaction, ...] = ()
    is_whole: bool = True
    """Not if there are more indexes than were sent."""


NO_ABORTS = Aborts()


@dataclass(frozen=True)
class TierPiece(Piece):
    url: str
    parts: tuple[Part, ...]
    """In order, those of them that may hold what is asked for."""
    aborts: Aborts = NO_ABORTS

    def cut(self, starts: Sequence[int]) -> list[Piece]:
        ends = [*starts[1:], self.range.end]
        return [self._between(start, end) for start, end in zip(starts, ends, strict=True)]

    def since(self, time_ms: int, /) -> Piece | None:
        parts = tuple(part for part in self.parts if part.row.max_timestamp_ms >= time_ms)
        return replace(self, parts=parts) if parts else None

    def _between(self, start: int, end: int) -> "TierPiece":
        parts = tuple(
            part._replace(start=max(part.start, start), end=min(part.end, end))
            for part in self.parts
            if part.start < end and start < part.end
        )
        return replace(self, range=replace(self.range, start=start, end=end), parts=parts)


class TierView(Protocol):
    def local_starts(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """About where the leaders' disks begin; empty where brokers know of no tier."""
        ...

    def remote(self, local_starts: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Remote]:
        """What the leaders say of the tier up to there; partitions without one are left out."""
        ...


def cold_of(view: TierView, connection: Connection) -> Cold:
    def cold(ranges: Sequence[Range]) -> dict[Range, Sequence[Piece]]:
        if not connection.reads_tier:
            return {}
        try:
            starts = view.local_starts([one.partition for one in ranges])
            below = [one for one in ranges if one.start < starts.get(one.partition, 0)]
            remote = view.remote({one.partition: starts[one.partition] for one in below}) if below else {}
        except KafkaError as error:  # brokers read the tier too
            log.warning("what is in the tier is fetched from brokers: %s", error)
            return {}
        return {
            one: _pieces(one, remote[one.partition], connection)
            for one in below
            if one.partition in remote and one.topic_id in (remote[one.partition].topic_id, ZERO_UUID)
        }

    return cold


def _pieces(wanted: Range, remote: Remote, connection: Connection) -> list[Piece]:
    pieces: list[Piece] = []
    indexes = _abort_indexes(wanted.start, remote) if connection.is_read_committed else []
    for parts in _grouped(_parts(wanted, remote)):
        aborts = _aborts(parts[0].start, indexes, remote) if connection.is_read_committed else NO_ABORTS
        place = replace(wanted, start=parts[0].start, end=parts[-1].end)
        pieces.append(TierPiece(place, connection.tier_url or remote.url, tuple(parts), aborts))
    return pieces


def _parts(wanted: Range, remote: Remote) -> Iterator[Part]:
    """From the start of the range on, up to where the leader's disk begins, or to a gap."""
    position, limit = wanted.start, min(wanted.end, remote.local_start)
    while position < limit and (row := remote.log.row_for(position)) is not None:
        end = min(row.end_offset + 1, limit)
        yield Part(position, end, remote.keys[row.id], row)
        position = end


def _grouped(parts: Iterable[Part]) -> Iterator[list[Part]]:
    group: list[Part] = []
    size = 0
    for part in parts:
        if group and size + part.row.bytes > PIECE_BYTES_MAX:
            yield group
            group, size = [], 0
        group.append(part)
        size += part.row.bytes
    if group:
        yield group


def _abort_indexes(start: int, remote: Remote) -> list[tuple[int, AbortIndex]]:
    """Of the segment with `start` and of later ones, each with its last offset: looked for once, there may be very many
    segments."""
    return [
        (row.end_offset, AbortIndex(remote.keys[row.id], row.sections.txnindex))
        for row in remote.log.rows_from(start)
        if row.base_offset < remote.local_start and row.sections.txnindex is not None and row.sections.txnindex[1]
    ]


def _aborts(start: int, indexes: Sequence[tuple[int, AbortIndex]], remote: Remote) -> Aborts:
    """Also of later segments than those of a piece: a marker may lie behind what it ends."""
    first = bisect_left(indexes, start, key=lambda one: one[0])
    sent = tuple(index for _, index in indexes[first : first + INDEXES_MAX])
    return Aborts(sent, remote.aborted_across, len(indexes) - first <= INDEXES_MAX)
