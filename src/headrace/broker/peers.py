"""Connections to the other nodes of the cluster, made when they are first needed and again when they broke.

Answers come in the order of the questions: those who ask under one client id share a connection, and whoever asks
what waits for its answer (a follower's fetch) takes a connection of its own.
"""

import asyncio
from typing import TypeVar

from headrace.core.cluster import ClusterImage, RegisteredBroker
from headrace.net.hub import Hub
from headrace.net.peer import Peer, PeerLost
from headrace.net.transport import Network
from headrace.wire.errors import ProtocolError
from headrace.wire.struct import Message

M = TypeVar("M", bound=Message)

CONNECT_MS_MAX = 3_000
"""A node that is there answers at once; one that hangs is asked again later."""


class Peers:
    def __init__(self, network: Network, hub: Hub, image: ClusterImage) -> None:
        """The hub is one for asking: without a bound for what was asked for."""
        self._network = network
        self._hub = hub
        self._image = image
        self._shared: dict[tuple[str, int, str], asyncio.Future[Peer]] = {}  # by address of a node and client id
        self._peers: dict[Peer, None] = {}

    async def ask(
        self, broker_id: int, message: Message, answer: type[M], version: int, timeout_ms: int, client_id: str
    ) -> M:
        """PeerLost whatever goes wrong: what was asked may have been done."""
        peer = await self.reach(broker_id, client_id)
        try:
            return await peer.request(message, answer, version, timeout_ms)
        except (TimeoutError, ProtocolError) as error:
            raise PeerLost(f"node {broker_id} did not answer {type(message).__name__}: {error}") from error

    async def reach(self, broker_id: int, client_id: str) -> Peer:
        """The shared connection. PeerLost: nothing was asked."""
        return await self._shared_with(self._find(broker_id), client_id)

    async def connect(self, broker: RegisteredBroker, client_id: str) -> Peer:
        """A connection for the caller alone, who closes it. Raises PeerLost."""
        peer = await Peer.connect(self._network, self._hub, broker.host, broker.port, client_id, CONNECT_MS_MAX)
        self._peers = {known: None for known in (*self._peers, peer) if not known.closed}
        return peer

    def close(self) -> None:
        for peer in self._peers:
            peer.close("this node stops")
        self._peers.clear()
        self._shared.clear()

    def _find(self, broker_id: int) -> RegisteredBroker:
        broker = self._image.brokers.get(broker_id)
        if broker is None:
            raise PeerLost(f"node {broker_id} is not registered")
        return broker

    async def _shared_with(self, broker: RegisteredBroker, client_id: str) -> Peer:
        lane = broker.host, broker.port, client_id
        known = self._shared.get(lane)
        if known is None or (known.done() and (known.cancelled() or known.exception() or known.result().closed)):
            addresses = {(broker.host, broker.port) for broker in self._image.brokers.values()}
            self._shared = {kept: future for kept, future in self._shared.items() if kept[:2] in addresses}
            known = self._shared[lane] = asyncio.ensure_future(self.connect(broker, client_id))
            known.add_done_callback(_is_known)
        # Several may wait for the same connection: one that gives up must not take it from the others.
        return await asyncio.shield(known)


def _is_known(connecting: "asyncio.Future[Peer]") -> None:
    """Whoever waited for it may be gone by now: then nobody hears of a failure, and nobody has to."""
    if not connecting.cancelled():
        connecting.exception()
