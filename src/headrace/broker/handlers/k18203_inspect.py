"""Inspect, version 0: what a node knows of itself, as JSON with a version. One function per kind.

failed    partitions that this node follows and has given up until their next leader epoch
sessions  the fetch sessions of this node: consumers' and followers'
guard     partitions whose offsets are not told yet after a change of leaders
"""

import json
from collections.abc import Callable
from typing import Any

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.errors import ErrorCode
from headrace.wire.messages.inspection import InspectRequest, InspectResponse


def handle(broker: Broker, request: Request[InspectRequest]) -> None:
    if not broker.allowed_on_cluster(request.principal, Operation.DESCRIBE):
        request.reply(InspectResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return
    tell = KINDS.get(request.body.kind)
    if tell is None:
        request.reply(InspectResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    request.reply(InspectResponse(body=json.dumps({"v": 1, **tell(broker)}, separators=(",", ":")).encode()))


def _failed(broker: Broker) -> dict[str, Any]:
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


def _sessions(broker: Broker) -> dict[str, Any]:
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


def _guard(broker: Broker) -> dict[str, Any]:
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


KINDS: dict[str, Callable[[Broker], dict[str, Any]]] = {"failed": _failed, "sessions": _sessions, "guard": _guard}
