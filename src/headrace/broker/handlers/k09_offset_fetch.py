"""OffsetFetch, versions 1-10: how far groups have read. What was never committed is -1, without an error.

2 may ask for everything, 7 for stable offsets only (88 while a transaction may change them), 8 for several groups,
10 by ids of topics.
"""

from collections.abc import Iterable

from headrace.broker.broker import Broker
from headrace.broker.handlers.groups import is_allowed, topic_named
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.group import Group
from headrace.errors import ErrorCode
from headrace.model import ZERO_UUID
from headrace.wire.errors import ProtocolError
from headrace.wire.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from headrace.wire.struct import maker

GROUPS_SINCE = 8
TOP_ERROR_SINCE = 2
IDS_SINCE = 10
NO_OFFSET = -1

_answer = maker(OffsetFetchResponsePartition)


def handle(broker: Broker, request: Request[OffsetFetchRequest]) -> None:
    body = request.body
    if request.version >= GROUPS_SINCE:
        request.reply(OffsetFetchResponse(groups=[_fetch(broker, request, asked) for asked in body.groups]))
        return
    asked = OffsetFetchRequestGroup(group_id=body.group_id, topics=body.topics)
    fetched = _fetch(broker, request, asked)
    if fetched.error_code and request.version < TOP_ERROR_SINCE:
        # The first version has no other place for it.
        fetched.topics = [_refused(topic, ErrorCode(fetched.error_code)) for topic in body.topics or ()]
    request.reply(OffsetFetchResponse(topics=fetched.topics, error_code=fetched.error_code))


def _fetch(
    broker: Broker, request: Request[OffsetFetchRequest], asked: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    group_id = asked.group_id
    if not is_allowed(broker, request, Operation.DESCRIBE, group_id):
        return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    found = broker.groups.find(group_id)
    if not isinstance(found, ErrorCode) and not broker.controller.lease_valid():
        found = ErrorCode.NOT_COORDINATOR  # Another may be elected by now, and know newer ones.
    if isinstance(found, ErrorCode):
        return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=found)
    if asked.topics is None:
        topics = _everything(broker, request, found)
    else:
        topics = [_topic(broker, request, found, topic) for topic in asked.topics]
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _everything(
    broker: Broker, request: Request[OffsetFetchRequest], group: Group | None
) -> list[OffsetFetchResponseTopic]:
    answers = []
    for name, partitions in [] if group is None else group.offsets.by_topic.items():
        topic = broker.image.topics.get(name)
        if not broker.allowed(request.principal, Operation.DESCRIBE, name):
            continue
        if topic is None and request.version >= IDS_SINCE:
            continue  # It was deleted, and has no id any more.
        told = _partitions(request, group, name, sorted(partitions))
        topic_id = ZERO_UUID if topic is None else topic.id
        answers.append(OffsetFetchResponseTopic(name=name, topic_id=topic_id, partitions=told))
    return answers


def _topic(
    broker: Broker, request: Request[OffsetFetchRequest], group: Group | None, asked: OffsetFetchRequestTopic
) -> OffsetFetchResponseTopic:
    name = asked.name
    if request.version >= IDS_SINCE:
        topic = topic_named(broker, "", asked.topic_id)
        if topic is None:
            return _refused(asked, ErrorCode.UNKNOWN_TOPIC_ID)
        name = topic.name
    if not broker.allowed(request.principal, Operation.DESCRIBE, name):
        return _refused(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    told = _partitions(request, group, name, asked.partition_indexes)
    return OffsetFetchResponseTopic(name=name, topic_id=asked.topic_id, partitions=told)


def _partitions(
    request: Request[OffsetFetchRequest], group: Group | None, topic: str, indexes: Iterable[int]
) -> list[OffsetFetchResponsePartition]:
    stable_only = request.body.require_stable
    return [_partition(group, topic, index, stable_only) for index in indexes]


def _partition(group: Group | None, topic: str, index: int, stable_only: bool) -> OffsetFetchResponsePartition:
    if group is None:
        return _none(index)
    if stable_only and group.offsets.is_unstable(topic, index):
        return _none(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    try:
        known = group.offsets.get(topic, index)
    except ProtocolError:
        return _none(index, ErrorCode.UNKNOWN_SERVER_ERROR)  # A later version wrote it.
    if known is None:
        return _none(index)
    return _answer(
        partition_index=index,
        committed_offset=known.offset,
        committed_leader_epoch=known.leader_epoch,
        metadata=known.metadata,
        error_code=0,
    )


def _none(index: int, error: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartition:
    return _answer(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error)


def _refused(asked: OffsetFetchRequestTopic, error: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[_none(index, error) for index in asked.partition_indexes],
    )
