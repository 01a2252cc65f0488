"""What one claimer holds, and where; what it loses comes back by itself, if nobody else has had it meanwhile."""

import asyncio
from collections.abc import Callable, Iterable

from headrace.client.errors import NotReachable
from headrace.client.outside import Outside
from headrace.errors import ErrorCode, KafkaError
from headrace.net.peer import PeerLost
from headrace.own.link import Link
from headrace.own.places import Places
from headrace.own.questions import Claimer
from headrace.wire.messages.own import OwnRequest, OwnResult

ELSEWHERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR})
NOT_YET = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
RELEASE_S_MAX = 3.0


class Holdings:
    def __init__(self, places: Places, claimer: Claimer, outside: Outside) -> None:
        self.places = places
        self.claimer = claimer
        self.outside = outside
        self.generations: dict[str, int] = {}
        self.fence_offsets: dict[str, int] = {}
        self.leader_epochs: dict[str, int] = {}  # of the leaders that granted
        self.lost = asyncio.Event()
        self.regained = asyncio.Event()  # the opposite
        self.regained.set()
        self.gone = asyncio.Event()  # it is lost for good
        self.reason = ""  # of the last loss
        self.listeners: list[Callable[[], None]] = []  # called when one of these events changes
        self._links: dict[int, Link] = {}
        self._where: dict[str, Link] = {}
        self._regaining: asyncio.Task[None] | None = None

    # Asking.

    async def ask(self, node_id: int, request: OwnRequest) -> dict[str, OwnResult]:
        """What was granted is held, when this returns. PeerLost, or KafkaError when the broker refuses to be asked."""
        link = await self._link(node_id)
        results = await self._ask(link, request)
        for result in results.values():
            if result.error_code == ErrorCode.NONE and result.generation > 0:
                self._hold(link, result)
        return results

    async def look(self, node_id: int, request: OwnRequest) -> dict[str, OwnResult]:
        """A question that changes nothing."""
        return await self._ask(await self._link(node_id), request)

    async def _ask(self, link: Link, request: OwnRequest) -> dict[str, OwnResult]:
        try:
            return {result.resource: result for result in (await link.ask(request)).resources}
        except PeerLost:
            if link.is_silent:
                self.places.fell_silent(link.address)
            raise

    def by_place(self, resources: Iterable[str]) -> dict[int, list[str]]:
        """Those that have one, in the order of their names."""
        grouped: dict[int, list[str]] = {}
        for resource in sorted(resources):
            node_id = self.places.of(resource)
            if node_id is not None:
                grouped.setdefault(node_id, []).append(resource)
        return grouped

    async def _link(self, node_id: int) -> Link:
        link = self._links.get(node_id)
        if link is None or link.closed:
            peer, address = await self.places.connect(node_id)
            link = self._links[node_id] = Link(node_id, peer, address, self.claimer, self.outside.clock, self._on_lost)
        return link

    def _hold(self, link: Link, result: OwnResult) -> None:
        resource = result.resource
        self.generations[resource] = result.generation
        self.fence_offsets[resource] = result.fence_offset
        self.leader_epochs[resource] = -1 if result.leader is None else result.leader.epoch
        self._where[resource] = link
        link.hold(resource, result.generation)

    # What is held.

    def node_of(self, resource: str) -> int | None:
        link = self._where.get(resource)
        return None if link is None else link.node_id

    def links(self) -> list[Link]:
        """Those on which something is held."""
        return [link for link in self._links.values() if link.held]

    # Losing, and getting it back.

    def _on_lost(self, link: Link, resources: list[str], reason: str) -> None:
        mine = [resource for resource in resources if self._where.get(resource) is link]
        for resource in mine:
            del self._where[resource]
        if not mine:
            return
        if link.is_silent:
            self.places.fell_silent(link.address)
        self.reason = f"{', '.join(mine)}: {reason}"
        self.lost.set()
        self.regained.clear()
        self._tell()
        if self._regaining is None:
            self._regaining = asyncio.ensure_future(self._regain(link.is_silent))

    async def _regain(self, is_silent: bool) -> None:
        failures = 0
        try:
            if is_silent:
                await self._learn()
            while not self.gone.is_set() and (missing := self.generations.keys() - self._where.keys()):
                if failures:
                    await asyncio.sleep(self.outside.backoff_ms(failures) / 1000)
                    await self._learn()
                failures = 0 if await self._resume(missing) else failures + 1
        finally:
            self._regaining = None
        if not self.gone.is_set():
            self.lost.clear()
            self.regained.set()
            self._tell()

    async def _learn(self) -> None:
        try:
            await self.places.learn_once()
        except NotReachable:
            return

    async def _resume(self, missing: Iterable[str]) -> bool:
        """Whether it is worth to go on at once."""
        groups = self.by_place(missing)
        return any(await asyncio.gather(*[self._resume_at(node_id, names) for node_id, names in groups.items()]))

    async def _resume_at(self, node_id: int, names: list[str]) -> bool:
        question = self.claimer.resume({name: self.generations[name] for name in names})
        try:
            results = await self.ask(node_id, question)
        except PeerLost:
            return False
        except KafkaError as error:
            self._give_up(names, str(error))
            return False
        moved = False
        for name, result in results.items():
            code = KafkaError(result.error_code).code
            if code in ELSEWHERE:
                moved |= self.places.hint(name, result.leader)
            elif code == ErrorCode.ILLEGAL_GENERATION:
                self._give_up([name], f"somebody else has had it since, at generation {result.generation}")
            elif code not in NOT_YET and code is not ErrorCode.NONE:
                self._give_up([name], f"it cannot be resumed ({code.name})")
        return moved

    def _give_up(self, names: list[str], reason: str) -> None:
        self.reason = f"{', '.join(names)}: {reason}"
        self.gone.set()
        self._tell()

    def _tell(self) -> None:
        for listener in list(self.listeners):
            listener()

    # The end.

    async def close(self) -> None:
        """Releases what is held, unless a broker does not answer: it notices the closed connection."""
        if self._regaining is not None:
            self._regaining.cancel()
            await asyncio.gather(self._regaining, return_exceptions=True)
        try:
            async with asyncio.timeout(RELEASE_S_MAX):
                await asyncio.gather(*[self._release(link) for link in self.links()])
        except TimeoutError:
            pass
        self._where.clear()
        self.reason = self.reason if self.gone.is_set() else "the claim has been left"
        self.gone.set()
        self.lost.set()
        self.regained.clear()
        await asyncio.gather(*[link.close() for link in self._links.values()])
        await self.places.close()
        self._tell()

    async def _release(self, link: Link) -> None:
        mine = dict(link.held)
        link.held.clear()  # what happens to it from now on is no loss
        try:
            await link.ask(self.claimer.release(mine))
        except (PeerLost, KafkaError):
            return
