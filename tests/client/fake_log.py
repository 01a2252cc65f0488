"""Fetch and ListOffsets of the scripted broker: small honest answers from a list of batches, sessions included."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.model import TopicPartition
from headrace.wire.batch import NewRecord, build, read_header
from headrace.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.wire.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.struct import Message
from tests.client.fake import FakeBroker, FakeCluster

Key = tuple[str, bytes, int]


@dataclass
class Session:
    epoch: int = 1
    partitions: dict[Key, FetchPartition] = field(default_factory=dict)


class FakeLog:
    """What the partitions of one broker hold."""

    def __init__(self, broker: FakeBroker) -> None:
        self._cluster: FakeCluster = broker.cluster
        self.batches: dict[TopicPartition, list[bytes]] = defaultdict(list)
        self.starts: dict[TopicPartition, int] = defaultdict(int)
        self.sessions: dict[int, Session] = {}
        self.codes: dict[TopicPartition, int] = {}  # error of a partition, until it is taken away
        self._news = asyncio.Event()
        broker.always(FetchRequest, self.fetch)
        broker.always(ListOffsetsRequest, self.list_offsets)

    def append(self, partition: TopicPartition, *values: bytes) -> None:
        """One batch."""
        records = [NewRecord(self.end(partition) + index, None, value) for index, value in enumerate(values)]
        self.batches[partition].append(bytes(build(records, base_offset=self.end(partition))))
        self._news.set()

    def end(self, partition: TopicPartition) -> int:
        batches = self.batches[partition]
        return read_header(batches[-1]).last_offset + 1 if batches else 0

    def fetch(self, request: Message) -> object:
        """An answer, or one that comes later."""
        assert isinstance(request, FetchRequest)
        session_id, session = self._session(request)
        if session is None:
            return FetchResponse(error_code=session_id, responses=[])
        answer = self._read(request, session_id, session)
        full = request.session_epoch <= 0
        if full or answer.responses or request.max_wait_ms == 0:
            return answer
        return self._wait(request, session_id, session)

    async def _wait(self, request: FetchRequest, session_id: int, session: Session) -> FetchResponse:
        self._news.clear()
        try:
            async with asyncio.timeout(request.max_wait_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            pass
        return self._read(request, session_id, session)

    def _session(self, request: FetchRequest) -> tuple[int, Session | None]:
        """The session and its id, or an error code and None."""
        listed = {
            (topic.topic, topic.topic_id, partition.partition): partition
            for topic in request.topics
            for partition in topic.partitions
        }
        if request.session_epoch <= 0:
            self.sessions.pop(request.session_id, None)
            session = Session(partitions=listed)
            if request.session_epoch < 0:
                return 0, session
            session_id = 1000 + len(self.sessions) + 1
            self.sessions[session_id] = session
            return session_id, session
        found = self.sessions.get(request.session_id)
        if found is None:
            return 70, None
        if found.epoch != request.session_epoch:
            return 71, None
        found.epoch += 1
        found.partitions.update(listed)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                found.partitions.pop((topic.topic, topic.topic_id, index), None)
        return request.session_id, found

    def _read(self, request: FetchRequest, session_id: int, session: Session) -> FetchResponse:
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        for (name, topic_id, index), asked in session.partitions.items():
            part = self._part(TopicPartition(name or self._cluster.name_of(topic_id), index), asked)
            if part.records or part.error_code or request.session_epoch <= 0:
                topic = topics.setdefault(
                    (name, topic_id), FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[])
                )
                topic.partitions.append(part)
        return FetchResponse(session_id=session_id, responses=list(topics.values()))

    def _part(self, partition: TopicPartition, asked: FetchPartition) -> PartitionData:
        end = self.end(partition)
        code = self.codes.get(partition, 0 if partition.topic else 100)
        if not code and not self.starts[partition] <= asked.fetch_offset <= end:
            code = 1
        records = b""
        if not code:
            for batch in self.batches[partition]:
                if read_header(batch).last_offset >= asked.fetch_offset and len(records) < asked.partition_max_bytes:
                    records += batch
        return PartitionData(partition_index=asked.partition, error_code=code, high_watermark=end, records=records)

    def list_offsets(self, request: Message) -> ListOffsetsResponse:
        assert isinstance(request, ListOffsetsRequest)
        return offsets_answer(request, self._offset)

    def _offset(self, partition: TopicPartition, time: int) -> tuple[int, int]:
        if time == -2:
            return 0, self.starts[partition]
        return 0, self.end(partition) if time == -1 or time < self.end(partition) else -1


def offsets_answer(request: Message, answer: Callable[[TopicPartition, int], tuple[int, int]]) -> ListOffsetsResponse:
    """`answer` gives (error code, offset) for a partition and a time."""
    assert isinstance(request, ListOffsetsRequest)
    topics = []
    for topic in request.topics:
        parts = [
            ListOffsetsPartitionResponse(
                partition_index=asked.partition_index,
                error_code=result[0],
                offset=result[1],
                timestamp=asked.timestamp if asked.timestamp >= 0 and result[1] >= 0 else -1,
            )
            for asked in topic.partitions
            for result in [answer(TopicPartition(topic.name, asked.partition_index), asked.timestamp)]
        ]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=parts))
    return ListOffsetsResponse(topics=topics)
