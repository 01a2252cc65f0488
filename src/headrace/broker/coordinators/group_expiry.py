"""Offsets that nobody has used for long go, and groups of which nothing is left; so do offsets of deleted topics."""

import asyncio
from collections.abc import Callable, Collection, Iterator

from headrace.broker.broker import Broker
from headrace.broker.coordinators.group_commits import bury
from headrace.core.group import Group
from headrace.core.group_effects import GroupState
from headrace.core.group_members import CONSUMER
from headrace.core.group_offsets import TopicPartition
from headrace.errors import ErrorCode
from headrace.wire.errors import ProtocolError

MINUTE_MS = 60_000
SLICE_OFFSETS = 2_000
"""About how many offsets are looked at between two turns of the loop."""


async def expire(broker: Broker) -> None:
    """One round over all groups that this node coordinates."""
    await _sweep(broker, lambda group: _expire(broker, group))


def expired_offsets(group: Group, now_ms: int, retention_ms: int) -> Iterator[TopicPartition]:
    """By the wall clock. Nothing expires while a rebalance may tell who reads what."""
    if group.state is GroupState.EMPTY:
        # Commits of consumers that never were members count from themselves on.
        since_ms = group.state_since_ms if group.protocol_type is not None else None
        yield from group.offsets.expired(now_ms, retention_ms, since_ms, frozenset())
    elif group.state is GroupState.STABLE and group.protocol_type == CONSUMER and group.subscribed is not None:
        yield from group.offsets.expired(now_ms, retention_ms, None, group.subscribed)


def _expire(broker: Broker, group: Group) -> None:
    retention_ms = broker.config.offsets_retention_minutes * MINUTE_MS
    try:
        over = list(expired_offsets(group, broker.clock.wall_ms(), retention_ms))
    except ProtocolError:
        return  # A later version wrote them, and will know what to do.
    is_last = (
        group.state is GroupState.EMPTY
        and not group.pending
        and not group.offsets.pending
        and not group.offsets.in_flight
        and len(over) == len(group.offsets)
    )
    if over or is_last:
        broker.groups.offsets_expired += len(over)
        bury(broker, group, over, _nobody_waits, with_group=is_last)


async def forget_topics(broker: Broker, topics: Collection[str], deleted_ms: int) -> None:
    """What was committed before they were deleted: others of the same name may exist by now."""

    def forget(group: Group) -> None:
        found = [topic for topic in topics if topic in group.offsets.by_topic]
        keys = [(topic, index) for topic in found for index in group.offsets.by_topic[topic]]
        over = [key for key in keys if _committed_before(group, key, deleted_ms)]
        if over:
            bury(broker, group, over, _nobody_waits)

    await _sweep(broker, forget)


def _committed_before(group: Group, key: TopicPartition, time_ms: int) -> bool:
    try:
        committed = group.offsets.get(*key)
    except ProtocolError:
        return False
    return committed is not None and committed.commit_ms <= time_ms


async def _sweep(broker: Broker, look_at: Callable[[Group], None]) -> None:
    looked_at = 0
    for group in list(broker.groups):
        if group.state is GroupState.DEAD:
            continue  # deleted, or moved to another node, since the sweep began
        looked_at += 1 + len(group.offsets)
        look_at(group)
        if looked_at >= SLICE_OFFSETS:
            looked_at = 0
            await asyncio.sleep(0)


def _nobody_waits(_: ErrorCode) -> None:
    """What could not be written expires in the next round."""
