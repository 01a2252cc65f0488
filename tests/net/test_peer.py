"""The asking side, against scripted servers: a real broker neither lies about versions nor mixes answers up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from struct import pack

import pytest

from headrace.net.connection import Connection
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.listener import Listener
from headrace.net.peer import Peer, PeerLost
from headrace.net.transport import Address, LoopNetwork
from headrace.wire.errors import ProtocolError
from headrace.wire.frames import decode_request_header, encode_response
from headrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from headrace.wire.messages.offsets import ListOffsetsRequest
from headrace.wire.messages.versions import ApiVersion, ApiVersionsResponse
from tests.net.loops import on_both_loops, until

SPOKEN = [ApiVersion(api_key=18, min_version=0, max_version=3), ApiVersion(api_key=3, min_version=2, max_version=9)]
OnFrame = Callable[[Connection, bytearray], None]


def answer_versions(connection: Connection, frame: bytearray) -> bool:
    header = decode_request_header(frame)
    if header.api_key != 18:
        return False
    body = ApiVersionsResponse(api_keys=SPOKEN)
    version = header.api_version
    if version > 3:
        body = ApiVersionsResponse(error_code=35, api_keys=SPOKEN[:1])
        version = 0
    connection.open_reply().send(encode_response(body, version, header.correlation_id))
    return True


def answer_metadata(connection: Connection, frame: bytearray) -> None:
    if not answer_versions(connection, frame):
        header = decode_request_header(frame)
        body = MetadataResponse(brokers=[], topics=[], cluster_id=f"{header.correlation_id}/{header.client_id}")
        connection.open_reply().send(encode_response(body, header.api_version, header.correlation_id))


@asynccontextmanager
async def serving(on_frame: OnFrame) -> AsyncIterator[tuple[Listener, Address]]:
    listener = Listener(Hub(asyncio.get_running_loop(), Limits()), on_frame)
    address = await listener.start(LoopNetwork(), "127.0.0.1", 0)
    try:
        yield listener, address
    finally:
        await listener.drain(0)
        await asyncio.sleep(0.01)  # the loop closes the peers' sockets


async def connect(address: Address, timeout_ms: int = 10_000) -> Peer:
    hub = Hub(asyncio.get_running_loop(), Limits())
    return await Peer.connect(LoopNetwork(), hub, *address, "me", timeout_ms)


@on_both_loops
async def test_versions_are_agreed_with_an_older_broker() -> None:
    async with serving(answer_metadata) as (_, address):
        peer = await connect(address)
        assert peer.version_of(MetadataRequest) == 9
        assert peer.version_of(MetadataRequest, 5) == 5
        with pytest.raises(ProtocolError, match="does not speak a version of ListOffsets"):
            peer.version_of(ListOffsetsRequest)
        answer = await peer.request(MetadataRequest(), MetadataResponse)
        assert answer.cluster_id is not None and answer.cluster_id.endswith("/me")


@on_both_loops
async def test_many_requests_may_be_under_way_and_each_gets_its_own_answer() -> None:
    async with serving(answer_metadata) as (_, address):
        peer = await connect(address)
        answers = await asyncio.gather(*[peer.send(MetadataRequest(), MetadataResponse) for _ in range(100)])
        assert [answer.cluster_id for answer in answers] == [f"{n}/me" for n in range(3, 103)]
        assert peer.in_flight == 0


@on_both_loops
async def test_a_lost_connection_fails_all_that_were_asked() -> None:
    def vanish(connection: Connection, frame: bytearray) -> None:
        if not answer_versions(connection, frame):
            connection.close()

    async with serving(vanish) as (_, address):
        peer = await connect(address)
        results = await asyncio.gather(
            *[peer.send(MetadataRequest(), MetadataResponse) for _ in range(3)], return_exceptions=True
        )
        assert [type(result) for result in results] == [PeerLost] * 3
        assert peer.closed
        with pytest.raises(PeerLost, match=f"{address} is closed"):
            peer.send(MetadataRequest(), MetadataResponse)


@on_both_loops
async def test_answers_are_read_while_much_is_still_to_be_written() -> None:
    """The server stops reading while its answers are not taken; whoever asks must not wait for it."""
    large = "x" * 30_000

    def answer_at_length(connection: Connection, frame: bytearray) -> None:
        if not answer_versions(connection, frame):
            header = decode_request_header(frame)
            brokers = [MetadataResponseBroker(node_id=n, host=large, port=1) for n in range(100)]
            body = MetadataResponse(brokers=brokers, topics=[])
            connection.open_reply().send(encode_response(body, header.api_version, header.correlation_id))

    async with serving(answer_at_length) as (_, address):
        peer = await connect(address)
        question = MetadataRequest(topics=[MetadataRequestTopic(name=large) for _ in range(100)])
        answers = await asyncio.gather(*[peer.send(question, MetadataResponse) for _ in range(20)])
        assert len(answers) == 20


@on_both_loops
async def test_a_late_answer_closes_the_peer() -> None:
    def silent(connection: Connection, frame: bytearray) -> None:
        answer_versions(connection, frame)

    async with serving(silent) as (listener, address):
        peer = await connect(address)
        with pytest.raises(TimeoutError, match=r"no answer from .+ within \d+ ms"):  # it is told in logs
            await peer.request(MetadataRequest(), MetadataResponse, timeout_ms=20)
        assert peer.closed
        await until(lambda: not listener.connections)


@on_both_loops
async def test_answers_that_make_no_sense_close_the_peer() -> None:
    for nonsense in (pack(">ii", 4, 999), pack(">iihh", 8, 3, 1, 1), pack(">i", -5)):

        def lie(connection: Connection, frame: bytearray, nonsense: bytes = nonsense) -> None:
            if not answer_versions(connection, frame):
                connection.open_reply().send([nonsense])

        async with serving(lie) as (_, address):
            peer = await connect(address)
            with pytest.raises((ProtocolError, PeerLost)):
                await peer.request(MetadataRequest(), MetadataResponse)
            assert peer.closed


@on_both_loops
async def test_who_does_not_answer_or_speaks_another_protocol_is_no_peer() -> None:
    def speak_http(connection: Connection, _frame: bytearray) -> None:
        connection.open_reply().send([b"HTTP/1.1 400 Bad Request\r\n\r\n"])

    def say_nothing(_connection: Connection, _frame: bytearray) -> None:
        pass

    async with serving(speak_http) as (_, address):
        with pytest.raises(PeerLost):
            await connect(address)
    with pytest.raises(PeerLost, match=f"cannot connect to {address}"):
        await connect(address)
    async with serving(say_nothing) as (_, address):
        with pytest.raises(PeerLost, match="no answer from"):
            await connect(address, timeout_ms=50)
