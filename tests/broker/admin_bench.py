"""A broker as far as administrative handlers see it, asked through the codec as a client would."""

import asyncio
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from headrace.broker.broker import Broker
from headrace.broker.commits import Commits
from headrace.broker.coordinators.groups import Groups
from headrace.broker.coordinators.transactions import Transactions
from headrace.broker.handlers import HANDLERS
from headrace.broker.isr_updates import IsrUpdates
from headrace.broker.list_guards import ListGuards
from headrace.broker.partitions import Partitions
from headrace.broker.peers import Peers
from headrace.broker.requests import Request
from headrace.broker.roles import NoReplicator, Roles
from headrace.core.acl import ANONYMOUS, Operation, Resource
from headrace.metadata.memory import MemoryStore
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.transport import LoopNetwork
from headrace.storage.log_dir import LogDir
from headrace.storage.memory_files import MemoryFiles
from headrace.system import SystemClock, ThreadOffload
from headrace.wire.apis import APIS
from headrace.wire.compiler import decode, encode
from headrace.wire.frames import RequestHeader, decode_response
from headrace.wire.struct import Message
from tests.controller.world import SeededRandom, started

M = TypeVar("M", bound=Message)


PATIENT = {"broker.session.timeout.ms": "600000"}
"""No registration is lost because the machine stood still."""


class AdminBench:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.denied: set[tuple[Operation, str]] = set()
        self.files = MemoryFiles()
        self.broker: Broker

    async def start(self, settings: dict[str, str] | None = None) -> "AdminBench":
        controller = await started(self.store, settings={**PATIENT, **(settings or {})})
        random = SeededRandom()
        loop, clock, image = asyncio.get_running_loop(), SystemClock(), controller.image
        partitions = Partitions([LogDir(self.files, "/one"), LogDir(self.files, "/two")], random, image)
        appends = cast(Any, SimpleNamespace(end_turn=lambda: None, let_go=lambda _: None))
        events = cast(Any, SimpleNamespace(anybody_waits_for_partitions=False, replica_removed=lambda _: None))
        guards = ListGuards()
        commits = Commits(events, guards)
        peers = Peers(LoopNetwork(), Hub(loop, Limits()), image)
        isr_updates = IsrUpdates(
            loop=loop, clock=clock, image=image, controller=controller, peers=peers, commits=commits
        )
        roles = Roles(
            loop=loop,
            clock=clock,
            image=image,
            own_epoch=lambda: controller.registration.epoch,
            partitions=partitions,
            appends=appends,
            events=events,
            commits=commits,
            guards=guards,
            isr_updates=isr_updates,
            replicator=NoReplicator(),
        )
        self.broker = Broker(
            node_id=1,
            loop=loop,
            clock=clock,
            random=random,
            offload=ThreadOffload(),
            image=image,
            controller=controller,
            partitions=partitions,
            appends=appends,
            faults=cast(Any, SimpleNamespace(offline_directories=set())),
            fetch_events=events,
            peers=peers,
            commits=commits,
            guards=guards,
            isr_updates=isr_updates,
            roles=roles,
            store_health=cast(Any, None),
            metrics=cast(Any, None),
            is_allowed=self._is_allowed,
        )
        self.broker.internal_topics = cast(Any, SimpleNamespace(create=lambda _: None))
        self.broker.groups = Groups(self.broker)
        self.broker.transactions = Transactions(self.broker)
        controller.listen(self.broker.apply)
        return self

    def deny(self, operation: Operation, resource: str) -> None:
        self.denied.add((operation, resource))

    def _is_allowed(self, principal: str, operation: Operation, resource: Resource) -> bool:
        assert principal == ANONYMOUS
        return (operation, resource.name) not in self.denied

    async def ask(self, request: Message, version: int, response: type[M]) -> M:
        """Both ways through the codec: what a version cannot say is lost, as on the wire."""
        api = APIS[type(request).api]
        assert version in api.versions
        body = decode(type(request), version, encode(request, version))
        header = RequestHeader(api.key, version, 1, "bench", 0)
        connection = cast(Any, SimpleNamespace(principal=ANONYMOUS))
        sent: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        reply = SimpleNamespace(send=lambda parts: sent.set_result(b"".join(parts)[4:]))
        asked = Request(header, body, connection, cast(Any, reply), 0)
        answering = HANDLERS[api.key](self.broker, asked)
        if answering is None:
            return decode_response(response, version, await sent)[1]
        return decode(response, version, encode(await answering, version))
