"""What may never be in a history of tiered partitions: holes, divergent or lost objects, leaders in a wrong order."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, combinations

from headrace.model import TopicPartition
from headrace.sim.history import Acked, Event, Read
from headrace.sim.tier_history import (
    Answered,
    Began,
    Covered,
    Damaged,
    Dangling,
    DeleteAsked,
    DeleteDone,
    Elected,
    Orphan,
    Passed,
    PointerMoved,
    TurnedAway,
)
from headrace.sim.violation import Violation

NO_LEADER = -1


def holes(events: Sequence[Event]) -> Iterator[Violation]:
    """Whoever may lead has, or can get from the tier, everything from the log start on."""
    for seen in events:
        if isinstance(seen, Covered):
            missing = first_missing(seen)
            if missing < seen.end:
                yield Violation(
                    "hole",
                    seen.at_s,
                    f"at {seen.at_s:.3f} s {seen.partition} began at {seen.log_start}, and node {seen.node_id} had "
                    f"{seen.local_start} to {seen.end}, but nobody had offset {missing}: the tier has "
                    f"{', '.join(f'{first} to {last}' for first, last in seen.remote) or 'nothing'}",
                )
        elif isinstance(seen, TurnedAway) and seen.log_start <= seen.asked_offset < seen.high_watermark:
            yield Violation(
                "hole",
                seen.at_s,
                f"{seen.client} was told at {seen.at_s:.3f} s that {seen.partition} has no offset {seen.asked_offset}, "
                f"though it began at {seen.log_start} and was committed up to {seen.high_watermark}",
            )


def first_missing(seen: Covered) -> int:
    """The first offset from the log start on that is nowhere; `end` if there is none."""
    at = seen.log_start
    for first, last in sorted(seen.remote):
        if at < seen.local_start and first <= at:
            at = max(at, last + 1)
    return seen.end if at >= seen.local_start else at


def dangling_references(events: Sequence[Event]) -> Iterator[Violation]:
    for event in events:
        if isinstance(event, Dangling):
            sentence = f"at {event.at_s:.3f} s {event.key} of {event.partition} was in force, and not there"
            yield Violation("dangling reference", event.at_s, sentence)


def orphans(events: Sequence[Event]) -> Iterator[Violation]:
    for event in events:
        if isinstance(event, Orphan):
            yield Violation("orphan", event.at_s, f"nothing names {event.key}, and it is still there")


def damaged_segments(events: Sequence[Event]) -> Iterator[Violation]:
    for event in events:
        if isinstance(event, Damaged):
            yield Violation("damaged segment", 0, f"{event.key}: {event.problem}")


def divergent_answers(events: Sequence[Event]) -> Iterator[Violation]:
    """A leader hands out only records of the epochs that its own list says."""
    for answer in events:
        if isinstance(answer, Answered):
            for span in answer.spans:
                if span.leaders_epoch not in (span.epoch, -1):
                    yield Violation(
                        "divergent segment served",
                        answer.at_s,
                        f"{answer.client} was handed {answer.partition} offsets {span.base_offset} to "
                        f"{span.last_offset} of epoch {span.epoch}, and the leader's are of epoch "
                        f"{span.leaders_epoch}",
                    )


def gaps_in_answers(events: Sequence[Event]) -> Iterator[Violation]:
    """An answer begins with the batch that was asked for, and goes on without a gap or a repetition."""
    for answer in events:
        if not isinstance(answer, Answered) or not answer.spans:
            continue
        at = answer.asked_offset
        for number, span in enumerate(answer.spans):
            if span.base_offset > at or (number and span.base_offset != at) or span.last_offset < at:
                sentence = (
                    f"{answer.client} asked {answer.partition} for {answer.asked_offset} at {answer.at_s:.3f} s and "
                    f"was handed {span.base_offset} to {span.last_offset} where {at} was expected"
                )
                yield Violation("gap in an answer", answer.at_s, sentence)
                break
            at = span.last_offset + 1


def missed_by_readers(events: Sequence[Event]) -> Iterator[Violation]:
    """Who reads from the beginning gets everything that was acknowledged before, as long as it is kept."""
    read: dict[tuple[str, TopicPartition], set[int]] = defaultdict(set)
    acked: dict[TopicPartition, list[Acked]] = defaultdict(list)
    for event in events:
        if isinstance(event, Read):
            read[event.client, event.partition].add(event.offset)
        elif isinstance(event, Acked):
            acked[event.partition].append(event)
    for passed in events:
        if isinstance(passed, Passed):
            seen = read[passed.client, passed.partition]
            for one in acked[passed.partition]:
                if one.at_s < passed.asked_s and passed.log_start <= one.offset < passed.end and one.offset not in seen:
                    yield Violation(
                        "missed by a reader",
                        passed.at_s,
                        f"{passed.client} read {passed.partition} from the beginning to {passed.end}, but not "
                        f"{one.value!r} at offset {one.offset}, which was acknowledged at {one.at_s:.3f} s",
                    )
                    break


def wrong_beginnings(events: Sequence[Event]) -> Iterator[Violation]:
    """Nothing goes that nobody wanted to go, and what went does not come back."""
    wanted: dict[TopicPartition, int] = defaultdict(int)
    done: dict[TopicPartition, int] = defaultdict(int)
    for event in events:
        if isinstance(event, DeleteAsked):
            wanted[event.partition] = max(wanted[event.partition], event.offset)
        elif isinstance(event, DeleteDone):
            done[event.partition] = max(done[event.partition], event.offset)
        elif isinstance(event, Covered) and event.log_start > wanted[event.partition]:
            sentence = (
                f"{event.partition} began at {event.log_start} at {event.at_s:.3f} s for node {event.node_id}, "
                f"and nobody asked for more than {wanted[event.partition]}"
            )
            yield Violation("records gone too early", event.at_s, sentence)
        elif isinstance(event, Began) and event.offset < done[event.partition]:
            sentence = f"{event.partition} begins at {event.offset}, after it began at {done[event.partition]}"
            yield Violation("deleted records back", 0, sentence)


def deposed_leaders(events: Sequence[Event]) -> Iterator[Violation]:
    """Only who leads says what is in the tier."""
    for moved in events:
        if isinstance(moved, PointerMoved) and moved.epoch != moved.leaders_epoch:
            sentence = (
                f"a leader of epoch {moved.epoch} of {moved.partition} put a manifest in force at {moved.at_s:.3f} s, "
                f"and the leader was that of epoch {moved.leaders_epoch}"
            )
            yield Violation("deposed leader", moved.at_s, sentence)


def wrong_leaders(events: Sequence[Event]) -> Iterator[Violation]:
    """KIP-1303: it orders candidates. It leaves no partition without a leader, and demotes nobody who is well."""
    for event in events:
        if not isinstance(event, Elected) or event.is_unclean:
            continue
        if event.after == NO_LEADER:
            if event.able:
                sentence = f"{event.partition} has no leader at {event.at_s:.3f} s, though {_of(event.able)} could lead"
                yield Violation("without a leader", event.at_s, sentence)
        elif not any(
            may_lead(event.replicas, event.before, event.after, able, thin)
            for able in _between(event.able, event.perhaps_able)
            for thin in _between(event.thin, event.perhaps_thin)
        ):
            sentence = (
                f"{event.partition} went from {event.before} to {event.after} at {event.at_s:.3f} s; replicas are "
                f"{list(event.replicas)}, able {_of(event.able)}, perhaps {_of(event.perhaps_able)}, "
                f"thin {_of(event.thin)}, perhaps {_of(event.perhaps_thin)}"
            )
            yield Violation("wrong leader", event.at_s, sentence)


def may_lead(replicas: Sequence[int], before: int, after: int, able: frozenset[int], thin: frozenset[int]) -> bool:
    """The rules, written down a second time."""
    preferred = replicas[0]
    well = [replica for replica in replicas if replica in able and replica not in thin]
    first = next(chain(well, (replica for replica in replicas if replica in able)), NO_LEADER)
    if before not in able:
        return after == first
    if before == preferred:
        return False
    if not well or preferred in well:
        return after == preferred and preferred in able
    return before in thin and after == first


def _between(surely: frozenset[int], perhaps: frozenset[int]) -> list[frozenset[int]]:
    others = sorted(perhaps - surely)
    return [surely | set(some) for count in range(len(others) + 1) for some in combinations(others, count)]


def _of(nodes: Iterable[int]) -> str:
    return "{" + ", ".join(map(str, sorted(nodes))) + "}"


TIER_CHECKERS: tuple[Callable[[Sequence[Event]], Iterable[Violation]], ...] = (
    holes,
    dangling_references,
    orphans,
    damaged_segments,
    divergent_answers,
    gaps_in_answers,
    missed_by_readers,
    wrong_beginnings,
    deposed_leaders,
    wrong_leaders,
)
