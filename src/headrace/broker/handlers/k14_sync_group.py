"""SyncGroup, versions 0-5: the leader brings the assignments of a generation, everybody hears its own.

3 brings static members, 5 says which protocol the member believes to be in.
"""

from headrace.broker.broker import Broker
from headrace.broker.handlers.groups import refused
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.group_members import Synced
from headrace.errors import ErrorCode
from headrace.wire.messages.groups import SyncGroupRequest, SyncGroupResponse


def handle(broker: Broker, request: Request[SyncGroupRequest]) -> None:
    body = request.body
    waiter = _Waiting(broker, request)
    error = refused(broker, request, Operation.READ, body.group_id)
    found = error or broker.groups.find(body.group_id)
    if found is None or isinstance(found, ErrorCode):
        waiter(Synced(ErrorCode.UNKNOWN_MEMBER_ID if found is None else found))
        return
    member = body.member_id, body.group_instance_id, body.generation_id
    protocol = body.protocol_type, body.protocol_name
    assignments = {assigned.member_id: assigned.assignment for assigned in body.assignments}
    request.forget_body()
    broker.groups.sync(found, member, protocol, assignments, waiter, request.connection)


class _Waiting:
    """A member that waits for what the leader assigns to it."""

    __slots__ = ("_broker", "_request")

    def __init__(self, broker: Broker, request: Request[SyncGroupRequest]) -> None:
        self._broker = broker
        self._request = request

    def __call__(self, synced: Synced) -> None:
        self._broker.groups.unpark(self._request.connection, self)
        self._request.reply(
            SyncGroupResponse(
                error_code=synced.error,
                protocol_type=synced.protocol_type,
                protocol_name=synced.protocol_name,
                assignment=synced.assignment,
            )
        )
