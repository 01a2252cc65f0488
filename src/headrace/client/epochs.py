"""OffsetForLeaderEpoch: where epochs end, by which it shows what was cut off a log."""

from collections.abc import Mapping

from headrace.client.cluster import Cluster, group_by_topic
from headrace.client.leaders import ask_leaders
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.net.peer import Peer
from headrace.wire.messages.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


async def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int], timeout_ms: int
) -> dict[TopicPartition, int | None]:
    """Where each epoch, or the last one before it, ends; None where the leader does not know."""

    async def ask(peer: Peer, some: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        topics = [
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(partition=index, leader_epoch=some[TopicPartition(topic, index)])
                    for index in indexes
                ],
            )
            for topic, indexes in group_by_topic(list(some)).items()
        ]
        question = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        answer = await peer.request(question, OffsetForLeaderEpochResponse)
        return {
            (one := TopicPartition(topic.topic, told.partition)): KafkaError(
                told.error_code, f"the epochs of {one} cannot be told"
            )
            if told.error_code
            else told.end_offset
            for topic in answer.topics
            for told in topic.partitions
        }

    found = await ask_leaders(cluster, epochs, ask, "epochs are not known", timeout_ms)
    return {one: end if end >= 0 else None for one, end in found.items()}
