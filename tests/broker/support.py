"""A whole node in the test's own loop and process, with clients that ask it whatever the test says."""

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.core.acl import Allowed, allowed
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.node import Node
from headrace.node_config import NodeConfig, Ports
from headrace.storage.files import Files
from headrace.storage.memory_files import MemoryFiles
from headrace.tier.store import ObjectStore
from tests.broker.asking import (
    DEBUG_REPLICA,
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    TOPIC,
    Client,
    Raw,
    delete_records,
    fetch_request,
    numbered,
    only_partition,
    produce_request,
    records_of,
    values_of,
)
from tests.broker.stepped import NOW_MS, NodeClock, SteppedClock, SteppedOffload, Tracebacks
from tests.net.loops import until

__all__ = [
    "DEBUG_REPLICA",
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "NOW_MS",
    "TOPIC",
    "Client",
    "Raw",
    "Served",
    "World",
    "delete_records",
    "fetch_request",
    "numbered",
    "only_partition",
    "produce_request",
    "records_of",
    "serving",
    "until",
    "values_of",
]


@dataclass
class World:
    """What outlives a node: its files, its metadata, and the time."""

    settings: Mapping[str, str] = field(default_factory=dict)
    is_allowed: Allowed = allowed
    clock: SteppedClock = field(default_factory=NodeClock)
    offload: SteppedOffload = field(default_factory=SteppedOffload)
    files: Files | None = None
    """In memory, with the world's time, unless others are given."""
    data: str = "/data"
    node_id: int = 1
    descriptors_max: int = 1_000
    open_object_store: Callable[[str], ObjectStore] | None = None
    tracebacks: Tracebacks = field(default_factory=Tracebacks)
    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="headrace-test-")))

    def __post_init__(self) -> None:
        if self.files is None:
            self.files = MemoryFiles(self.clock.wall_ms)

    @property
    def memory(self) -> MemoryFiles:
        assert isinstance(self.files, MemoryFiles)
        return self.files

    def node(self, **changed: Any) -> Node:
        config = NodeConfig(
            node_id=self.node_id,
            listen="127.0.0.1:0",
            data=self.data,
            metadata=f"sqlite:{self.directory / 'metadata.db'}",
            settings={"disk.reserve.bytes": "0", **self.settings},
        )
        assert self.files is not None
        ports = Ports(
            clock=self.clock,
            offload=self.offload,
            files=self.files,
            is_allowed=self.is_allowed,
            descriptors_max=self.descriptors_max,
            open_object_store=self.open_object_store,
        )
        return Node(replace(config, **changed), ports)

    @asynccontextmanager
    async def started(self, **changed: Any) -> AsyncIterator["Served"]:
        """One life of a node; it is stopped cleanly, unless it was killed before."""
        served = Served(self, self.node(**changed))
        loop, logger = asyncio.get_running_loop(), logging.getLogger("headrace")
        loop.set_exception_handler(self.tracebacks.unhandled)
        logger.addHandler(self.tracebacks)
        try:
            await served.node.start()
            yield served
        finally:
            for lane in ("files", "metadata"):
                self.offload.release(lane)
            served.close_clients()
            await served.node.stop()
            logger.removeHandler(self.tracebacks)
            loop.set_exception_handler(None)
        assert self.tracebacks.seen == [], self.tracebacks.seen

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.directory)


class Served:
    """A running node and its clients."""

    def __init__(self, world: World, node: Node) -> None:
        self.world = world
        self.node = node
        self._hub = Hub(asyncio.get_running_loop(), Limits())
        self._clients: list[Client] = []

    async def client(self) -> Client:
        client = await Client.connect(self.node.address, self._hub)
        self._clients.append(client)
        return client

    def adopt(self, client: Client) -> None:
        """One that was made elsewhere ends with the node too."""
        self._clients.append(client)

    async def raw(self) -> "Raw":
        host, _, port = self.node.address.rpartition(":")
        return Raw(*await asyncio.open_connection(host, int(port)))

    async def page(self, path: str) -> tuple[int, str]:
        """Status and text of a page of the monitoring port."""
        host, _, port = self.node.metrics_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        return int(head.split(" ")[1]), body

    async def kill(self) -> None:
        """Nothing is flushed or marked. The world is ready for the next life."""
        self.close_clients()
        self.world.offload.forget()
        await self.node.abandon()
        if isinstance(self.world.files, MemoryFiles):
            self.world.files.restart()

    def close_clients(self) -> None:
        for client in self._clients:
            client.peer.close()
        self._clients.clear()


@asynccontextmanager
async def serving(
    settings: Mapping[str, str] | None = None,
    *,
    topic: Mapping[str, str] | None = None,
    partitions: int = 1,
    **world: Any,
) -> AsyncIterator[tuple[Served, Client]]:
    """A node with one topic, on files in memory."""
    with World(settings=settings or {}, **world) as around:
        async with around.started() as served:
            client = await served.client()
            await client.create_topic(partitions=partitions, settings=topic)
            yield served, client
