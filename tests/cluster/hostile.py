"""Connections that do not follow the protocol, by chance with a seed."""

import functools
import resource
import selectors
import socket
import struct
import time
from collections.abc import Iterator
from random import Random

from headrace.wire.apis import APIS
from headrace.wire.batch import NewRecord, build
from headrace.wire.compiler import encode
from headrace.wire.compression import Codec
from headrace.wire.frames import encode_request
from headrace.wire.messages.commit_group import CommitGroupRequest, GroupHandle
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.inspection import InspectRequest
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.own import OwnRequest, OwnResource
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.replication import StepDownPartition, StepDownRequest
from headrace.wire.struct import Message
from tests.wire.oracle import OWN_KEYS, kio_bytes, kio_class, random_entity

BODY_BYTES_MAX = 4_000


def raise_open_files_limit() -> int:
    """As far as the system lets us; returns how many files this process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def api_versions(correlation_id: int = 1) -> bytes:
    return framed(struct.pack(">hhih", 18, 0, correlation_id, -1))


REQUESTS = [(api.request, version) for api in APIS.values() for version in api.versions]


@functools.cache
def body(request: type[Message], version: int, variant: int) -> bytes:
    random = Random(f"{request.__name__} {version} {variant}")
    if request.api in OWN_KEYS:
        return encode(own_request(request, random), version)
    bodies = (kio_bytes(random_entity(random, kio_class(request, version), items_max=3)) for _ in range(20))
    return min(bodies, key=lambda body: abs(len(body) - 300))[:BODY_BYTES_MAX]


def own_request(request: type[Message], random: Random) -> Message:
    """Nobody else's codec knows them."""
    if request is InspectRequest:
        kind = random.choice(("failed", "sessions", "guard", "own", "nonsense"))
        return InspectRequest(kind=kind, args=["0"] * random.randrange(3))
    if request is OwnRequest:
        resources = [
            OwnResource(resource=f"t-{random.randrange(9)}", generation=random.getrandbits(32) - (1 << 31))
            for _ in range(random.randrange(4))
        ]
        return OwnRequest(
            group="g" * random.randrange(3),
            resources=resources,
            op=random.randrange(-1, 7),
            wait_ms=random.randrange(9),
        )
    if request is CommitGroupRequest:
        handles = [
            GroupHandle(transactional_id=f"hr1:s:q:{at}:0:r:0", producer_id=random.getrandbits(63), producer_epoch=at)
            for at in range(random.randrange(4))
        ]
        op, batch_id = random.randrange(-1, 4), random.randrange(-1, 9)
        return CommitGroupRequest(op=op, scope="s", query_id="q", batch_id=batch_id, run_id="r", handles=handles)
    assert request is StepDownRequest, request
    partitions = [
        StepDownPartition(topic_id=random.randbytes(16), partition=random.getrandbits(31), partition_epoch=at)
        for at in range(random.randrange(4))
    ]
    return StepDownRequest(controller_epoch=random.getrandbits(63), partitions=partitions)


def valid_frame(random: Random) -> bytes:
    """A request of any API and version, with values by chance, as a client could have sent it."""
    request, version = random.choice(REQUESTS)
    header = struct.pack(">hhih", request.api, version, random.getrandbits(31), 4) + b"evil"
    tags = b"\0" if version >= request.flexible else b""
    return header + tags + body(request, version, random.randrange(3))


def mutated_frame(random: Random) -> bytes:
    frame = bytearray(valid_frame(random))
    for _ in range(random.choice((1, 1, 2, 5))):
        at, width = random.randrange(len(frame)), random.choice((1, 1, 2, 4, 8))
        hostile = random.choice((b"\xff" * width, b"\x7f" * width, bytes(width), random.randbytes(width)))
        frame[at : at + random.choice((0, width, width))] = hostile
        if random.random() < 0.15:
            del frame[random.randrange(4, len(frame) + 1) :]
    return bytes(frame)


def send_and_wait(port: int, messages: list[bytes], wait_s_max: float) -> int:
    """One connection per message. Waits until each was answered or closed, though a request may rightly wait for
    long; returns how many were."""
    reacted = 0
    with selectors.DefaultSelector() as selector:
        for message in messages:
            connection = connect(port)
            connection.sendall(message)
            selector.register(connection, selectors.EVENT_READ)
        deadline = time.monotonic() + wait_s_max
        while selector.get_map() and (left_s := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                reacted += 1
                _forget(selector, key.fileobj)
        for key in list(selector.get_map().values()):
            _forget(selector, key.fileobj)
    return reacted


def _forget(selector: selectors.BaseSelector, connection: object) -> None:
    assert isinstance(connection, socket.socket)
    selector.unregister(connection)
    connection.close()


def ask(connection: socket.socket, frame: bytes) -> bytes:
    connection.sendall(frame)
    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return connection.recv(size, socket.MSG_WAITALL)


def produce(topic: str, value: bytes) -> bytes:
    """One record for partition 0."""
    records = build([NewRecord(time.time_ns() // 1_000_000, None, value)], codec=Codec.NONE)
    partition = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )
    return b"".join(encode_request(request, 9, 1, "hostile"))


def metadata(topic: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    return b"".join(encode_request(request, 9, 1, "hostile"))


def fetch(topic: str, bytes_max: int) -> bytes:
    """Everything of partition 0, outside of a session."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=bytes_max)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=bytes_max,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
    )
    return b"".join(encode_request(request, 12, 1, "hostile"))


def reset(connection: socket.socket) -> None:
    """Closes without a farewell: the peer gets a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def is_closed_by_peer(connection: socket.socket) -> bool:
    """Waits for the peer to close, which it must do in time."""
    connection.settimeout(30)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def drip(connections: list[socket.socket], message: bytes) -> Iterator[None]:
    """One byte of the message to each connection per step; those that the peer closed leave the list."""
    for at in range(len(message)):
        for connection in list(connections):
            try:
                connection.sendall(message[at : at + 1])
            except ConnectionError:
                connections.remove(connection)
        yield
