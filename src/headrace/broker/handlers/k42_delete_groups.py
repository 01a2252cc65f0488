"""DeleteGroups, versions 0-2: groups without members, with all their offsets. Answered when that is committed."""

from functools import partial

from headrace.broker.broker import Broker
from headrace.broker.coordinators.group_commits import delete_group
from headrace.broker.handlers.groups import is_allowed
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.errors import ErrorCode
from headrace.wire.messages.groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(broker: Broker, request: Request[DeleteGroupsRequest]) -> None:
    names = list(dict.fromkeys(request.body.groups_names))
    codes: dict[str, ErrorCode] = {}

    def deleted(name: str, error: ErrorCode) -> None:
        codes[name] = error
        if len(codes) == len(names):
            request.reply(
                DeleteGroupsResponse(
                    results=[DeletableGroupResult(group_id=name, error_code=codes[name]) for name in names]
                )
            )

    if not names:
        request.reply(DeleteGroupsResponse(results=[]))
    for name in names:
        if is_allowed(broker, request, Operation.DELETE, name):
            delete_group(broker, name, partial(deleted, name))
        else:
            deleted(name, ErrorCode.GROUP_AUTHORIZATION_FAILED)
