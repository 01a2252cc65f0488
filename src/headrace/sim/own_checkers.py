"""What may never be in a history of ownership: whoever was displaced is served no more, and each owner is one.

Of partitions that only their owner may use, by a setting of their topic or because it claims them so. The latter others
may use until they are claimed for the first time, and after a release until they are claimed again. A leader that began
meanwhile, and that nobody asked for a grant, does not hear of that claim if it is cut off: it commits nothing any more,
but it may still hand out what was committed before, and take records that are lost when it hears of the next leader.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace.sim.history import Event, Final, OwnGranted, OwnRead, OwnReleased, OwnSent, OwnStored
from headrace.sim.violation import Violation

KIND = "two owners"


class Opening(NamedTuple):
    """A time in which others may have been let in."""

    from_s: float
    until_s: float
    from_epoch: int
    """-1: it had never been claimed."""
    until_epoch: float
    """Of the leader that let nobody else in again."""


def shared_generations(events: Sequence[Event]) -> Iterator[Violation]:
    """One generation has one holder, however often it comes back."""
    holders: dict[tuple[str, str, int], OwnGranted] = {}
    for event in events:
        if isinstance(event, OwnGranted):
            first = holders.setdefault((event.group, event.resource, event.generation), event)
            if first.holder != event.holder:
                sentence = (
                    f"generation {event.generation} of {event.resource} was granted to {first.holder} at "
                    f"{first.at_s:.3f} s and to {event.holder} at {event.at_s:.3f} s"
                )
                yield Violation(KIND, event.at_s, sentence)


def generations_going_back(events: Sequence[Event]) -> Iterator[Violation]:
    """Who asks after another was answered gets a later generation, and no earlier fence."""
    for grants in _granted(events).values():
        for later in grants:
            before = [grant for grant in grants if grant.at_s < later.asked_s]
            highest = max(before, key=lambda grant: grant.generation, default=None)
            if highest is not None and highest.generation > later.generation:
                yield Violation(KIND, later.at_s, f"{_told(later)}, after {_told(highest)}")
            furthest = max(before, key=lambda grant: grant.fence_offset, default=None)
            if furthest is not None and furthest.fence_offset > later.fence_offset:
                yield Violation("fence going back", later.at_s, f"{_told(later)}, after {_told(furthest)}")


def records_behind_fences(events: Sequence[Event]) -> Iterator[Violation]:
    """Nothing of an old owner is at or after the fence that a later one was told."""
    sent = {event.value: event for event in events if isinstance(event, OwnSent)}
    stored_s = {event.value: event.at_s for event in events if isinstance(event, OwnStored)}
    granted, openings = _granted(events), _openings(events)
    for final in events:
        if not isinstance(final, Final) or final.value not in sent:
            continue
        by, resource = sent[final.value], str(final.partition)
        if _is_open(openings[resource], by.at_s, stored_s.get(final.value, float("inf"))):
            continue
        for grant in granted.get(resource, ()):
            if grant.generation > by.generation and grant.fence_offset <= final.offset:
                sentence = (
                    f"{final.value!r} of {by.holder}, generation {by.generation}, is in {resource} at offset "
                    f"{final.offset}, but {_told(grant)}"
                )
                yield Violation("behind a fence", grant.at_s, sentence)
                break


def served_too_late(events: Sequence[Event]) -> Iterator[Violation]:
    """What an old owner asks for after a later one was told of its grant is not done."""
    sent = {event.value: event for event in events if isinstance(event, OwnSent)}
    granted, openings = _granted(events), _openings(events)
    for event in events:
        if isinstance(event, OwnStored) and event.value in sent:
            by = sent[event.value]
            asked_s, what, is_weak = by.at_s, f"the write of {event.value!r}", not event.is_committed
        elif isinstance(event, OwnRead):
            by, asked_s, what, is_weak = _reader(event), event.asked_s, f"a read of offset {event.offset}", True
        else:
            continue
        resource = str(by.partition)
        if _is_open(openings[resource], asked_s, event.at_s):
            continue
        if is_weak and _cannot_know(event.leader_epoch, granted[resource], openings[resource]):
            continue
        for grant in granted[resource]:
            if grant.generation > by.generation and grant.at_s < asked_s:
                sentence = (
                    f"{what} of {resource}, asked for at {asked_s:.3f} s, was done for {by.holder}, "
                    f"generation {by.generation}, but {_told(grant)}"
                )
                yield Violation("served too late", event.at_s, sentence)
                break


def reads_of_the_displaced(events: Sequence[Event]) -> Iterator[Violation]:
    """Nobody is handed what a later owner wrote."""
    sent = {event.value: event for event in events if isinstance(event, OwnSent)}
    openings = _openings(events)
    for read in events:
        if not isinstance(read, OwnRead) or read.value not in sent:
            continue
        writer, resource = sent[read.value], str(read.partition)
        if writer.generation > read.generation and not _is_open(openings[resource], read.asked_s, read.at_s):
            sentence = (
                f"{read.holder}, generation {read.generation}, was handed {read.value!r} at {resource} offset "
                f"{read.offset}, which {writer.holder} wrote in generation {writer.generation}"
            )
            yield Violation("served too late", read.at_s, sentence)


def generations_mixed(events: Sequence[Event]) -> Iterator[Violation]:
    """Along a partition that was never opened again generations only rise."""
    sent = {event.value: event for event in events if isinstance(event, OwnSent)}
    openings = _openings(events)
    finals = sorted(event for event in events if isinstance(event, Final) and event.value in sent)
    for before, after in pairwise(finals):
        one, other = sent[before.value], sent[after.value]
        was_opened = any(opening.from_epoch >= 0 for opening in openings[str(before.partition)])
        if before.partition == after.partition and not was_opened and other.generation < one.generation:
            sentence = (
                f"{after.value!r} of generation {other.generation} is in {after.partition} at offset {after.offset}, "
                f"behind {before.value!r} of generation {one.generation}"
            )
            yield Violation("behind a fence", other.at_s, sentence)


def _granted(events: Sequence[Event]) -> dict[str, list[OwnGranted]]:
    """By resource; all are of one group where records are concerned."""
    granted: dict[str, list[OwnGranted]] = defaultdict(list)
    for event in events:
        if isinstance(event, OwnGranted):
            granted[event.resource].append(event)
    return granted


def _openings(events: Sequence[Event]) -> dict[str, list[Opening]]:
    granted = _granted(events)
    openings: dict[str, list[Opening]] = defaultdict(list)
    for event in events:
        if isinstance(event, OwnReleased):
            later = [
                grant
                for grant in granted[event.resource]
                if (grant.generation > event.generation if event.generation else grant.asked_s >= event.at_s)
            ]
            until_s = min((grant.at_s for grant in later), default=float("inf"))
            until_epoch = min((grant.leader_epoch for grant in later), default=float("inf"))
            openings[event.resource].append(Opening(event.from_s, until_s, event.leader_epoch, until_epoch))
    return openings


def _is_open(openings: Sequence[Opening], from_s: float, until_s: float) -> bool:
    return any(opening.from_s <= until_s and from_s <= opening.until_s for opening in openings)


def _cannot_know(epoch: int, granted: Sequence[OwnGranted], openings: Sequence[Opening]) -> bool:
    """Whether the leader of that epoch began while others were let in, and granted nothing itself."""
    return (
        epoch >= 0
        and all(grant.leader_epoch != epoch for grant in granted)
        and any(opening.from_epoch < epoch < opening.until_epoch for opening in openings)
    )


def _reader(read: OwnRead) -> OwnSent:
    return OwnSent(read.asked_s, read.holder, read.partition, read.generation, b"")


def _told(grant: OwnGranted) -> str:
    return (
        f"{grant.holder} was granted generation {grant.generation} of {grant.resource} from offset "
        f"{grant.fence_offset} on at {grant.at_s:.3f} s"
    )


OWN_CHECKERS = (
    shared_generations,
    generations_going_back,
    records_behind_fences,
    served_too_late,
    reads_of_the_displaced,
    generations_mixed,
)
