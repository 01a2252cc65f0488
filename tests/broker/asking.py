"""A client without a client library's opinions: what is asked is what the test says."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from headrace.errors import ErrorCode
from headrace.model import Buffer
from headrace.net.hub import Hub
from headrace.net.peer import Peer
from headrace.net.transport import LoopNetwork
from headrace.wire.batch import NewRecord, build, headers, read_records
from headrace.wire.compression import Codec
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from headrace.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.wire.struct import Message
from tests.broker.stepped import NOW_MS

M = TypeVar("M", bound=Message)

TOPIC = "events"
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
DEBUG_REPLICA = -2
"""May see the log end where consumers see the high watermark."""


def records_of(
    values: Sequence[bytes] = (b"a value",),
    *,
    timestamps: Sequence[int] = (NOW_MS,),
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    **attributes: Any,
) -> bytearray:
    """One batch as a client sends it. `producer` is id, epoch and first sequence; the last timestamp repeats."""
    times = [*timestamps, *[timestamps[-1]] * len(values)]
    producer_id, producer_epoch, base_sequence = producer
    return build(
        [NewRecord(time, None, value) for time, value in zip(times, values, strict=False)],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        **attributes,
    )


def numbered(producer: tuple[int, int, int], count: int = 1) -> bytearray:
    """A batch of an idempotent producer."""
    return records_of([b"%d" % number for number in range(count)], producer=producer)


def values_of(records: Buffer | None) -> list[bytes | None]:
    return [r.value for at, _ in headers(records or b"") for r in read_records(records or b"", at)]


def produce_request(
    batches: Mapping[int, Buffer | None],
    *,
    topic: str = TOPIC,
    topic_id: bytes = bytes(16),
    acks: int = -1,
    **fields: Any,
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=fields.get("timeout_ms", 600_000),
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=index, records=raw) for index, raw in batches.items()],
            )
        ],
    )


def fetch_request(
    offset: int, partition: int = 0, *, topic: str = TOPIC, max_wait_ms: int = 0, replica_id: int = -1
) -> FetchRequest:
    """Without a session."""
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
        ],
    )


FETCH_VERSION = 12
"""The last one that names topics and needs no replica state to be somebody."""


class Client:
    """One connection."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    @classmethod
    async def connect(cls, address: str, hub: Hub) -> "Client":
        host, _, port = address.rpartition(":")
        return cls(await Peer.connect(LoopNetwork(), hub, host, int(port), "tester"))

    async def ask(self, message: Message, answer: type[M], version: int | None = None) -> M:
        return await self.peer.request(message, answer, version)

    async def create_topic(
        self, name: str = TOPIC, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> bytes:
        """Its id."""
        configs = [CreatableTopicConfig(name=key, value=text) for key, text in (settings or {}).items()]
        wanted = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs
        )
        answer = await self.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), CreateTopicsResponse)
        (created,) = answer.topics
        assert created.error_code == 0, created.error_message
        return created.topic_id

    async def delete_topic(self, name: str = TOPIC) -> None:
        states = [DeleteTopicState(name=name)]
        answer = await self.ask(DeleteTopicsRequest(topics=states, timeout_ms=30_000), DeleteTopicsResponse)
        assert [topic.error_code for topic in answer.responses] == [0]

    def send(
        self, raw: Buffer | None = None, partition: int = 0, *, topic: str = TOPIC, version: int = 12, **fields: Any
    ) -> "asyncio.Future[ProduceResponse]":
        """Without waiting, so that several are under way."""
        batch = records_of() if raw is None else raw
        request = produce_request({partition: batch}, topic=topic, **fields)
        return self.peer.send(request, ProduceResponse, version)

    async def produce(self, raw: Buffer | None = None, partition: int = 0, **fields: Any) -> PartitionProduceResponse:
        return only_partition(await self.send(raw, partition, **fields))

    async def fetch(self, offset: int, partition: int = 0, **fields: Any) -> PartitionData:
        answer = await self.ask(fetch_request(offset, partition, **fields), FetchResponse, FETCH_VERSION)
        assert answer.error_code == 0
        return answer.responses[0].partitions[0]

    async def read_all(self, offset: int = 0, partition: int = 0, **fields: Any) -> list[bytes | None]:
        """The values from `offset` to the high watermark. One fetch reads at most to the end of a segment."""
        values: list[bytes | None] = []
        while True:
            fetched = await self.fetch(offset, partition, **fields)
            assert fetched.error_code == 0
            if not fetched.records:
                assert offset == fetched.high_watermark
                return values
            values += values_of(fetched.records)
            offset = [header.last_offset + 1 for _, header in headers(fetched.records)][-1]

    async def list_offsets(
        self, *asked: ListOffsetsPartition, topic: str = TOPIC, version: int = 11, replica_id: int = -1
    ) -> list[ListOffsetsPartitionResponse]:
        request = ListOffsetsRequest(
            replica_id=replica_id, topics=[ListOffsetsTopic(name=topic, partitions=list(asked))], timeout_ms=30_000
        )
        answer = await self.ask(request, ListOffsetsResponse, version)
        return answer.topics[0].partitions

    async def offset(self, timestamp: int = LATEST, partition: int = 0, *, topic: str = TOPIC, **fields: Any) -> int:
        asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        (found,) = await self.list_offsets(asked, topic=topic, **fields)
        assert found.error_code == 0, ErrorCode(found.error_code)
        return found.offset


async def delete_records(client: Client, *offsets: int, topic: str = TOPIC, version: int = 2) -> list[tuple[int, int]]:
    """Error and low watermark for each partition, from the first on."""
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in enumerate(offsets)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000)
    answer = await client.ask(request, DeleteRecordsResponse, version)
    return [(p.error_code, p.low_watermark) for p in answer.topics[0].partitions]


def only_partition(answer: ProduceResponse) -> PartitionProduceResponse:
    return answer.responses[0].partition_responses[0]


class Raw:
    """A connection below the level of messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, parts: Iterable[Buffer]) -> None:
        self._writer.writelines(parts)

    async def frame(self) -> bytes:
        """The next answer, without its length."""
        size = int.from_bytes(await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def frame_or_end(self) -> bytes | None:
        """The next answer, or None if the other side closes instead."""
        async with asyncio.timeout(30):
            try:
                return await self.frame()
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return None

    async def is_closed(self) -> bool:
        """Waits for the other side to close; False if it sends something first."""
        async with asyncio.timeout(30):
            try:
                return await self._reader.read(1) == b""
            except ConnectionResetError:
                return True

    def close(self) -> None:
        self._writer.close()
