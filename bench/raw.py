"""A blocking client of one connection for what a benchmark needs beside load: topics, and fetch sessions."""

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from headrace.wire.frames import decode_response, encode_request
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from headrace.wire.struct import Message

M = TypeVar("M", bound=Message)

PARTITIONS_PER_PROBE = 1_000
PARTITIONS_PER_REQUEST = 5_000
"""Apache Kafka refuses to create 10,000 partitions at once: it limits the records of one operation."""

ANSWER_S_MAX = 300
METADATA_VERSION = 9


class BrokerError(RuntimeError):
    """The broker answered with an error code."""


class Fetched(NamedTuple):
    session_id: int
    topics: int
    response_bytes: int


class Described(NamedTuple):
    """A partition as Metadata tells of it; leader -1 when there is none."""

    leader: int
    isr_size: int


class RawClient:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        self._correlation_id = 0

    def create_topic(self, name: str, partitions: int) -> None:
        self._create(name, partitions, copies=1, configs=[])
        self._wait_until_usable(name, partitions)

    def create_configured(self, name: str, partitions: int, copies: int, settings: Mapping[str, str]) -> None:
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
        self._create(name, partitions, copies=copies, configs=configs)

    def create_replicated(self, name: str, partitions: int) -> None:
        """Three copies, of which two acknowledge."""
        configs = [CreatableTopicConfig(name="min.insync.replicas", value="2")]
        self._create(name, partitions, copies=3, configs=configs)

    def _create(self, name: str, partitions: int, copies: int, configs: list[CreatableTopicConfig]) -> None:
        first = min(partitions, PARTITIONS_PER_REQUEST)
        topic = CreatableTopic(
            name=name, num_partitions=first, replication_factor=copies, assignments=[], configs=configs
        )
        made, _ = self._ask(CreateTopicsRequest(topics=[topic], timeout_ms=120_000), 5, CreateTopicsResponse)
        _check(made.topics[0].error_code, f"creating {name}")
        for count in range(first + PARTITIONS_PER_REQUEST, partitions + 1, PARTITIONS_PER_REQUEST):
            more = CreatePartitionsTopic(name=name, count=count, assignments=None)
            request = CreatePartitionsRequest(topics=[more], timeout_ms=120_000)
            grown, _ = self._ask(request, 2, CreatePartitionsResponse)
            _check(grown.results[0].error_code, f"growing {name} to {count}")

    def delete_topic(self, name: str) -> None:
        deleted, _ = self._ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000), 4, DeleteTopicsResponse)
        _check(deleted.responses[0].error_code, f"deleting {name}")

    def brokers(self) -> int:
        answer, _ = self._ask(MetadataRequest(topics=[]), METADATA_VERSION, MetadataResponse)
        return len(answer.brokers)

    def describe(self, topic: str) -> dict[int, Described]:
        """Empty while the broker does not know of it."""
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer, _ = self._ask(asked, METADATA_VERSION, MetadataResponse)
        return {
            partition.partition_index: Described(partition.leader_id, len(partition.isr_nodes))
            for known in answer.topics
            for partition in known.partitions
        }

    def fetch(self, session_id: int, epoch: int, topic: str = "", partitions: Sequence[int] = ()) -> Fetched:
        """One fetch that waits for nothing; the partitions, if any, from offset 0."""
        asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in partitions]
        topics = [FetchTopic(topic=topic, partitions=asked)] if asked else []
        request = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=epoch, topics=topics)
        answer, size = self._ask(request, 12, FetchResponse)
        _check(answer.error_code, "fetching")
        for answered in answer.responses:
            for partition in answered.partitions:
                _check(partition.error_code, f"fetching partition {partition.partition_index}")
        return Fetched(answer.session_id, len(answer.responses), size)

    def _wait_until_usable(self, topic: str, partitions: int) -> None:
        """Apache Kafka answers, and names leaders, before the leaders know of it.

        A few at a time: what one large fetch leaves in the broker's heap would count as memory of the partitions.
        """
        deadline = time.monotonic() + ANSWER_S_MAX
        for first in range(0, partitions, PARTITIONS_PER_PROBE):
            self._wait_until_fetched(topic, range(first, min(first + PARTITIONS_PER_PROBE, partitions)), deadline)

    def _wait_until_fetched(self, topic: str, partitions: range, deadline: float) -> None:
        while True:
            try:
                self.fetch(0, -1, topic, partitions)
                return
            except BrokerError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def ask(self, request: Message, version: int, response: type[M]) -> M:
        """Whatever else a benchmark asks."""
        return self._ask(request, version, response)[0]

    def _ask(self, request: Message, version: int, response: type[M]) -> tuple[M, int]:
        self._correlation_id += 1
        self._socket.sendall(b"".join(encode_request(request, version, self._correlation_id, "bench")))
        (size,) = struct.unpack(">i", self._read(4))
        correlation_id, answer = decode_response(response, version, self._read(size))
        assert correlation_id == self._correlation_id, "an answer out of order"
        return answer, size + 4

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ConnectionError("the broker closed the connection")
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stream.close()
        self._socket.close()


def _check(error_code: int, what: str) -> None:
    if error_code != 0:
        raise BrokerError(f"{what}: error {error_code}")
