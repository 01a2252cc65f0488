"""What may never be in a history of transactions: each is read as a whole or not at all, and its end is kept."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from headrace.model import TopicPartition
from headrace.sim.history import (
    CommitAsked,
    CommittedFinal,
    CommittedRead,
    Event,
    NotRecovered,
    OffsetFinal,
    TxnEnded,
    TxnOffset,
    TxnSent,
)
from headrace.sim.violation import Violation

Place = tuple[TopicPartition, bytes]


def aborted_reads(events: Sequence[Event]) -> Iterator[Violation]:
    """Who reads what is committed never reads of a transaction that was not asked to be, or was rolled back."""
    aborted = _never_asked(events)
    for event in events:
        if isinstance(event, CommittedRead | CommittedFinal):
            txn = aborted.get((event.partition, event.value))
            if txn is not None:
                at_s = event.at_s if isinstance(event, CommittedRead) else 0
                sentence = f"{event.value!r} at {event.partition} offset {event.offset} was read, but {txn} was aborted"
                yield Violation("aborted read", at_s, sentence)


def torn_transactions(events: Sequence[Event]) -> Iterator[Violation]:
    if _nobody_could_look(events):
        return
    there = _in_the_end(events)
    for txn, places in _sent(events).items():
        missing = [place for place in places if place not in there]
        if missing and len(missing) < len(places):
            partition, value = missing[0]
            sentence = f"of {txn} {len(places) - len(missing)} records are there, but {value!r} in {partition} is not"
            yield Violation("torn transaction", 0, sentence)


def lost_transactions(events: Sequence[Event]) -> Iterator[Violation]:
    if _nobody_could_look(events):
        return
    there, sent = _in_the_end(events), _sent(events)
    for ended in events:
        if isinstance(ended, TxnEnded) and ended.outcome == "committed":
            places = sent.get(ended.txn, [])
            if places and not any(place in there for place in places):
                sentence = f"{ended.txn} was committed at {ended.at_s:.3f} s, and nothing of it is there in the end"
                yield Violation("lost transaction", ended.at_s, sentence)


def repeated_transactions(events: Sequence[Event]) -> Iterator[Violation]:
    """Each committed record is there once."""
    first: dict[Place, int] = {}
    for event in events:
        if isinstance(event, CommittedFinal):
            at = first.setdefault((event.partition, event.value), event.offset)
            if at != event.offset:
                sentence = f"{event.value!r} is in {event.partition} at offset {at} and again at {event.offset}"
                yield Violation("duplicate", 0, sentence)


def vanished_reads(events: Sequence[Event]) -> Iterator[Violation]:
    """What was read as committed once is committed for ever, at the same place."""
    if _nobody_could_look(events):
        return
    there = {(event.partition, event.offset): event.value for event in events if isinstance(event, CommittedFinal)}
    for event in events:
        if isinstance(event, CommittedRead) and there.get((event.partition, event.offset)) != event.value:
            sentence = f"{event.client} read {event.value!r} at {event.partition} offset {event.offset}: it is gone"
            yield Violation("lost transaction", event.at_s, sentence)


def wrong_offsets(events: Sequence[Event]) -> Iterator[Violation]:
    """The offset of a group is that of the last committed transaction which sent one."""
    sent = {(event.group, event.offset): event.txn for event in events if isinstance(event, TxnOffset)}
    asked_s = {event.txn: event.at_s for event in events if isinstance(event, CommitAsked)}
    ended = {event.txn: event for event in events if isinstance(event, TxnEnded)}
    for final in events:
        if not isinstance(final, OffsetFinal):
            continue
        txn = sent.get((final.group, final.offset))
        if txn is not None and (txn not in asked_s or (txn in ended and ended[txn].outcome == "aborted")):
            sentence = f"group {final.group} has offset {final.offset} of {txn}, which was aborted"
            yield Violation("aborted read", 0, sentence)
            continue
        until_s = -1.0
        if txn is not None:
            until_s = ended[txn].at_s if txn in ended and ended[txn].outcome == "committed" else float("inf")
        for (group, offset), other in sent.items():
            is_later = group == final.group and other != txn and asked_s.get(other, -1.0) > until_s
            if is_later and other in ended and ended[other].outcome == "committed":
                sentence = f"group {group} has offset {final.offset}, but {other} committed {offset} later"
                yield Violation("lost transaction", ended[other].at_s, sentence)


def _sent(events: Sequence[Event]) -> dict[str, list[Place]]:
    """Of those that are all there or not at all: whoever did not ask for a commit may have sent a part only."""
    asked = {event.txn for event in events if isinstance(event, CommitAsked)}
    sent: dict[str, list[Place]] = defaultdict(list)
    for event in events:
        if isinstance(event, TxnSent) and event.txn in asked:
            sent[event.txn].append((event.partition, event.value))
    return sent


def _never_asked(events: Sequence[Event]) -> dict[Place, str]:
    """Records of transactions of which nobody asked a commit, and of those that ended otherwise."""
    asked = {event.txn for event in events if isinstance(event, CommitAsked)}
    aborted = {event.txn for event in events if isinstance(event, TxnEnded) and event.outcome == "aborted"}
    return {
        (event.partition, event.value): event.txn
        for event in events
        if isinstance(event, TxnSent) and (event.txn not in asked or event.txn in aborted)
    }


def _in_the_end(events: Sequence[Event]) -> set[Place]:
    return {(event.partition, event.value) for event in events if isinstance(event, CommittedFinal)}


def _nobody_could_look(events: Sequence[Event]) -> bool:
    return any(isinstance(event, NotRecovered) for event in events)
