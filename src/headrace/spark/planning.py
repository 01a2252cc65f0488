"""From ranges of offsets to the pieces that tasks read: none twice, none left out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace

from pyspark.sql.datasource import InputPartition

from headrace.model import TopicPartition


@dataclass(frozen=True)
class Range:
    """Records of a partition from `start` to before `end`; the topic's id says which topic of that name is meant."""

    partition: TopicPartition
    topic_id: bytes
    start: int
    end: int
    epoch: int = -1
    """Of a leader whose log reached `end`, if that is known."""

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Piece(InputPartition):
    """What one task reads: fetched from brokers. Subclasses are read otherwise (`reading.read`)."""

    range: Range

    def cut(self, starts: Sequence[int]) -> list["Piece"]:
        """In pieces that begin there; the first of `starts` is its own."""
        ends = [*starts[1:], self.range.end]
        return [Piece(replace(self.range, start=start, end=end)) for start, end in zip(starts, ends, strict=True)]

    def since(self, _time_ms: int, /) -> "Piece | None":
        """What is left of it for who wants no older records; more may be left than such."""
        return self


Cold = Callable[[Sequence[Range]], Mapping[Range, Sequence[Piece]]]
"""What can be read without brokers: of each range pieces that touch each other and cover it from its start on, as far
as they come. The rest of the range is fetched."""


def no_tier(_ranges: Sequence[Range]) -> Mapping[Range, Sequence[Piece]]:
    return {}


def plan(
    ranges: Iterable[Range], partitions_min: int | None, records_max: int | None, cold: Cold = no_tier
) -> list[Piece]:
    """In the order of partitions and offsets."""
    pieces: list[Piece] = []
    wanted = sorted((one for one in ranges if one.size > 0), key=lambda one: (one.partition, one.start))
    by_range = cold(wanted) if wanted else {}
    for one in wanted:
        found = list(by_range.get(one, ()))
        position = found[-1].range.end if found else one.start
        if position < one.end:
            found.append(Piece(replace(one, start=position)))
        pieces += found
    if records_max is not None:
        pieces = [part for piece in pieces for part in _cut_evenly(piece, -(-piece.range.size // records_max))]
    if pieces and partitions_min is not None and len(pieces) < partitions_min:
        pieces = _cut_to(pieces, partitions_min)
    return pieces


def _cut_to(pieces: Sequence[Piece], count: int) -> list[Piece]:
    """In as many parts, the large ones in more; fewer only where there are not so many records."""
    sizes = [piece.range.size for piece in pieces]
    total = sum(sizes)
    parts = [max(1, min(size, count * size // total)) for size in sizes]
    largest = [(-size / of, at) for at, (size, of) in enumerate(zip(sizes, parts, strict=True))]
    heapify(largest)
    for _ in range(count - sum(parts)):
        at = largest[0][1]
        if sizes[at] <= parts[at]:
            break
        parts[at] += 1
        heapreplace(largest, (-sizes[at] / parts[at], at))
    return [part for piece, of in zip(pieces, parts, strict=True) for part in _cut_evenly(piece, of)]


def _cut_evenly(piece: Piece, parts: int) -> list[Piece]:
    start, size = piece.range.start, piece.range.size
    return piece.cut([start + size * at // parts for at in range(parts)]) if parts > 1 else [piece]
