"""What a plan is made of, what it tells at first sight, and how it is cut into pieces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from headrace.pipeline.batch_checks import Finding
from headrace.pipeline.replica_reading import TIER, Piece, Topic

Document = dict[str, Any]
BEGINNING, END = "beginning", "end"
FINISHED, INSIDE = "copy_finished", "inside"
PIECES_MAX = 4_096
"""Of one replica of a partition."""


class Held(NamedTuple):
    """What one replica has, of that which is committed."""

    node: int
    is_in_sync: bool
    start: int
    end: int


class Unread(NamedTuple):
    partition: int
    node: int
    reason: str


class Doubt(NamedTuple):
    """A replica lacks something, at first sight: it may be about to get it, or about to leave the ISR."""

    node: int
    edge: str
    """Of its log: BEGINNING or END."""
    finding: Finding


@dataclass
class PartitionPlan:
    partition: int
    leader: int
    leader_epoch: int
    high_watermark: int = -1
    log_start: int = 0
    held: list[Held] = field(default_factory=list)
    tier: tuple[int, int] | None = None
    """The first offset, and that behind the last."""
    pieces: list[Piece] = field(default_factory=list)
    findings: list[tuple[int, Finding]] = field(default_factory=list)
    """By node."""
    doubts: list[Doubt] = field(default_factory=list)
    """Findings, if they are there when somebody looks again."""


@dataclass
class Plan:
    topic: Topic
    partitions: list[PartitionPlan]
    unread: list[Unread]

    @property
    def pieces(self) -> list[Piece]:
        return [piece for partition in self.partitions for piece in partition.pieces]


# What is missing.


def doubts(partition: PartitionPlan, tiered: Mapping[int, Document] | None) -> list[Doubt]:
    """Of replicas that begin later than their leader's log, or are in sync and do not have all that was committed.

    Below its beginning on a disk a tiered log goes on in the tier: `tiered` is what leaders say of it.
    """
    covered = partition.log_start if tiered is None else covered_to(partition, tiered.get(partition.partition))
    found = []
    for held in partition.held:
        if held.is_in_sync and held.end < partition.high_watermark:
            text = (
                f"node {held.node} is in sync, and lacks what is committed up to offset {partition.high_watermark - 1}"
            )
            found.append(Doubt(held.node, END, Finding("missing", held.end, text)))
        if held.node != partition.leader and covered is not None and held.start > covered:
            elsewhere = "its leader's log begins before them" if tiered is None else "they are not in the tier either"
            text = f"offsets {covered} to {held.start - 1} are not on node {held.node}, and {elsewhere}"
            found.append(Doubt(held.node, BEGINNING, Finding("missing", covered, text)))
    return found


def covered_to(partition: PartitionPlan, told: Document | None) -> int | None:
    """The offset up to which the tier has all of the log, from its start on; None if nobody says what it has."""
    if told is None or "segments" not in told:
        return None
    at = max(partition.log_start, int(told["log_start"]))
    for one in sorted(told["segments"], key=lambda one: int(one["base_offset"])):
        if one["state"] == FINISHED and one["verdict"] == INSIDE and one["base_offset"] <= at:
            at = max(at, int(one["end_offset"]) + 1)
    return at


def check_reach(partition: PartitionPlan, told: Document, pieces: Sequence[Piece]) -> None:
    at = told["log_start"]
    inside = [piece for piece in pieces if piece.is_log]
    for piece in [*inside, Piece(partition.partition, TIER, told["local_log_start"], told["local_log_start"])]:
        if piece.start > at:
            text = f"offsets {at} to {piece.start - 1} are neither in the tier nor on its leader's disk"
            partition.findings.append((TIER, Finding("missing", at, text)))
        at = max(at, piece.end)
    if inside:
        partition.tier = (inside[0].start, max(piece.end for piece in inside))


# Cutting.


def cut(partition: PartitionPlan, segments: Sequence[Piece], size: int, piece_bytes: int) -> None:
    """All replicas at the same offsets, so that pieces can be compared: where one begins or ends, where a segment of
    the tier does, and between them so that a piece has about so many bytes."""
    partition.pieces += segments
    inside = {(piece.start, piece.end) for piece in segments if piece.is_log}
    edges = {offset for held in partition.held for offset in (held.start, held.end)}
    edges |= {offset for both in inside for offset in both}
    span = max((held.end - held.start for held in partition.held), default=0)
    step = max(1, span // max(1, min(PIECES_MAX, size // piece_bytes)))
    for held in partition.held:
        cuts = sorted({held.start, held.end, *(edge for edge in edges if held.start < edge < held.end)})
        for start, end in pairwise(cuts):
            length = end - start if (start, end) in inside else step
            partition.pieces += [
                Piece(partition.partition, held.node, at, min(end, at + length)) for at in range(start, end, length)
            ]
