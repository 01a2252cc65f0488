"""Requests of a follower: what it fetches, and the leader's offsets where it stands outside of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from headrace.broker.local_coverage import fields_of
from headrace.broker.partitions import Hosted
from headrace.config import BrokerConfig
from headrace.core.cluster import RegisteredBroker
from headrace.core.coverage import LocalCoverage
from headrace.core.fetching import Ask
from headrace.core.following import Position
from headrace.core.tier_start import OffsetAndEpoch
from headrace.errors import ErrorCode
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.struct import Message

M = TypeVar("M", bound=Message)

FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 7
LIST_TIERED_VERSION = 11
EPOCHS_VERSION = 4
LATEST, EARLIEST, EARLIEST_LOCAL, PENDING_UPLOAD = -1, -2, -4, -6


class Leader(Protocol):
    """A connection to the node that leads."""

    async def request(self, message: Message, answer: type[M], version: int | None, timeout_ms: int) -> M: ...
    def close(self, reason: str = ...) -> None: ...


class Leaders(Protocol):
    async def connect(self, broker: RegisteredBroker, client_id: str) -> Leader:
        """A connection for the caller alone. Raises PeerLost."""
        ...


def fetch_request(
    ask: Ask[Hosted, Position],
    replica: ReplicaState,
    config: BrokerConfig,
    coverage: Callable[[Hosted], LocalCoverage | None],
) -> FetchRequest:
    """Lists what changed since the last one, and no more."""
    topics: dict[bytes, FetchTopic] = {}
    for partition, position in ask.listed:
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = FetchTopic(topic_id=partition.topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=partition.index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.fetch_offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start,
                partition_max_bytes=config.replica_fetch_max_bytes,
                **fields_of(coverage(partition)),
            )
        )
    forgotten: dict[bytes, ForgottenTopic] = {}
    for partition in ask.forgotten:
        forgotten.setdefault(
            partition.topic_id, ForgottenTopic(topic_id=partition.topic_id, partitions=[])
        ).partitions.append(partition.index)
    return FetchRequest(
        replica_state=replica,
        max_wait_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_response_max_bytes,
        session_id=ask.session_id,
        session_epoch=ask.epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
    )


async def list_offsets(
    leader: Leader, replica_id: int, timestamp: int, asked: Mapping[Hosted, int], timeout_ms: int
) -> dict[Hosted, int | ErrorCode]:
    """LATEST or EARLIEST of each partition, asked with its leader epoch. What is not answered counts as refused."""
    request = ListOffsetsRequest(replica_id=replica_id, topics=_by_topic(timestamp, asked.items()))
    answer = await leader.request(request, ListOffsetsResponse, LIST_OFFSETS_VERSION, timeout_ms)
    told = {(topic.name, part.partition_index): part for topic in answer.topics for part in topic.partitions}
    found: dict[Hosted, int | ErrorCode] = {}
    for partition in asked:
        part = told.get((partition.topic, partition.index))
        if part is None or (not part.error_code and part.offset < 0):
            found[partition] = ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            found[partition] = error_of(part.error_code) if part.error_code else part.offset
    return found


async def offset_of(
    leader: Leader, replica_id: int, timestamp: int, partition: Hosted, leader_epoch: int, timeout_ms: int
) -> OffsetAndEpoch | ErrorCode:
    """One of the leader's offsets, the tier's among them; offset -1 if there is none."""
    topics = _by_topic(timestamp, [(partition, leader_epoch)])
    request = ListOffsetsRequest(replica_id=replica_id, topics=topics, timeout_ms=timeout_ms)
    answer = await leader.request(request, ListOffsetsResponse, LIST_TIERED_VERSION, timeout_ms)
    for topic in answer.topics:
        for part in topic.partitions:
            if (topic.name, part.partition_index) == (partition.topic, partition.index):
                return error_of(part.error_code) if part.error_code else OffsetAndEpoch(part.offset, part.leader_epoch)
    return ErrorCode.UNKNOWN_SERVER_ERROR


async def ends_of_epochs(
    leader: Leader, replica_id: int, epochs: Sequence[int], partition: Hosted, leader_epoch: int, timeout_ms: int
) -> dict[int, tuple[int, int]] | ErrorCode:
    """For each epoch the largest up to it that the leader knows, and where that one ended."""
    asked = [
        OffsetForLeaderPartition(partition=partition.index, current_leader_epoch=leader_epoch, leader_epoch=epoch)
        for epoch in epochs
    ]
    topics = [OffsetForLeaderTopic(topic=partition.topic, partitions=asked)]
    request = OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics)
    answer = await leader.request(request, OffsetForLeaderEpochResponse, EPOCHS_VERSION, timeout_ms)
    told = [part for topic in answer.topics for part in topic.partitions]
    if len(told) != len(asked):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    for part in told:
        if part.error_code:
            return error_of(part.error_code)
    return {epoch: (part.leader_epoch, part.end_offset) for epoch, part in zip(epochs, told, strict=True)}


def error_of(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _by_topic(timestamp: int, asked: Iterable[tuple[Hosted, int]]) -> list[ListOffsetsTopic]:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, leader_epoch in asked:
        topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[])).partitions.append(
            ListOffsetsPartition(
                partition_index=partition.index, current_leader_epoch=leader_epoch, timestamp=timestamp
            )
        )
    return list(topics.values())
