"""Clients that own: every request is what the test says."""

import asyncio
from typing import Any

from headrace.errors import ErrorCode
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.peer import Peer, PeerLost
from headrace.net.transport import LoopNetwork
from headrace.wire.messages.own import OwnRequest, OwnResource, OwnResponse, OwnResult
from tests.broker.asking import TOPIC, Client
from tests.broker.support import Served
from tests.broker.trio import Trio
from tests.net.loops import until

GROUP = "masters"
FIRST = f"{TOPIC}-0"
SECOND = f"{TOPIC}-1"

CLAIM, RELEASE, RESUME, IF_UNOWNED, DESCRIBE = range(5)
ME = bytes(range(16))
OTHER = bytes(range(1, 17))
DAY_MS = 86_400_000

FENCED, DENIED, NOT_HERE = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
STALE = ErrorCode.ILLEGAL_GENERATION


class Owner(Client):
    """One connection that may claim."""

    def send_own(self, *asked: tuple[str, int], group: str = GROUP, **tags: Any) -> "asyncio.Future[OwnResponse]":
        resources = [OwnResource(resource=name, generation=generation) for name, generation in asked]
        return self.peer.send(OwnRequest(group=group, resources=resources, **tags), OwnResponse, 0)

    async def own(self, *asked: tuple[str, int], group: str = GROUP, **tags: Any) -> OwnResponse:
        async with asyncio.timeout(60):
            return await self.send_own(*asked, group=group, **tags)

    async def claim(self, generation: int = 1, resource: str = FIRST, **tags: Any) -> OwnResult:
        answer = await self.own((resource, generation), **tags)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        (result,) = answer.resources
        return result

    async def granted(self, generation: int = 1, resource: str = FIRST, **tags: Any) -> int:
        """Claims what it must get; the generation."""
        result = await self.claim(generation, resource, **tags)
        assert result.error_code == 0, (ErrorCode(result.error_code), result.generation)
        return result.generation

    async def refused(self, generation: int = 1, resource: str = FIRST, **tags: Any) -> int:
        """Claims what it must not get; the generation that stands in the way."""
        result = await self.claim(generation, resource, **tags)
        assert result.error_code == STALE, ErrorCode(result.error_code)
        return result.generation

    async def resume(self, generation: int, resource: str = FIRST, holder: bytes = ME, **tags: Any) -> OwnResult:
        return await self.claim(generation, resource, op=RESUME, holder=holder, **tags)

    async def is_cut(self) -> bool:
        """Waits until the broker has closed the connection."""
        await until(lambda: self.peer.closed)
        return True

    async def lives(self) -> bool:
        try:
            return (await self.own()).error_code == 0
        except PeerLost:
            return False


async def owner(served: Served, client_id: str = "tester") -> Owner:
    host, _, port = served.node.address.rpartition(":")
    hub = Hub(asyncio.get_running_loop(), Limits())
    client = Owner(await Peer.connect(LoopNetwork(), hub, host, int(port), client_id))
    served.adopt(client)
    return client


async def owner_at(trio: Trio, node_id: int, client_id: str = "tester") -> Owner:
    return Owner((await trio.client(node_id, client_id)).peer)
