"""DescribeGroups, versions 0-6: members of groups and what is assigned to them.

3 tells authorised operations, 4 static members, 6 says 69 of a group that does not exist, which is Dead before.
"""

from headrace.broker.broker import Broker
from headrace.broker.handlers.groups import is_allowed
from headrace.broker.handlers.k03_metadata import authorized
from headrace.broker.requests import Request
from headrace.core.acl import Operation, Resource, ResourceType
from headrace.core.group import Group
from headrace.core.group_effects import GroupState
from headrace.errors import ErrorCode
from headrace.wire.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_SINCE = 6
GROUP_OPERATIONS = (Operation.READ, Operation.DELETE, Operation.DESCRIBE)


def handle(broker: Broker, request: Request[DescribeGroupsRequest]) -> None:
    request.reply(DescribeGroupsResponse(groups=[_describe(broker, request, name) for name in request.body.groups]))


def _describe(broker: Broker, request: Request[DescribeGroupsRequest], group_id: str) -> DescribedGroup:
    if not is_allowed(broker, request, Operation.DESCRIBE, group_id):
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    found = broker.groups.find(group_id)
    if isinstance(found, ErrorCode):
        return DescribedGroup(group_id=group_id, error_code=found)
    if found is None:
        described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if request.version >= NOT_FOUND_SINCE:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} not found."
    else:
        described = _described(found)
    if request.body.include_authorized_operations:
        resource = Resource(ResourceType.GROUP, group_id)
        described.authorized_operations = authorized(broker, request.principal, resource, GROUP_OPERATIONS)
    return described


def _described(group: Group) -> DescribedGroup:
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata_for(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ],
    )
