"""Heartbeat, versions 0-4: a member is alive, and hears whether it has to join anew. 3 brings static members."""

from headrace.broker.broker import Broker
from headrace.broker.handlers.groups import refused
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.errors import ErrorCode
from headrace.wire.messages.groups import HeartbeatRequest, HeartbeatResponse


def handle(broker: Broker, request: Request[HeartbeatRequest]) -> None:
    request.reply(HeartbeatResponse(error_code=_beat(broker, request)))


def _beat(broker: Broker, request: Request[HeartbeatRequest]) -> ErrorCode:
    body = request.body
    error = refused(broker, request, Operation.READ, body.group_id)
    if error:
        return error
    group = broker.groups.find(body.group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if isinstance(group, ErrorCode):
        return group
    return group.heartbeat(body.member_id, body.group_instance_id, body.generation_id, broker.clock.monotonic_ms())
