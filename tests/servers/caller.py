"""One blocking connection to one node, without a client library's opinions: no metadata, no epochs, no retries."""

import socket
from collections import Counter
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from headrace.errors import ErrorCode
from headrace.wire.batch import NewRecord, build
from headrace.wire.frames import decode_response, encode_request
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from headrace.wire.struct import Message

M = TypeVar("M", bound=Message)

LATEST = -1
LIST_OFFSETS_VERSION = 7
PRODUCE_VERSION = 9
METADATA_VERSION = 12


class Told(NamedTuple):
    error: ErrorCode
    offset: int


class Caller:
    """Raises OSError when the node does not answer within the time."""

    def __init__(self, host: str, port: int, answer_s_max: float = 10.0) -> None:
        self._socket = socket.create_connection((host, port), timeout=answer_s_max)
        self._answers = self._socket.makefile("rb")
        self._sent = 0

    def ask(self, request: Message, version: int, response: type[M]) -> M:
        self.send(request, version)
        return self.answer(response, version)

    def send(self, request: Message, version: int) -> None:
        self._sent += 1
        self._socket.sendall(b"".join(map(bytes, encode_request(request, version, self._sent, "caller"))))

    def answer(self, response: type[M], version: int) -> M:
        size = self._answers.read(4)
        frame = self._answers.read(int.from_bytes(size, "big"))
        if len(size) < 4 or len(frame) < int.from_bytes(size, "big"):
            raise ConnectionResetError("the node closed the connection")
        return decode_response(response, version, frame)[1]

    def latest(self, topic: str, partitions: int, version: int = LIST_OFFSETS_VERSION) -> dict[int, Told]:
        return _told(self.ask(latest_of(topic, partitions), version, ListOffsetsResponse))

    def many_latest(self, topic: str, count: int) -> None:
        """So many questions for the end of the first partition, none of whose answers is waited for."""
        for _ in range(count):
            self.send(latest_of(topic, 1), LIST_OFFSETS_VERSION)

    def latest_answers(self, count: int) -> Counter[ErrorCode]:
        answers = (_told(self.answer(ListOffsetsResponse, LIST_OFFSETS_VERSION)) for _ in range(count))
        return Counter(told[0].error for told in answers)

    def produce(self, topic: str, value: bytes, partition: int = 0, acks: int = -1, timeout_ms: int = 2_000) -> Told:
        records = build([NewRecord(1, None, value)])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])
        part = self.ask(request, PRODUCE_VERSION, ProduceResponse).responses[0].partition_responses[0]
        return Told(ErrorCode(part.error_code), part.base_offset)

    def metadata(self, *topics: str) -> MetadataResponse:
        asked = [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        return self.ask(request, METADATA_VERSION, MetadataResponse)

    def leader_epoch(self, topic: str, partition: int = 0) -> int:
        (found,) = self.metadata(topic).topics
        return next(one.leader_epoch for one in found.partitions if one.partition_index == partition)

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def latest_of(topic: str, partitions: int) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=at, timestamp=LATEST) for at in range(partitions)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=asked)])


def _told(response: ListOffsetsResponse) -> dict[int, Told]:
    return {one.partition_index: Told(ErrorCode(one.error_code), one.offset) for one in response.topics[0].partitions}
