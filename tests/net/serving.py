"""A listener on a free port, clients for it, and two ways to answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from struct import pack

from headrace.net.connection import Connection
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.listener import Listener
from headrace.net.reply import Reply
from headrace.net.transport import Address, LoopNetwork
from tests.net.loops import until

OnFrame = Callable[[Connection, bytearray], None]


def framed(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


class Server:
    """A listener with everything that it was given, on a free port."""

    def __init__(self, on_frame: OnFrame, limits: Limits, request_bytes_max: int) -> None:
        self.hub = Hub(asyncio.get_running_loop(), limits, request_bytes_max)
        self.listener = Listener(self.hub, on_frame)
        self.address = Address("", 0)
        self.clients: list[Client] = []

    async def holds(self, size: int) -> None:
        await until(lambda: self.hub.budget.held == size)

    async def has_connections(self, count: int) -> None:
        await until(lambda: len(self.listener.connections) == count)

    async def open(self) -> "Client":
        reader, writer = await asyncio.open_connection(*self.address)
        client = Client(reader, writer)
        self.clients.append(client)
        return client


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *bodies: bytes) -> None:
        self.writer.write(b"".join(map(framed, bodies)))

    async def receive(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def ended(self) -> None:
        """Waits until the server has closed the connection."""
        with suppress(ConnectionResetError):
            assert await self.reader.read() == b""


@asynccontextmanager
async def serving(on_frame: OnFrame, limits: Limits | None = None, request_bytes_max: int = 0) -> AsyncIterator[Server]:
    server = Server(on_frame, limits or Limits(), request_bytes_max)
    server.address = await server.listener.start(LoopNetwork(), "127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.listener.drain(0)
        for client in server.clients:
            client.writer.transport.abort()
        await asyncio.sleep(0.01)  # the loop closes their sockets


def echo(connection: Connection, frame: bytearray) -> None:
    connection.open_reply().send([pack(">i", len(frame)), frame])


class Desk:
    """Holds requests until the test answers them."""

    def __init__(self, alone: bool = False) -> None:
        self.alone = alone
        self.frames: list[bytearray] = []
        self.replies: list[Reply] = []

    def on_frame(self, connection: Connection, frame: bytearray) -> None:
        self.frames.append(frame)
        self.replies.append(connection.open_reply(self.alone))

    async def has(self, count: int) -> None:
        await until(lambda: len(self.frames) >= count)

    def answer(self, index: int) -> None:
        self.replies[index].send([framed(bytes(self.frames[index]))])
