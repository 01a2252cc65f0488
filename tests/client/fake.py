"""A broker that answers what a test tells it to.

It stands where a real one cannot: errors of every kind, lost answers and moving leaders, on demand and in order.
"""

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType

from headrace.model import TopicPartition
from headrace.net.connection import Connection
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.listener import Listener
from headrace.net.reply import Reply
from headrace.net.transport import Address, LoopNetwork
from headrace.wire.apis import APIS
from headrace.wire.batch import read_header, read_records
from headrace.wire.compiler import decode
from headrace.wire.frames import RequestHeader, decode_request_header, encode_response
from headrace.wire.messages.coordinators import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.fetch import FetchRequest
from headrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.wire.messages.versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.struct import Message

HANG_UP = object()
"""In place of an answer: the connection is closed."""

SILENCE = object()
"""In place of an answer: nothing, ever."""

Answer = Message | object
Answering = Callable[[Message], Answer]


@dataclass
class FakeTopic:
    topic_id: bytes
    leaders: list[int]  # by partition
    epochs: list[int]


@dataclass
class FakeCluster:
    """What all brokers of a test say of themselves."""

    topics: dict[str, FakeTopic] = field(default_factory=dict)
    addresses: dict[int, Address] = field(default_factory=dict)

    def add(self, name: str, *leaders: int) -> None:
        number = len(self.topics) + 1
        self.topics[name] = FakeTopic(bytes([number]) * 16, list(leaders), [0] * len(leaders))

    def name_of(self, topic_id: bytes) -> str:
        """Empty for an id that no topic has."""
        return next((name for name, topic in self.topics.items() if topic.topic_id == topic_id), "")

    def move(self, name: str, partition: int, node_id: int) -> None:
        self.topics[name].leaders[partition] = node_id
        self.topics[name].epochs[partition] += 1

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = [topic.name or "" for topic in request.topics or []]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host=address.host, port=address.port)
                for node_id, address in self.addresses.items()
            ],
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            return MetadataResponseTopic(name=name, error_code=3, partitions=[])
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=topic.epochs[index],
                replica_nodes=[leader],
                isr_nodes=[leader],
            )
            for index, leader in enumerate(topic.leaders)
        ]
        return MetadataResponseTopic(name=name, topic_id=topic.topic_id, partitions=partitions)


class FakeBroker:
    """`then(RequestClass, answers)` scripts the next answers of an API; after them `always` or the default answers."""

    def __init__(self, cluster: FakeCluster, node_id: int = 1, versions_max: dict[int, int] | None = None) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.versions_max = versions_max or {}
        self.asked: list[Message] = []
        self.stored: dict[TopicPartition, list[bytes]] = defaultdict(list)  # values, in order
        self.producer_ids = 100 * node_id
        self._script: dict[type[Message], list[Answer]] = defaultdict(list)
        self._always: dict[type[Message], Answering] = {
            ApiVersionsRequest: self._versions,
            MetadataRequest: lambda request: cluster.metadata(request),  # type: ignore[arg-type]  # by its key
            InitProducerIdRequest: self._init_producer_id,
            ProduceRequest: self._produce,
        }
        self._together: dict[type[Message], int] = {}
        self._held: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: Listener | None = None

    async def __aenter__(self) -> "FakeBroker":
        self._listener = Listener(Hub(asyncio.get_running_loop(), Limits()), self._on_frame)
        known = self.cluster.addresses.get(self.node_id)
        port = 0 if known is None else known.port
        self.cluster.addresses[self.node_id] = await self._listener.start(LoopNetwork(), "127.0.0.1", port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.hang_up()

    async def hang_up(self) -> None:
        assert self._listener is not None
        for task in self._tasks:
            task.cancel()
        await self._listener.drain(0)

    @property
    def bootstrap(self) -> str:
        return str(self.cluster.addresses[self.node_id])

    def then(self, request: type[Message], answers: Iterable[Answer]) -> None:
        """Each answer is a message, HANG_UP, SILENCE, or a function of the request that returns one of them."""
        self._script[request] += answers

    def always(self, request: type[Message], answering: Answering) -> None:
        self._always[request] = answering

    def answer_together(self, request: type[Message], count: int) -> None:
        """The next so many are all in flight before the first of them is answered."""
        self._together[request] = count

    def asked_for(self, request: type[Message]) -> int:
        return sum(type(message) is request for message in self.asked)

    def _on_frame(self, connection: Connection, frame: bytearray) -> None:
        header = decode_request_header(frame)
        request = decode(APIS[header.api_key].request, header.api_version, frame, header.body_at)
        self.asked.append(request)
        # As Kafka does: nothing of a connection is looked at behind a fetch that waits.
        reply = connection.open_reply(alone=header.api_key == FetchRequest.api)
        kind = type(request)
        if kind not in self._together:
            self._answer(connection, reply, header, request)
            return
        self._held.append(lambda: self._answer(connection, reply, header, request))
        if len(self._held) == self._together[kind]:
            del self._together[kind]
            held, self._held = self._held, []
            for answer in held:
                answer()

    def _answer(self, connection: Connection, reply: Reply, header: RequestHeader, request: Message) -> None:
        script = self._script[type(request)]
        answer: Answer = script.pop(0) if script else self._always[type(request)]
        if callable(answer):
            answer = answer(request)
        if answer is HANG_UP:
            connection.close()
        elif isinstance(answer, Message):
            reply.send(encode_response(answer, header.api_version, header.correlation_id))
        elif inspect.isawaitable(answer):
            task = asyncio.ensure_future(_send_later(answer, reply, header))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _versions(self, _request: Message) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=key,
                    min_version=api.versions.start,
                    max_version=self.versions_max.get(key, api.versions.stop - 1),
                )
                for key, api in APIS.items()
            ]
        )

    def _init_producer_id(self, _request: Message) -> InitProducerIdResponse:
        self.producer_ids += 1
        return InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=0)

    def _produce(self, request: Message) -> ProduceResponse:
        return self.produce(request)

    def produce(self, request: Message, code: int = 0, *, store: bool | None = None) -> ProduceResponse:
        """Stores what comes, unless it is refused with a code, and answers."""
        assert isinstance(request, ProduceRequest)
        responses = []
        for topic in request.topic_data:
            name = topic.name or self.cluster.name_of(topic.topic_id)
            answers = []
            for data in topic.partition_data:
                partition = TopicPartition(name, data.index)
                offset = len(self.stored[partition])
                if store or (store is None and code == 0):
                    assert data.records is not None
                    self.stored[partition] += [record.value or b"" for record in read_records(data.records)]
                answers.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset))
            responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
        return ProduceResponse(responses=responses)


async def _send_later(answer: Awaitable[Message], reply: Reply, header: RequestHeader) -> None:
    reply.send(encode_response(await answer, header.api_version, header.correlation_id))


def sequences(request: Message) -> list[tuple[int, int, int]]:
    """(producer id, first number, records) of each batch of a Produce request."""
    assert isinstance(request, ProduceRequest)
    found = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            assert data.records is not None
            header = read_header(data.records)
            found.append((header.producer_id, header.base_sequence, header.record_count))
    return found
