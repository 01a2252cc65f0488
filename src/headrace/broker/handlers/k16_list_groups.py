"""ListGroups, versions 0-5: groups that this node coordinates. 4 filters by state, 5 by type."""

from headrace.broker.broker import Broker
from headrace.broker.handlers.groups import is_allowed
from headrace.broker.requests import Request
from headrace.controller.pacing import Pace
from headrace.core.acl import Operation
from headrace.errors import ErrorCode
from headrace.wire.messages.groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"
GROUP_US = 3


async def handle(broker: Broker, request: Request[ListGroupsRequest]) -> ListGroupsResponse:
    if broker.groups.log.is_loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = {state.lower() for state in request.body.states_filter}
    types = {kind.lower() for kind in request.body.types_filter}
    if types and CLASSIC not in types:
        return ListGroupsResponse()
    sees_all = broker.allowed_on_cluster(request.principal, Operation.DESCRIBE)
    listed, pace = [], Pace()
    for group in list(broker.groups):
        if states and group.state.value.lower() not in states:
            continue
        if sees_all or is_allowed(broker, request, Operation.DESCRIBE, group.group_id):
            listed.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=CLASSIC,
                )
            )
        await pace.spend(GROUP_US)
    return ListGroupsResponse(groups=listed)
