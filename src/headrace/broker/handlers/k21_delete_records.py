"""DeleteRecords, versions 0-2: moves the log start; -1 stands for the high watermark."""

from headrace.broker.broker import Broker
from headrace.broker.partitions import Hosted
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.errors import CorruptLog, ErrorCode
from headrace.wire.messages.offsets import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

UP_TO_HIGH_WATERMARK = -1


def handle(broker: Broker, request: Request[DeleteRecordsRequest]) -> None:
    topics = []
    for topic in request.body.topics:
        allowed = broker.allowed(request.principal, Operation.DELETE, topic.name)
        results = []
        for asked in topic.partitions:
            partition = broker.partitions.find_by_name(topic.name, asked.partition_index)
            low_watermark = -1
            if not allowed:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif isinstance(partition, ErrorCode):
                error = partition
            else:
                error, low_watermark = _delete(broker, partition, asked.offset)
            results.append(
                DeleteRecordsPartitionResult(
                    partition_index=asked.partition_index, low_watermark=low_watermark, error_code=error
                )
            )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    request.reply(DeleteRecordsResponse(topics=topics))


def _delete(broker: Broker, partition: Hosted, offset: int) -> tuple[ErrorCode, int]:
    error = partition.gate(-1)
    if error:
        return error, -1
    if offset == UP_TO_HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE, -1
    if offset > partition.log_start_offset:
        try:
            partition.log.advance_log_start(offset)
        except (OSError, CorruptLog) as failure:
            broker.faults.failed(partition, "deleting records", failure)
            return ErrorCode.KAFKA_STORAGE_ERROR, -1
        broker.log_start_moved(partition, offset)
    return ErrorCode.NONE, partition.log_start_offset
