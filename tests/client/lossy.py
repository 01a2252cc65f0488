"""A network that cuts connections: before a request arrives, or after it arrived and before its answer comes back."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headrace.net.connection import Connection
from headrace.net.transport import LoopListening, LoopNetwork

P = TypeVar("P", bound=asyncio.BaseProtocol)


class LossyNetwork(LoopNetwork):
    """`cuts()` is asked whenever bytes come back; True loses them, and the connection with them."""

    def __init__(self, cuts: Callable[[], bool]) -> None:
        self._cuts = cuts
        self.cut = 0

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]) -> LoopListening:
        raise NotImplementedError("for clients only")

    async def connect(self, host: str, port: int, factory: Callable[[], P]) -> P:
        protocol = await super().connect(host, port, factory)
        assert isinstance(protocol, Connection)
        transport = protocol._transport
        assert transport is not None
        transport.set_protocol(_Cutter(self, protocol))
        return protocol

    def cuts(self) -> bool:
        if self._cuts():
            self.cut += 1
            return True
        return False


class _Cutter(asyncio.BufferedProtocol):
    """Between a transport and its protocol."""

    def __init__(self, network: LossyNetwork, inner: Connection) -> None:
        self._network = network
        self._inner = inner

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._network.cuts():
            self._inner.abort()
        else:
            self._inner.buffer_updated(nbytes)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)
