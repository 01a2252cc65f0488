"""A client of a simulated cluster that wants to know everything, of whichever node, right or wrong, and changes what
nobody else needs. What it is told is not judged; that it is told, and that nobody else suffers, is."""

import asyncio
from random import Random

from headrace.client import Outside
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.peer import Peer, PeerLost
from headrace.sim import errands
from headrace.sim.clients import Work
from headrace.sim.history import Unhandled
from headrace.wire.errors import ProtocolError

PACE_S = 0.12
ANSWER_MS_MAX = 2_000
ERRANDS_MAX = 12
SETTINGS = {
    "log.retention.check.interval.ms": "500",
    "offsets.retention.check.interval.ms": "500",
    "producer.id.expiration.check.interval.ms": "500",
}
"""What is done every few minutes otherwise."""


async def inquire(work: Work, name: str, outside: Outside, random: Random) -> None:
    hub = Hub(asyncio.get_running_loop(), Limits())
    while not work.is_over:
        host, port = random.choice(work.bootstrap.split(",")).rsplit(":", 1)
        try:
            peer = await Peer.connect(outside.network, hub, host, int(port), name, 1_000)
        except PeerLost:
            await asyncio.sleep(PACE_S)
            continue
        try:
            await _run_errands(work, peer, random)
        except (PeerLost, TimeoutError):
            continue
        except ProtocolError as error:
            work.history.add(Unhandled(f"{name} cannot read what {host} answers: {error!r}"))
        finally:
            peer.close()


async def _run_errands(work: Work, peer: Peer, random: Random) -> None:
    for _ in range(ERRANDS_MAX):
        if work.is_over:
            return
        await asyncio.sleep(random.expovariate(1 / PACE_S))
        request, answer = random.choice(errands.ALL)(random)
        version = random.randint(min(request.versions), peer.version_of(type(request)))
        version = errands.VERSIONS.get(type(request), version)
        await peer.request(request, answer, version, ANSWER_MS_MAX)
