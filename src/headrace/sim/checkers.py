"""What may never be in a history, whatever happened to the cluster. Shared by the simulator and by chaos tests."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from headrace.model import TopicPartition
from headrace.sim.batch_checkers import BATCH_CHECKERS
from headrace.sim.group_checkers import GROUP_CHECKERS
from headrace.sim.history import (
    Acked,
    Event,
    Final,
    LeaderAcked,
    NotRecovered,
    Read,
    Replica,
    Seen,
    Sent,
    ToldEnd,
    TopicChanged,
    TopicsFound,
    Underacked,
    Unhandled,
    Watermark,
)
from headrace.sim.own_checkers import OWN_CHECKERS
from headrace.sim.tier_checkers import TIER_CHECKERS
from headrace.sim.tier_history import Began
from headrace.sim.transaction_checkers import (
    aborted_reads,
    lost_transactions,
    repeated_transactions,
    torn_transactions,
    vanished_reads,
    wrong_offsets,
)
from headrace.sim.violation import Violation as Violation

E = TypeVar("E")


def check(events: Sequence[Event]) -> list[Violation]:
    """Every promise that was broken, the first one first."""
    found = [violation for checker in CHECKERS for violation in checker(events)]
    return sorted(found, key=lambda violation: violation.at_s)


def lost_writes(events: Sequence[Event]) -> Iterator[Violation]:
    if any(_all(events, NotRecovered)):
        return  # nobody could look
    there = {(final.partition, final.value) for final in _all(events, Final)}
    begins = {began.partition: began.offset for began in _all(events, Began)}
    for acked in _all(events, Acked):
        if acked.offset >= begins.get(acked.partition, 0) and (acked.partition, acked.value) not in there:
            yield Violation(
                "lost write",
                acked.at_s,
                f"{acked.value!r} of {acked.client} was acknowledged at {acked.partition} offset {acked.offset} "
                f"at {acked.at_s:.3f} s, and is not there in the end",
            )


def duplicates(events: Sequence[Event]) -> Iterator[Violation]:
    places: dict[tuple[TopicPartition, bytes], int] = {}
    for final in _all(events, Final):
        first = places.setdefault((final.partition, final.value), final.offset)
        if first != final.offset:
            sentence = f"{final.value!r} is in {final.partition} at offset {first} and again at {final.offset}"
            yield Violation("duplicate", 0, sentence)


def inconsistent_offsets(events: Sequence[Event]) -> Iterator[Violation]:
    """An offset holds one record, for everybody and for ever; so does what a producer was told."""
    seen: dict[tuple[TopicPartition, int], Acked | Read | Seen | Final] = {}
    for event in events:
        if not isinstance(event, Acked | Read | Seen | Final):
            continue
        first = seen.setdefault((event.partition, event.offset), event)
        if first.value != event.value:
            at_s = 0 if isinstance(event, Final) else event.at_s
            sentence = (
                f"{event.partition} offset {event.offset} is {first.value!r} for {_who(first)}, "
                f"{event.value!r} for {_who(event)}"
            )
            yield Violation("inconsistent offsets", at_s, sentence)


def reorderings(events: Sequence[Event]) -> Iterator[Violation]:
    """What one producer sent to a partition is there in that order; a consumer goes forward only."""
    order = {(sent.partition, sent.value): (sent.client, at) for at, sent in enumerate(_all(events, Sent))}
    last: dict[tuple[TopicPartition, str], Final] = {}
    for final in sorted(_all(events, Final)):
        if (final.partition, final.value) not in order:
            continue
        client, at = order[final.partition, final.value]
        before = last.get((final.partition, client))
        if before is not None and order[before.partition, before.value][1] > at:
            sentence = f"{client} sent {final.value!r} before {before.value!r}, but {final.partition} has it behind"
            yield Violation("reordering", 0, sentence)
        last[final.partition, client] = final
    positions: dict[tuple[TopicPartition, str], int] = {}
    for read in _all(events, Read):
        position = positions.get((read.partition, read.client), -1)
        if read.offset <= position:
            sentence = f"{read.client} read {read.partition} offset {read.offset} after offset {position}"
            yield Violation("reordering", read.at_s, sentence)
        positions[read.partition, read.client] = max(position, read.offset)


def ends_going_back(events: Sequence[Event]) -> Iterator[Violation]:
    """Who asks for the end after somebody was told, read or was acknowledged something hears of at least that."""
    told: dict[TopicPartition, list[tuple[float, int, str]]] = defaultdict(list)
    asked: dict[TopicPartition, list[ToldEnd]] = defaultdict(list)
    for event in events:
        if isinstance(event, ToldEnd):
            asked[event.partition].append(event)
            told[event.partition].append((event.at_s, event.offset, event.client))
        elif isinstance(event, Acked | Read | Seen):
            told[event.partition].append((event.at_s, event.offset + 1, event.client))
    for partition, questions in asked.items():
        known = sorted(told[partition])
        highest, by, at = 0, "", 0
        for question in sorted(questions):
            while at < len(known) and known[at][0] < question.asked_s:
                if known[at][1] > highest:
                    highest, by = known[at][1], f"{known[at][2]} knew at {known[at][0]:.3f} s"
                at += 1
            if question.offset < highest:
                yield Violation(
                    "offsets going back",
                    question.at_s,
                    f"{question.client} was told at {question.at_s:.3f} s that {partition} ends at {question.offset}, "
                    f"but {by} that it reaches {highest}",
                )


def answers_of_other_epochs(events: Sequence[Event]) -> Iterator[Violation]:
    """Who names a leader epoch is answered in that one, or not at all."""
    for told in _all(events, ToldEnd):
        if told.asked_epoch >= 0 and told.leader_epoch != told.asked_epoch:
            sentence = (
                f"{told.client} asked {told.partition} in epoch {told.asked_epoch} "
                f"and was told {told.offset} in epoch {told.leader_epoch}"
            )
            yield Violation("answer of another epoch", told.at_s, sentence)


def acknowledged_by_too_few(events: Sequence[Event]) -> Iterator[Violation]:
    for event in _all(events, Underacked):
        sentence = (
            f"node {event.node_id} committed records of {event.partition} in epoch {event.epoch} "
            f"with {event.members} in the ISR"
        )
        yield Violation("acknowledged by too few", event.at_s, sentence)


def forgotten_topics(events: Sequence[Event]) -> Iterator[Violation]:
    """What was created is there and what was deleted is not, by the last word on each topic.

    A topic of the same name and another id is another one: a client whose connection was lost asks again, and its
    first request may come in after the second was answered, and what that made deleted.
    """
    changed = {event.topic_id: event for event in _all(events, TopicChanged)}
    for found in _all(events, TopicsFound):
        for topic_id, last in changed.items():
            if last.is_certain and last.at_s < found.asked_s and last.created != (topic_id in found.topic_ids):
                was, is_there = ("created", "not there") if last.created else ("deleted", "there again")
                sentence = (
                    f"topic {last.topic} was {was} at {last.at_s:.3f} s and is {is_there} at {found.asked_s:.3f} s"
                )
                yield Violation("wrong topics", found.asked_s, sentence)


def two_leaders(events: Sequence[Event]) -> Iterator[Violation]:
    first: dict[tuple[TopicPartition, int], int] = {}
    for acked in _all(events, LeaderAcked):
        leader = first.setdefault((acked.partition, acked.epoch), acked.node_id)
        if leader != acked.node_id:
            sentence = (
                f"nodes {leader} and {acked.node_id} both acknowledged in epoch {acked.epoch} of {acked.partition}"
            )
            yield Violation("two leaders", acked.at_s, sentence)


def watermarks_going_back(events: Sequence[Event]) -> Iterator[Violation]:
    highest: dict[tuple[str, TopicPartition, int], int] = {}
    for mark in _all(events, Watermark):
        key = (mark.life, mark.partition, mark.epoch)
        before = highest.get(key, -1)
        if mark.offset < before:
            sentence = (
                f"the high watermark of {mark.partition} in epoch {mark.epoch} at {mark.life} "
                f"went from {before} to {mark.offset}"
            )
            yield Violation("high watermark going back", mark.at_s, sentence)
        highest[key] = max(before, mark.offset)


def differing_replicas(events: Sequence[Event]) -> Iterator[Violation]:
    by_partition: dict[TopicPartition, list[Replica]] = defaultdict(list)
    for replica in _all(events, Replica):
        by_partition[replica.partition].append(replica)
    for partition, replicas in by_partition.items():
        if len({replica[2:] for replica in replicas}) > 1:
            each = ", ".join(
                f"node {node_id} has {start}..{end} ({digest[:8]})" for _, node_id, start, end, digest in replicas
            )
            yield Violation("differing replicas", 0, f"{partition}: {each}")


def failures_to_recover(events: Sequence[Event]) -> Iterator[Violation]:
    for event in _all(events, NotRecovered):
        yield Violation("no recovery", event.at_s, event.what)


def unhandled_exceptions(events: Sequence[Event]) -> Iterator[Violation]:
    for event in _all(events, Unhandled):
        yield Violation("unhandled exception", 0, event.what)


CHECKERS: tuple[Callable[[Sequence[Event]], Iterable[Violation]], ...] = (
    lost_writes,
    duplicates,
    inconsistent_offsets,
    reorderings,
    ends_going_back,
    two_leaders,
    answers_of_other_epochs,
    acknowledged_by_too_few,
    forgotten_topics,
    watermarks_going_back,
    differing_replicas,
    aborted_reads,
    torn_transactions,
    lost_transactions,
    repeated_transactions,
    vanished_reads,
    wrong_offsets,
    *BATCH_CHECKERS,
    *OWN_CHECKERS,
    *GROUP_CHECKERS,
    *TIER_CHECKERS,
    failures_to_recover,
    unhandled_exceptions,
)


def _all(events: Sequence[Event], kind: type[E]) -> Iterator[E]:
    return (event for event in events if isinstance(event, kind))


def _who(event: Acked | Read | Seen | Final) -> str:
    match event:
        case Acked():
            return f"{event.client} (acknowledged at {event.at_s:.3f} s)"
        case Read() | Seen():
            return f"{event.client} (read at {event.at_s:.3f} s)"
    return "everybody in the end"
