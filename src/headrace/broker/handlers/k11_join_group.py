"""JoinGroup, versions 0-9: a member wants to be in the next generation, and hears who leads it.

1 brings a rebalance timeout, 4 asks new members to come again with the id that they are given, 5 brings static
members, 7 tells the protocol type, 9 lets a static leader that came back skip the assignment (KIP-814).
"""

from headrace.broker.broker import Broker
from headrace.broker.handlers.groups import refused
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.group_members import Join, Joined
from headrace.errors import ErrorCode
from headrace.wire.messages.groups import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

REBALANCE_TIMEOUT_SINCE = 1
KNOWN_ID_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


def handle(broker: Broker, request: Request[JoinGroupRequest]) -> None:
    body = request.body
    waiter = _Waiting(broker, request)
    error = refused(broker, request, Operation.READ, body.group_id) or _session_error(broker, body)
    if error:
        waiter(Joined(error, body.member_id))
        return
    groups = broker.groups
    found = groups.find_or_make(body.group_id) if not body.member_id else groups.find(body.group_id)
    if found is None or isinstance(found, ErrorCode):
        waiter(Joined(ErrorCode.UNKNOWN_MEMBER_ID if found is None else found, body.member_id))
        return
    join = _join(broker, request, waiter)
    request.forget_body()
    groups.join(found, join, request.connection)


def _session_error(broker: Broker, body: JoinGroupRequest) -> ErrorCode:
    config = broker.config
    if config.group_min_session_timeout_ms <= body.session_timeout_ms <= config.group_max_session_timeout_ms:
        return ErrorCode.NONE
    return ErrorCode.INVALID_SESSION_TIMEOUT


def _join(broker: Broker, request: Request[JoinGroupRequest], waiter: "_Waiting") -> Join:
    body = request.body
    client_id = request.header.client_id or ""
    bits = f"{broker.random.bits(128):032x}"
    unique = f"{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"
    return Join(
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        client_id=client_id,
        client_host=f"/{request.connection.host}",
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=(
            max(body.rebalance_timeout_ms, 0) if request.version >= REBALANCE_TIMEOUT_SINCE else body.session_timeout_ms
        ),
        protocol_type=body.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in body.protocols),
        new_member_id=f"{client_id if body.group_instance_id is None else body.group_instance_id}-{unique}",
        needs_known_id=request.version >= KNOWN_ID_SINCE,
        may_skip=request.version >= SKIP_ASSIGNMENT_SINCE,
        waiter=waiter,
    )


class _Waiting:
    """A member that waits for the others."""

    __slots__ = ("_broker", "_request")

    def __init__(self, broker: Broker, request: Request[JoinGroupRequest]) -> None:
        self._broker = broker
        self._request = request

    def __call__(self, joined: Joined) -> None:
        request = self._request
        self._broker.groups.unpark(request.connection, self)
        name = joined.protocol_name
        request.reply(
            JoinGroupResponse(
                error_code=joined.error,
                generation_id=joined.generation,
                protocol_type=joined.protocol_type,
                protocol_name="" if name is None and request.version < NULL_PROTOCOL_SINCE else name,
                leader=joined.leader,
                skip_assignment=joined.skip_assignment,
                member_id=joined.member_id,
                members=[
                    JoinGroupResponseMember(
                        member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
                    )
                    for member in joined.members
                ],
            )
        )
