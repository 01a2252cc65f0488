"""TxnOffsetCommit, versions 0-5: offsets that count when the transaction of a producer is committed.

They wait per producer until its marker; 3 says which member commits, so that one that was replaced is refused.
"""

from headrace.broker.broker import Broker
from headrace.broker.coordinators.group_commits import Committer, NewOffset, Transaction, commit_in_transaction
from headrace.broker.handlers.groups import refused
from headrace.broker.requests import Request
from headrace.core.acl import Operation, Resource, ResourceType
from headrace.errors import ErrorCode
from headrace.wire.group_records import CommittedOffset, offset_value
from headrace.wire.messages.group_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def handle(broker: Broker, request: Request[TxnOffsetCommitRequest]) -> None:
    body = request.body
    error = _refused(broker, request)
    if error:
        request.reply(TxnOffsetCommitResponse(topics=[_refuse(topic, error) for topic in body.topics]))
        return
    answers: list[TxnOffsetCommitResponseTopic] = []
    offsets: list[NewOffset] = []
    waiting: list[TxnOffsetCommitResponsePartition] = []
    for asked in body.topics:
        answer = TxnOffsetCommitResponseTopic(name=asked.name, partitions=[])
        answers.append(answer)
        _judge(broker, request, asked, answer, offsets, waiting)

    def finish(code: ErrorCode) -> None:
        for partition in waiting:
            partition.error_code = code
        request.reply(TxnOffsetCommitResponse(topics=answers))

    by = Committer(body.member_id, body.group_instance_id, body.generation_id)
    within = Transaction(body.transactional_id, body.producer_id, body.producer_epoch)
    group_id = body.group_id
    request.forget_body()
    commit_in_transaction(broker, group_id, by, within, offsets, finish)


def _refused(broker: Broker, request: Request[TxnOffsetCommitRequest]) -> ErrorCode:
    body = request.body
    resource = Resource(ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    if not broker.is_allowed(request.principal, Operation.WRITE, resource):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return refused(broker, request, Operation.READ, body.group_id)


def _judge(
    broker: Broker,
    request: Request[TxnOffsetCommitRequest],
    asked: TxnOffsetCommitRequestTopic,
    answer: TxnOffsetCommitResponseTopic,
    offsets: list[NewOffset],
    waiting: list[TxnOffsetCommitResponsePartition],
) -> None:
    topic = broker.image.topics.get(asked.name)
    may_read = broker.allowed(request.principal, Operation.READ, asked.name)
    now_ms, metadata_max = broker.clock.wall_ms(), broker.config.offset_metadata_max_bytes
    for told in asked.partitions:
        partition = TxnOffsetCommitResponsePartition(partition_index=told.partition_index)
        answer.partitions.append(partition)
        text = told.committed_metadata or ""
        if not may_read:
            partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or not 0 <= told.partition_index < len(topic.partitions):
            partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif len(text) > metadata_max:
            partition.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            committed = CommittedOffset(told.committed_offset, told.committed_leader_epoch, text, now_ms)
            offsets.append((asked.name, told.partition_index, offset_value(committed)))
            waiting.append(partition)


def _refuse(asked: TxnOffsetCommitRequestTopic, error: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=asked.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=told.partition_index, error_code=error)
            for told in asked.partitions
        ],
    )
