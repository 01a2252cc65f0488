"""A simulated world in real time, on somebody else's event loop: for tests of programs that are not simulated."""

import asyncio
import sys
from collections.abc import Callable
from contextvars import Context
from heapq import heappop
from typing import Any, cast

from headrace.net.transport import Address
from headrace.sim.loop import Process, SimHandle, SimLoop
from headrace.sim.network import HostNetwork


class HostedLoop(SimLoop):
    """Its time is that of `host`, and its handles run there, a batch at a time."""

    def __init__(self, host: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._began_s = host.time()
        self._armed: asyncio.Handle | None = None
        self._armed_for_s = 0.0
        super().__init__()

    def time(self) -> float:
        return self.now_s

    def at(self, when_s: float, process: Process, callback: Callable[..., object], *args: object) -> SimHandle:
        handle = super().at(max(when_s, self._real_s()), process, callback, *args)
        self._arm()
        return handle

    def soon(self, process: Process, callback: Callable[..., object], *args: object) -> SimHandle:
        handle = super().soon(process, callback, *args)
        self._arm()
        return handle

    def call_soon(  # type: ignore[override]  # its arguments are checked where it is called
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        handle = super().call_soon(callback, *args, context=context)
        self._arm()
        return handle

    def call_later(  # type: ignore[override]  # its arguments are checked where it is called
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        handle = super().call_later(delay, callback, *args, context=context)
        self._arm()
        return handle

    def resume(self, process: Process) -> None:
        super().resume(process)
        self._arm()

    def close(self) -> None:
        super().close()
        if self._armed is not None:
            self._armed.cancel()

    def _real_s(self) -> float:
        return self._host.time() - self._began_s

    def _arm(self) -> None:
        """The host calls us when the next thing is due."""
        when_s = 0.0 if self._due else self._timers[0][0] if self._timers else None
        if when_s is None or self._over or (self._armed is not None and self._armed_for_s <= when_s):
            return
        if self._armed is not None:
            self._armed.cancel()
        self._armed_for_s = when_s
        if self._due:
            self._armed = self._host.call_soon(self._pass)
        else:
            self._armed = self._host.call_at(self._began_s + when_s, self._pass)

    def _pass(self) -> None:
        self.now_s = max(self.now_s, self._real_s())
        while self._timers and self._timers[0][0] <= self.now_s:
            self._due.append(heappop(self._timers)[2])
        # Generators that begin here end with their process, or with the world: the host is not to see to it.
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)
        asyncio._set_running_loop(self)
        try:
            self._run_due()
        finally:
            asyncio._set_running_loop(self._host)
            sys.set_asyncgen_hooks(*hooks)
        self._armed = None
        self._arm()


class Gateway(asyncio.Protocol):
    """A real connection whose other end is in the world: a client from outside."""

    def __init__(self, loop: HostedLoop, process: Process, network: HostNetwork, address: Address) -> None:
        self._loop = loop
        self._process = process
        self._network = network
        self._address = address
        self._outer: asyncio.Transport | None = None
        self._inner: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outer = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._loop.spawn(self._process, self._connect())

    async def _connect(self) -> None:
        try:
            await self._network.connect(*self._address, lambda: _Inner(self))
        except OSError:
            if self._outer is not None:
                self._outer.abort()

    def opened(self, inner: asyncio.Transport) -> None:
        self._inner = inner
        for data in self._early:
            inner.write(data)
        if self._outer is None:
            inner.close()

    def data_received(self, data: bytes) -> None:
        if self._inner is None:
            self._early.append(data)
        else:
            self._inner.write(data)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_reading()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_reading()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._outer = None
        if self._inner is not None:
            self._inner.close()

    def answered(self, data: bytes) -> None:
        if self._outer is not None and not self._outer.is_closing():
            self._outer.write(data)

    def ended(self) -> None:
        if self._outer is not None:
            self._outer.close()

    def hold_reading(self, held: bool) -> None:
        if self._outer is not None and not self._outer.is_closing():
            if held:
                self._outer.pause_reading()
            else:
                self._outer.resume_reading()


class _Inner(asyncio.Protocol):
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._gateway.opened(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._gateway.answered(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._gateway.ended()

    def pause_writing(self) -> None:
        self._gateway.hold_reading(True)

    def resume_writing(self) -> None:
        self._gateway.hold_reading(False)
