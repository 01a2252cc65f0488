"""OffsetDelete, version 0: offsets of topics that nobody in the group reads. Answered when that is committed."""

from headrace.broker.broker import Broker
from headrace.broker.coordinators.group_commits import delete_offsets, may_delete
from headrace.broker.handlers.groups import is_allowed
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.group import Group
from headrace.core.group_effects import GroupState
from headrace.core.group_members import CONSUMER
from headrace.errors import ErrorCode
from headrace.wire.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(broker: Broker, request: Request[OffsetDeleteRequest]) -> None:
    found = _group(broker, request)
    if isinstance(found, ErrorCode):
        request.reply(OffsetDeleteResponse(error_code=found))
        return
    answers: list[OffsetDeleteResponseTopic] = []
    waiting: list[OffsetDeleteResponsePartition] = []
    keys: list[tuple[str, int]] = []
    for asked in request.body.topics:
        topic = broker.image.topics.get(asked.name)
        answer = OffsetDeleteResponseTopic(name=asked.name, partitions=[])
        answers.append(answer)
        for told in asked.partitions:
            partition = OffsetDeleteResponsePartition(partition_index=told.partition_index)
            answer.partitions.append(partition)
            if not broker.allowed(request.principal, Operation.READ, asked.name):
                partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None or not 0 <= told.partition_index < len(topic.partitions):
                partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                partition.error_code = may_delete(found, asked.name)
            if not partition.error_code:
                keys.append((asked.name, told.partition_index))
                waiting.append(partition)

    def finish(error: ErrorCode) -> None:
        for partition in waiting:
            partition.error_code = error
        request.reply(OffsetDeleteResponse(topics=answers))

    delete_offsets(broker, found, keys, finish)


def _group(broker: Broker, request: Request[OffsetDeleteRequest]) -> Group | ErrorCode:
    group_id = request.body.group_id
    if not is_allowed(broker, request, Operation.DELETE, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    found = broker.groups.find(group_id)
    if found is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(found, Group) and found.state is not GroupState.EMPTY and found.protocol_type != CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP
    return found
