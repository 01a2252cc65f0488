"""LeaveGroup, versions 0-5: members go at once. 3 names several, also static ones by their instance id alone."""

from headrace.broker.broker import Broker
from headrace.broker.handlers.groups import refused
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.errors import ErrorCode
from headrace.wire.messages.groups import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

MEMBERS_SINCE = 3


def handle(broker: Broker, request: Request[LeaveGroupRequest]) -> None:
    body = request.body
    error = refused(broker, request, Operation.READ, body.group_id)
    found = error or broker.groups.find(body.group_id)
    if isinstance(found, ErrorCode):
        request.reply(LeaveGroupResponse(error_code=found))
        return
    leaving = body.members if request.version >= MEMBERS_SINCE else [MemberIdentity(member_id=body.member_id)]
    answers = []
    now_ms = broker.clock.monotonic_ms()
    for member in leaving:
        left = ErrorCode.UNKNOWN_MEMBER_ID
        if found is not None:
            left = found.leave(member.member_id, member.group_instance_id, now_ms)
        answers.append(
            MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=left)
        )
    if found is not None:
        broker.groups.settle(found)
    if request.version >= MEMBERS_SINCE:
        request.reply(LeaveGroupResponse(members=answers))
    else:
        request.reply(LeaveGroupResponse(error_code=answers[0].error_code))
