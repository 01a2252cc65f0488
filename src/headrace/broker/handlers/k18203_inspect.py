"""Inspect, version 0: what a node knows of itself, as JSON with a version. One function per kind.

failed    partitions that this node follows and has given up until their next leader epoch
sessions  the fetch sessions of this node: consumers' and followers'
guard     partitions whose offsets are not told yet after a change of leaders
own       who owns what here, since when, and who was refused last; arguments are groups, none for all
tier      what of the partitions that this node leads is in the tier, and which segments belong to their logs;
          arguments are names of topics, none for all
why       why a replica leads a partition, and who is passed over; arguments are a topic and a partition of it
replicas  partitions that this node leads, and how far their followers are; arguments are names of topics, none for all
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from headrace.broker import ownership_inspection, tier_inspection
from headrace.broker.broker import Broker
from headrace.broker.partitions import Hosted
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.leading import UNKNOWN_OFFSET, FollowerState
from headrace.core.thin import why
from headrace.errors import ErrorCode
from headrace.wire.messages.inspection import InspectRequest, InspectResponse


async def handle(broker: Broker, request: Request[InspectRequest]) -> InspectResponse:
    if not broker.allowed_on_cluster(request.principal, Operation.DESCRIBE):
        return InspectResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    tell = KINDS.get(request.body.kind)
    if tell is None:
        return InspectResponse(error_code=ErrorCode.INVALID_REQUEST)
    if tell is _tier and broker.tier is not None:
        await broker.tier.look()
    told = {"v": 1, **tell(broker, request.body.args)}
    return InspectResponse(body=json.dumps(told, separators=(",", ":")).encode())


def _failed(broker: Broker, _args: Sequence[str]) -> dict[str, Any]:
    wall_ms, now_ms = broker.clock.wall_ms(), broker.clock.monotonic_ms()
    return {
        "failed": [
            {
                "topic": partition.topic,
                "partition": partition.index,
                "reason": failed.reason,
                "since_ms": wall_ms - (now_ms - failed.since_ms),
                "leader_epoch": failed.leader_epoch,
            }
            for partition, failed in broker.roles.replicator.failed.items()
        ]
    }


def _sessions(broker: Broker, _args: Sequence[str]) -> dict[str, Any]:
    now_ms = broker.clock.monotonic_ms()
    sessions = broker.fetch_events.sessions
    return {
        "sessions": [
            {
                "id": session.id,
                "epoch": session.epoch,
                "replica_id": session.fetcher.replica_id,
                "broker_epoch": session.fetcher.broker_epoch,
                "principal": session.fetcher.principal,
                "client_id": session.visitor.client_id or "",
                "client": session.visitor.peer,
                "partitions": session.size,
                "ready": len(session.ready),
                "faults": len(session.faults),
                "parked": session.waiter is not None,
                "age_ms": now_ms - session.created_ms,
                "idle_ms": now_ms - session.last_used_ms,
            }
            for session in sessions.cache.values()
        ]
    }


def _guard(broker: Broker, _args: Sequence[str]) -> dict[str, Any]:
    now_ms = broker.clock.monotonic_ms()
    return {
        "guard": [
            {
                "topic": partition.topic,
                "partition": partition.index,
                "leader_epoch": partition.leader_epoch,
                "guard": partition.leadership.list_guard,
                "high_watermark": partition.high_watermark,
                "for_ms": now_ms - opened_ms,
            }
            for partition, opened_ms in broker.guards.open.items()
            if partition.leadership is not None and partition.is_list_guarded
        ]
    }


def _replicas(broker: Broker, args: Sequence[str]) -> dict[str, Any]:
    topics, now_ms = frozenset(args), broker.clock.monotonic_ms()
    return {
        "replicas": [
            {
                "topic": partition.topic,
                "partition": partition.index,
                "leader_epoch": partition.leader_epoch,
                "high_watermark": partition.high_watermark,
                "log_end": partition.log_end_offset,
                "followers": _followers(partition, now_ms),
            }
            for partition in broker.partitions
            if partition.is_leading and (not topics or partition.topic in topics)
        ]
    }


def _own(broker: Broker, args: Sequence[str]) -> dict[str, Any]:
    return {"own": ownership_inspection.tell(broker, args)}


def _tier(broker: Broker, args: Sequence[str]) -> dict[str, Any]:
    return {"tier": tier_inspection.tell(broker, args)}


def _why(broker: Broker, args: Sequence[str]) -> dict[str, Any]:
    """Empty when there is no such partition."""
    name, index = args if len(args) == 2 else ("", "")
    topic = broker.image.topics.get(name)
    if topic is None or not index.isdecimal() or int(index) >= len(topic.partitions):
        return {"why": []}
    return {"why": [why(broker.image, topic, int(index), broker.clock.wall_ms())]}


def _followers(partition: Hosted, now_ms: int) -> list[dict[str, Any]]:
    """`lag` is none as long as the follower has not fetched since the leadership began."""
    leadership, log_end = partition.leadership, partition.log_end_offset
    if leadership is None:
        return []
    return [
        {
            "id": follower.broker_id,
            "lag": _lag(follower, log_end),
            "behind_ms": 0 if follower.is_in_step(log_end) else max(0, now_ms - follower.caught_up_ms),
        }
        for follower in leadership.followers.values()
    ]


def _lag(follower: FollowerState, log_end: int) -> int | None:
    if follower.is_in_step(log_end):
        return 0
    return None if follower.offset == UNKNOWN_OFFSET else max(0, log_end - follower.offset)


KINDS: dict[str, Callable[[Broker, Sequence[str]], dict[str, Any]]] = {
    "failed": _failed,
    "sessions": _sessions,
    "guard": _guard,
    "own": _own,
    "replicas": _replicas,
    "tier": _tier,
    "why": _why,
}
