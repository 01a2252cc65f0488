"""ListOffsets and DeleteRecords."""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.cluster import ASK_MS_MAX, Cluster, group_by_topic
from headrace.client.leaders import ask_leaders
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.net.peer import Peer
from headrace.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2


class OffsetAndTimestamp(NamedTuple):
    """A place in a partition; the offset is -1 when no record is that new."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int, timeout_ms: int = ASK_MS_MAX
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """For each partition the first offset at or after that time, or an end of it (LATEST, EARLIEST)."""

    async def ask(
        peer: Peer, some: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
        def question(topic: str, index: int) -> ListOffsetsPartition:
            leader = cluster.leader(TopicPartition(topic, index))
            return ListOffsetsPartition(
                partition_index=index,
                current_leader_epoch=-1 if leader is None else leader.epoch,
                timestamp=some[TopicPartition(topic, index)],
            )

        topics = [
            ListOffsetsTopic(name=topic, partitions=[question(topic, index) for index in indexes])
            for topic, indexes in group_by_topic(list(some)).items()
        ]
        answer = await peer.request(ListOffsetsRequest(isolation_level=isolation, topics=topics), ListOffsetsResponse)
        return {
            (partition := TopicPartition(topic.name, told.partition_index)): KafkaError(
                told.error_code, f"the offsets of {partition} cannot be listed"
            )
            if told.error_code
            else OffsetAndTimestamp(told.offset, told.timestamp, told.leader_epoch)
            for topic in answer.topics
            for told in topic.partitions
        }

    return await ask_leaders(cluster, wanted, ask, "offsets are not known", timeout_ms)


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int], timeout_ms: int
) -> dict[TopicPartition, int]:
    """Where the partitions begin then. To delete twice up to the same offset is to delete once."""

    async def ask(peer: Peer, some: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        topics = [
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(partition_index=index, offset=some[TopicPartition(topic, index)])
                    for index in indexes
                ],
            )
            for topic, indexes in group_by_topic(list(some)).items()
        ]
        answer = await peer.request(DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), DeleteRecordsResponse)
        return {
            (partition := TopicPartition(topic.name, told.partition_index)): KafkaError(
                told.error_code, f"the records of {partition} were not deleted"
            )
            if told.error_code
            else told.low_watermark
            for topic in answer.topics
            for told in topic.partitions
        }

    return await ask_leaders(cluster, before, ask, "records were not deleted", timeout_ms)
