"""Bugs planted on purpose: each takes one rule away. The simulator has to find every one of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from headrace.broker.coordinators import state_log
from headrace.broker.coordinators.commit_groups import CommitGroups
from headrace.broker.coordinators.groups import Groups
from headrace.broker.coordinators.queries import Query
from headrace.broker.handlers.k00_produce import _Produce
from headrace.broker.ownership_grants import Grants
from headrace.broker.ownership_keys import KeyWriter, Written
from headrace.controller.fence import FencedStore
from headrace.controller.moves import Moves
from headrace.core import election
from headrace.core.cluster import IsrMember
from headrace.core.commit_group import Handle
from headrace.core.group import Group
from headrace.core.group_effects import Store
from headrace.core.leading import UNKNOWN_OFFSET, Leadership
from headrace.core.ownership import FETCH, Entry, Tenure
from headrace.core.ownership_gate import Gate, Pass
from headrace.core.partition import Partition
from headrace.errors import ErrorCode
from headrace.sim.run import Scenario
from headrace.storage.log import Log
from tests.sim.planted_tier import TIER_RULES


async def _nobody_is_asked(_moves: Moves, asked: Any) -> dict[tuple[bytes, int], ErrorCode]:
    """The controller moves leaderships without a word to their leaders."""
    return {(one.topic_id, one.partition): ErrorCode.NONE for of_one_leader in asked.values() for one in of_one_leader}


async def _nothing_is_fenced(_store: FencedStore) -> None:
    """What was written with an unknown outcome may still be applied."""


LOSS = frozenset({"lost write", "inconsistent offsets", "offsets going back", "differing replicas", "no recovery"})


class Plant(NamedTuple):
    what: Any
    name: str
    instead: Callable[..., Any] | property
    seed: int
    """One that finds it."""
    shows: frozenset[str] = LOSS
    """What it may show itself by."""
    scenario: Scenario = Scenario()


def _any_epoch(partition: Partition[Any], _epoch: int, by_follower: bool = False, debugs: bool = False) -> ErrorCode:
    is_served = debugs or (by_follower and partition.leadership is not None)
    return partition.fault if is_served else partition.error


def _everybody_joins(leadership: Leadership, *_: int) -> list[IsrMember]:
    """Whoever fetches, however far behind."""
    return [
        IsrMember(follower.broker_id, follower.broker_epoch)
        for follower in leadership.followers.values()
        if follower.broker_id not in leadership.record.isr_ids
        and follower.offset != UNKNOWN_OFFSET
        and leadership._is_eligible(follower)
    ]


def _answered_at_once(led: Any, _end_offset: int, then: Callable[[ErrorCode], None]) -> None:
    """A coordinator does not wait until what it decided is committed."""
    led._broker.loop.call_soon(lambda: then(ErrorCode.NOT_COORDINATOR if led.is_over else ErrorCode.NONE))


def _stored_at_once(keys: KeyWriter, _entry: Entry, _record: Any, then: Callable[[Written], None]) -> None:
    """Generations are told that nobody remembers."""
    keys._loop.call_soon(then, Written.DONE)


def _told_at_once(grants: Grants, entry: Entry, tenure: Tenure) -> None:
    """A grant is told before what its owner must read is committed."""
    if entry.tenure is tenure and not tenure.is_confirmed and not tenure.needs_key:
        grants._forget_timer(tenure)
        tenure.is_confirmed = True
        grants._ownership.changed(entry)
        waiting, tenure.waiting = tenure.waiting, []
        for told in waiting:
            told(ErrorCode.NONE)


_judge = Gate.judge


def _everybody_reads(gate: Gate, bit: int, peer: Any) -> Pass:
    return Pass.ALLOWED if bit == FETCH else _judge(gate, bit, peer)


def _any_generation(
    group: Group, member_id: str, _instance_id: str | None, _generation: int, now_ms: int, _in_transaction: bool = False
) -> ErrorCode:
    """Members of a rebalanced group commit as if nothing had happened."""
    return group.heartbeat(member_id, None, group.generation, now_ms) if group.members else ErrorCode.NONE


def _kept_to_itself(groups: Groups, group: Group, store: Store) -> None:
    """Assignments are handed out that the next coordinator knows nothing of."""
    groups._broker.loop.call_soon(_stored, groups, group, store)


def _stored(groups: Groups, group: Group, store: Store) -> None:
    group.stored(store, ErrorCode.NONE, groups._broker.clock.monotonic_ms(), True)
    groups.settle(group)


_rows = CommitGroups._rows


def _whoever_is_left(
    groups: CommitGroups, index: int, handles: Sequence[Handle], written_out: dict[Any, Any]
) -> list[Any]:
    """Attempts that have timed out are passed over, and the rest of the batch is committed."""
    rows = _rows(groups, index, handles, written_out)
    if isinstance(rows, list):
        return rows
    return _whoever_is_left(groups, index, [one for one in handles if one.transactional_id not in rows], written_out)


TRANSACTING = Scenario(transactors=2)
DRIVING = Scenario(drivers=2)
OWNING = Scenario(owners=3)
GROUPING = Scenario(members=3)
TIERED = Scenario(tier=True)
DISPLACED = frozenset({"two owners", "behind a fence", "served too late", "fence going back"})

PLANTS = {
    "epoch gate": Plant(Partition, "gate", _any_epoch, 0, frozenset({"answer of another epoch"})),
    "KIP-207 guard": Plant(Partition, "is_list_guarded", property(lambda _: False), 1),
    "ISR admission": Plant(Leadership, "joining", _everybody_joins, 65),
    "truncation": Plant(Partition, "end_offset_for", lambda partition, epoch: (epoch, partition.log_end_offset), 26),
    "min ISR": Plant(Leadership, "isr_min", lambda *_: 1, 11, frozenset({"acknowledged by too few"})),
    "incarnation": Plant(election, "is_intact", lambda *_: True, 23),
    "in doubt": Plant(FencedStore, "move", _nothing_is_fenced, 2, frozenset({"wrong topics"})),
    "StepDown": Plant(Moves, "_ask_all", _nobody_is_asked, 10),
    "last stable offset": Plant(
        Partition,
        "last_stable_offset",
        property(lambda partition: partition.high_watermark),
        1,
        frozenset({"aborted read"}),
        TRANSACTING,
    ),
    "aborted list": Plant(Log, "aborted_in", lambda *_: [], 1, frozenset({"aborted read"}), TRANSACTING),
    "coordinator's commit": Plant(
        state_log._Led,
        "wait",
        _answered_at_once,
        7,
        frozenset({"lost transaction", "torn transaction", "aborted read", "no recovery"}),
        TRANSACTING,
    ),
    "batch: once": Plant(Query, "is_over", lambda *_: False, 0, frozenset({"doubled batch"}), DRIVING),
    "batch: whole": Plant(CommitGroups, "_rows", _whoever_is_left, 1, frozenset({"torn batch", "lost batch"}), DRIVING),
    "batch: decision": Plant(
        state_log._Led,
        "wait",
        _answered_at_once,
        0,
        frozenset({"doubled batch", "torn batch", "lost batch", "stray batch", "batch going back"}),
        DRIVING,
    ),
    "own: followers": Plant(Leadership, "is_followed_to", lambda *_: True, 217, DISPLACED, OWNING),
    "own: gate of writes": Plant(_Produce, "_barred", lambda *_: ErrorCode.NONE, 1, DISPLACED, OWNING),
    "own: gate of reads": Plant(Gate, "judge", _everybody_reads, 1, DISPLACED, OWNING),
    "own: retained key": Plant(KeyWriter, "put", _stored_at_once, 1, DISPLACED, OWNING),
    "own: confirmation": Plant(Grants, "_look", _told_at_once, 0, DISPLACED, OWNING),
    "group: generation": Plant(Group, "may_commit", _any_generation, 0, frozenset({"late commit"}), GROUPING),
    "group: commit": Plant(
        state_log._Led, "wait", _answered_at_once, 11, frozenset({"lost commit", "two members"}), GROUPING
    ),
    "group: assignment": Plant(
        Groups, "_store", _kept_to_itself, 0, frozenset({"two members", "late commit"}), GROUPING
    ),
    **{name: Plant(*rule, TIERED) for name, rule in TIER_RULES.items()},
}


@contextmanager
def planted(name: str) -> Iterator[Plant]:
    plant = PLANTS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plant.what, plant.name, plant.instead)
        yield plant
