"""The door of a node: who may come in, who stayed too long, and how everybody leaves."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from headrace.net.connection import Connection
from headrace.net.hub import Hub
from headrace.net.transport import Address, Listening, Network

log = logging.getLogger(__name__)

SWEEP_MS_MAX = 5_000
"""One timer looks after all connections; none has a timer of its own."""

TICKS_UNFINISHED_MAX = 3
"""For a frame that holds memory which others wait for."""

TICKS_CLOSING_MAX = 3
"""For a client that does not read the last answers of a connection that we close."""


class Listener:
    """Accepts connections within `hub.limits` and hands their frames to `on_frame`."""

    def __init__(
        self,
        hub: Hub,
        on_frame: Callable[[Connection, bytearray], None],
        on_closed: Callable[[Connection], None] | None = None,
    ) -> None:
        self._hub = hub
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._listening: Listening | None = None
        self._per_host: Counter[str] = Counter()
        self._sweep_ms = max(1, min(SWEEP_MS_MAX, hub.limits.idle_ms_max // 4))
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None
        self.connections: dict[Connection, None] = {}

    async def start(self, network: Network, host: str, port: int) -> Address:
        self._listening = await network.listen(host, port, self._accept)
        self._sweeper = self._hub.loop.call_later(self._sweep_ms / 1000, self._sweep)
        return self._listening.address

    def close(self) -> None:
        """Accepts nobody new. Those who are here stay."""
        if self._listening is not None:
            self._listening.close()

    async def drain(self, deadline_s: float) -> None:
        """Accepts nobody, answers what is in flight, closes. What is not answered by then is cut off."""
        self.close()
        for connection in list(self.connections):
            connection.close_when_answered()
        if self.connections:
            emptied = self._emptied = self._hub.loop.create_future()
            await asyncio.wait([emptied], timeout=deadline_s)
            for connection in list(self.connections):
                connection.abort()
            await emptied
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _accept(self) -> Connection:
        return Connection(self._hub, self._on_frame, self._opened, self._closed)

    def _opened(self, connection: Connection) -> None:
        limits = self._hub.limits
        if len(self.connections) >= limits.connections_max:
            self._refuse(connection, f"there are {limits.connections_max} connections already (max.connections)")
        elif self._per_host[connection.host] >= limits.connections_per_ip_max:
            most = limits.connections_per_ip_max
            self._refuse(connection, f"its address has {most} connections already (max.connections.per.ip)")
        else:
            self.connections[connection] = None
            self._per_host[connection.host] += 1

    def _refuse(self, connection: Connection, reason: str) -> None:
        self._hub.warn("refusing", f"refusing the connection of {connection.peer}: {reason}")
        connection.abort()

    def _closed(self, connection: Connection) -> None:
        if connection not in self.connections:
            return  # was refused
        del self.connections[connection]
        self._per_host[connection.host] -= 1
        if not self._per_host[connection.host]:
            del self._per_host[connection.host]
        if self._on_closed is not None:
            self._on_closed(connection)
        if self._emptied is not None and not self.connections and not self._emptied.done():
            self._emptied.set_result(None)

    def _sweep(self) -> None:
        self._sweeper = self._hub.loop.call_later(self._sweep_ms / 1000, self._sweep)
        scarce = self._hub.budget.scarce
        ticks_idle_max = self._hub.limits.idle_ms_max / self._sweep_ms
        for connection in list(self.connections):
            connection.quiet_ticks += 1
            connection.unfinished_ticks += 1
            if connection.closing:
                if connection.quiet_ticks > TICKS_CLOSING_MAX:
                    connection.abort()
            elif connection.idle and connection.quiet_ticks > ticks_idle_max and not connection.is_kept:
                log.debug("closing the connection of %s: idle", connection.peer)
                connection.close()
            elif scarce and connection.mid_frame and connection.unfinished_ticks > TICKS_UNFINISHED_MAX:
                connection.close("its unfinished request holds memory that others wait for")
