"""The way to other machines. Production uses the event loop's sockets; a simulator brings its own network."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

BACKLOG = 1024
"""Connections that may wait to be accepted: a fleet of clients that comes back at once is not turned away."""


class Address(NamedTuple):
    """Where a listener can be reached."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listening(Protocol):
    """An open door. Closing it accepts nobody new and leaves connections alone."""

    @property
    def address(self) -> Address: ...

    def close(self) -> None: ...


P = TypeVar("P", bound=asyncio.BaseProtocol)


class Network(Protocol):
    """Opens connections, in both directions."""

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]) -> Listening:
        """Port 0 takes a free one. OSError when the address cannot be had."""
        ...

    async def connect(self, host: str, port: int, factory: Callable[[], P]) -> P:
        """The protocol, connected. OSError when nobody answers there."""
        ...


class LoopListening:
    """A listening socket of the event loop."""

    def __init__(self, server: asyncio.AbstractServer, address: Address) -> None:
        self._server = server
        self.address = address

    def close(self) -> None:
        self._server.close()


class LoopNetwork:
    """TCP on the running event loop, asyncio's or uvloop's."""

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]) -> LoopListening:
        server = await asyncio.get_running_loop().create_server(factory, host, port, backlog=BACKLOG)
        bound_host, bound_port = server.sockets[0].getsockname()[:2]
        return LoopListening(server, Address(bound_host, bound_port))

    async def connect(self, host: str, port: int, factory: Callable[[], P]) -> P:
        _, protocol = await asyncio.get_running_loop().create_connection(factory, host, port)
        return protocol
