"""DescribeProducers, version 0: what a partition's leader remembers of producers and of their transactions."""

from headrace.broker.broker import Broker
from headrace.broker.partitions import Hosted
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.errors import CorruptLog, ErrorCode
from headrace.wire.messages.transactions import (
    ActiveProducer,
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
)


def handle(broker: Broker, request: Request[DescribeProducersRequest]) -> None:
    topics = []
    for topic in request.body.topics:
        allowed = broker.allowed(request.principal, Operation.READ, topic.name)
        partitions = []
        for index in topic.partition_indexes:
            if allowed:
                found = _producers(broker, broker.partitions.find_by_name(topic.name, index))
            else:
                found = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if isinstance(found, ErrorCode):
                partitions.append(DescribeProducersPartitionResult(partition_index=index, error_code=found))
            else:
                partitions.append(DescribeProducersPartitionResult(partition_index=index, active_producers=found))
        topics.append(DescribeProducersTopicResult(name=topic.name, partitions=partitions))
    request.reply(DescribeProducersResponse(topics=topics))


def _producers(broker: Broker, partition: Hosted | ErrorCode) -> list[ActiveProducer] | ErrorCode:
    if isinstance(partition, ErrorCode):
        return partition
    if partition.error:
        return partition.error
    try:
        table = partition.log.producers
    except (OSError, CorruptLog) as failure:
        broker.faults.failed(partition, "opening the log", failure)
        return ErrorCode.KAFKA_STORAGE_ERROR
    return [
        ActiveProducer(
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.transaction_first_offset,
        )
        for producer_id, producer in table.items()
    ]
