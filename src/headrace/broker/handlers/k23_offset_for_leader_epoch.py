"""OffsetForLeaderEpoch, versions 2-4: where an epoch ended in this log, so that a client finds out what was cut."""

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.errors import CorruptLog, ErrorCode
from headrace.wire.messages.offsets import (
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(broker: Broker, request: Request[OffsetForLeaderEpochRequest]) -> None:
    replica_id = request.body.replica_id
    forged = replica_id >= 0 and not broker.may_be_node(request.principal, replica_id)
    topics = []
    for topic in request.body.topics:
        refusal = ErrorCode.NONE
        if forged:
            refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        elif not broker.allowed(request.principal, Operation.DESCRIBE, topic.topic):
            refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        results = [_look_up(broker, topic.topic, asked, refusal, replica_id >= 0) for asked in topic.partitions]
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=results))
    request.reply(OffsetForLeaderEpochResponse(topics=topics))


def _look_up(
    broker: Broker, topic: str, asked: OffsetForLeaderPartition, refusal: ErrorCode, by_follower: bool
) -> OffsetForLeaderEpochEndOffset:
    result = OffsetForLeaderEpochEndOffset(
        error_code=ErrorCode.NONE, partition=asked.partition, leader_epoch=-1, end_offset=-1
    )
    partition = broker.partitions.find_by_name(topic, asked.partition)
    if refusal:
        result.error_code = refusal
    elif isinstance(partition, ErrorCode):
        result.error_code = partition
    else:
        result.error_code = partition.gate(asked.current_leader_epoch, by_follower)
        if not result.error_code:
            try:
                result.leader_epoch, result.end_offset = partition.end_offset_for(asked.leader_epoch)
            except (OSError, CorruptLog) as failure:
                broker.faults.failed(partition, "epoch lookup", failure)
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result
