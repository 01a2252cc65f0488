"""What may never be in a history of a consumer group: partitions read twice, and commits that are lost, or late."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from headrace.errors import ErrorCode
from headrace.model import TopicPartition
from headrace.sim.history import (
    Event,
    GroupAssigned,
    GroupCommit,
    GroupCommitted,
    GroupSettled,
    GroupTold,
)
from headrace.sim.violation import Violation

SETTLED_S_MAX = 20.0
"""Of old members only their sessions remain; then comes a rebalance or two."""
REFUSED = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""Whoever is told one of these knows that its commit was not done."""
NEVER_S = float("inf")
Place = tuple[str, TopicPartition]


def shared_partitions(events: Sequence[Event]) -> Iterator[Violation]:
    """In one generation a partition has one member. A static one may come back as another process."""
    holders: dict[tuple[str, int, TopicPartition], GroupAssigned] = {}
    for event in events:
        if not isinstance(event, GroupAssigned):
            continue
        for partition in event.partitions:
            first = holders.setdefault((event.group, event.generation, partition), event)
            if first.who != event.who:
                sentence = f"{partition} is with {first.client} and {event.client} in generation {event.generation}"
                yield Violation("two members", event.at_s, sentence)


def late_commits(events: Sequence[Event]) -> Iterator[Violation]:
    """What is asked for with a generation after a later one was handed out is not done."""
    latest: dict[str, tuple[int, float]] = {}
    asked: dict[tuple[Place, int], tuple[GroupCommit, int, float]] = {}
    for event in events:
        if isinstance(event, GroupAssigned):
            if event.generation > latest.get(event.group, (-1, 0))[0]:
                latest[event.group] = event.generation, event.at_s
        elif isinstance(event, GroupCommit):
            known = latest.get(event.group, (-1, 0.0))
            asked[(event.group, event.partition), event.offset] = (event, *known)
        elif isinstance(event, GroupCommitted) and not event.code:
            commit, generation, since_s = asked[(event.group, event.partition), event.offset]
            if commit.generation < generation:
                sentence = (
                    f"{commit.client} committed {commit.offset} of {commit.partition} in generation "
                    f"{commit.generation} at {commit.at_s:.3f} s, but {generation} was there since {since_s:.3f} s"
                )
                yield Violation("late commit", event.at_s, sentence)


def lost_commits(events: Sequence[Event]) -> Iterator[Violation]:
    """Whoever asks is told the last commit that was certainly done by then, or one that is not certainly before it."""
    asked_s, settled_s = _times(events)
    told: dict[Place, list[GroupTold]] = defaultdict(list)
    for event in events:
        if isinstance(event, GroupTold):
            told[event.group, event.partition].append(event)
    for place, answers in told.items():
        for answer in answers:
            until_s = settled_s.get((place, answer.offset), NEVER_S) if answer.offset >= 0 else -1.0
            for (at, offset), done_s in settled_s.items():
                if at == place and done_s < answer.asked_s and asked_s.get((at, offset), -1.0) > until_s:
                    sentence = (
                        f"{answer.client} was told at {answer.at_s:.3f} s that {answer.partition} is at "
                        f"{answer.offset}, but {offset} was committed by {done_s:.3f} s, and later"
                    )
                    yield Violation("lost commit", answer.at_s, sentence)
                    break


def commits_done_all_the_same(events: Sequence[Event]) -> Iterator[Violation]:
    """Nobody is told an offset whose commit was refused, or that nobody committed."""
    codes: dict[tuple[Place, int], int | None] = {}
    for event in events:
        if isinstance(event, GroupCommit):
            codes[(event.group, event.partition), event.offset] = None
        elif isinstance(event, GroupCommitted):
            codes[(event.group, event.partition), event.offset] = event.code
    for event in events:
        if isinstance(event, GroupTold) and event.offset >= 0:
            code = codes.get(((event.group, event.partition), event.offset), ErrorCode.UNKNOWN_MEMBER_ID)
            if code in REFUSED:
                sentence = f"{event.client} was told {event.offset} of {event.partition}, whose commit was refused"
                yield Violation("late commit", event.at_s, sentence)


def unsettled_groups(events: Sequence[Event]) -> Iterator[Violation]:
    for event in events:
        if isinstance(event, GroupSettled) and event.at_s - event.healed_s > SETTLED_S_MAX:
            sentence = f"{event.group} was stable only {event.at_s - event.healed_s:.1f} s after the last fault"
            yield Violation("unstable group", event.at_s, sentence)


Times = dict[tuple[Place, int], float]


def _times(events: Sequence[Event]) -> tuple[Times, Times]:
    """When each commit was asked for, and when it was certainly done: it was acknowledged, or somebody was told it."""
    asked_s: Times = {}
    settled_s: Times = {}
    for event in events:
        if isinstance(event, GroupCommit):
            asked_s[(event.group, event.partition), event.offset] = event.at_s
        elif (isinstance(event, GroupCommitted) and not event.code) or isinstance(event, GroupTold):
            settled_s.setdefault(((event.group, event.partition), event.offset), event.at_s)
    return asked_s, {key: at_s for key, at_s in settled_s.items() if key[1] >= 0}


GROUP_CHECKERS = (shared_partitions, late_commits, lost_commits, commits_done_all_the_same, unsettled_groups)
