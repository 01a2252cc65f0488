"""The network in memory, under the real connections of a node."""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from headrace.net.connection import Connection
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.listener import Listener
from headrace.net.transport import Address
from headrace.sim.loop import Process, SimLoop
from headrace.sim.network import SimNetwork


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.lost = asyncio.Event()
        self.error: Exception | None = None
        self.transport: asyncio.Transport
        self.writing_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.lost.set()

    async def has(self, count: int) -> None:
        while len(self.received) < count:
            await passing()


async def passing() -> None:
    await asyncio.sleep(0.01)


def echo(connection: Connection, frame: bytearray) -> None:
    connection.open_reply().send([len(frame).to_bytes(4), frame])


class Pair:
    """A server of echoes on one host, its client on another."""

    def __init__(self) -> None:
        self.loop = SimLoop()
        self.network = SimNetwork(self.loop, Random(7))
        self.server = Process(self.loop, "server")
        self.client = Process(self.loop, "client")
        self.served = self.network.view(self.server, "a")
        self.asking = self.network.view(self.client, "b")

    async def connect(self) -> Client:
        async def serve() -> Address:
            self.listener = Listener(Hub(self.loop, Limits()), echo)
            return await self.listener.start(self.served, "a", 0)

        self.address = await self.loop.spawn(self.server, serve())
        return await self.again()

    async def again(self) -> Client:
        return await self.loop.spawn(self.client, self.asking.connect(*self.address, Client))


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.loop.close()


FRAME = (5).to_bytes(4) + b"hello"


def test_frames_go_both_ways_and_take_time(pair: Pair) -> None:
    async def scenario() -> None:
        client = await pair.connect()
        sent_s = pair.loop.time()
        for _ in range(200):
            client.transport.write(FRAME)
        await client.has(200 * 9)
        assert client.received == FRAME * 200
        assert pair.loop.time() - sent_s > 2 * pair.network.delay_s_min
        (connection,) = pair.listener.connections
        assert connection.host == "b"

    pair.loop.run(scenario(), 60)


def test_what_is_sent_into_a_cut_link_arrives_in_order_when_it_heals(pair: Pair) -> None:
    async def scenario() -> None:
        client = await pair.connect()
        pair.network.cut("a", "b")
        client.transport.write(FRAME)
        await asyncio.sleep(20)
        assert client.received == b""
        client.transport.write(b"\0\0\0\2ho")
        pair.network.heal_all()
        await client.has(15)
        assert client.received == FRAME + b"\0\0\0\2ho"

    pair.loop.run(scenario(), 60)


def test_a_reader_that_pauses_stops_its_writer(pair: Pair) -> None:
    async def scenario() -> None:
        client = await pair.connect()
        pair.loop.pause(pair.server)
        big = (1 << 20).to_bytes(4) + bytes(1 << 20)
        client.transport.write(big[: 1 << 18])
        client.transport.write(big[1 << 18 :])
        await asyncio.sleep(10)
        assert client.writing_paused and client.transport.get_write_buffer_size() > 0
        pair.loop.resume(pair.server)
        await client.has(len(big))
        assert not client.writing_paused

    pair.loop.run(scenario(), 60)


def test_a_client_that_closes_is_noticed(pair: Pair) -> None:
    async def scenario() -> None:
        client = await pair.connect()
        client.transport.write(FRAME)
        client.transport.close()
        await client.lost.wait()
        await asyncio.sleep(1)
        assert client.error is None and not pair.listener.connections

    pair.loop.run(scenario(), 60)


def test_a_reset_is_noticed_on_both_sides(pair: Pair) -> None:
    async def scenario() -> None:
        client = await pair.connect()
        await asyncio.sleep(1)
        assert pair.network.reset("a", "b") == 2
        await client.lost.wait()
        await asyncio.sleep(1)
        assert isinstance(client.error, ConnectionResetError) and not pair.listener.connections

    pair.loop.run(scenario(), 60)


def test_a_killed_process_ends_its_connections_and_refuses_new_ones(pair: Pair) -> None:
    async def scenario() -> None:
        client = await pair.connect()
        pair.loop.kill(pair.server)
        await client.lost.wait()
        with pytest.raises(ConnectionRefusedError):
            await pair.again()

    pair.loop.run(scenario(), 60)


def test_a_machine_without_power_tells_nobody_until_it_is_back(pair: Pair) -> None:
    async def scenario() -> None:
        client = await pair.connect()
        pair.network.power_off("a")
        pair.loop.kill(pair.server)
        await asyncio.sleep(30)
        assert not client.lost.is_set()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await pair.again()
        pair.network.power_on("a")
        await client.lost.wait()
        assert isinstance(client.error, ConnectionResetError)

    pair.loop.run(scenario(), 60)


def test_one_address_is_listened_on_once(pair: Pair) -> None:
    async def scenario() -> None:
        await pair.connect()
        with pytest.raises(OSError, match="in use"):
            await pair.served.listen("a", pair.address.port, Client)

    pair.loop.run(scenario(), 60)
