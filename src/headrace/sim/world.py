"""A simulated world: machines with nodes of Headrace on them, a metadata store, and clients, all from one seed."""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from headrace.client import Outside
from headrace.metadata.memory import MemoryData, MemoryStore
from headrace.metadata.store import MetaStore
from headrace.node import Node
from headrace.node_config import NodeConfig, NotStarted, Ports
from headrace.sim.loop import DEAD, PAUSED, RUNNING, MachineClock, Process, SimLoop
from headrace.sim.machine import Machine, SimOffload, SimRandom
from headrace.sim.network import SimNetwork
from headrace.sim.objects import SimObjects, Weather
from headrace.sim.story import Story
from headrace.sim.truth import Shrink, Truth

START_WALL_MS = 1_700_000_000_000
PORT = 9092
METRICS_PORT = 9404
SETTINGS = {"disk.reserve.bytes": "0"}
START_AGAIN_S = 1.0


class SimNode:
    """One broker: its machine, and the process that runs on it now or ran last."""

    def __init__(
        self, world: "World", node_id: int, settings: Mapping[str, str], listen: str | None, metrics: str | None
    ) -> None:
        self.world = world
        self.node_id = node_id
        self.machine = Machine(world.loop, world.random_for(f"machine {node_id}"), f"node{node_id}", world.wall_ms)
        self.config = NodeConfig(
            node_id=node_id,
            listen=listen or f"{self.host}:{PORT}",
            data=f"/data{node_id}",
            metadata="memory:",
            metrics=metrics or f"{self.host}:{METRICS_PORT}",
            settings={**SETTINGS, **settings},
        )
        self.node: Node | None = None
        self.failure: NotStarted | None = None
        """Why the last attempt to start failed."""
        self.store: MemoryStore | None = None
        self.weather = Weather()
        """Between it and the object store."""
        self.process = Process(world.loop, f"{self.host} never started", self.machine.clock)
        self.process.state = DEAD
        self._lives = 0

    @property
    def host(self) -> str:
        return self.machine.host

    @property
    def is_alive(self) -> bool:
        return self.process.state != DEAD

    @property
    def is_serving(self) -> bool:
        return self.process.state == RUNNING and self.node is not None and self.node.address != ""

    def start(self) -> None:
        """A new process; it serves a little later, and starts again and again when it cannot."""
        assert not self.is_alive, f"{self.process} runs"
        world = self.world
        self._lives += 1
        self.process = process = Process(world.loop, f"{self.host}.{self._lives}", self.machine.clock)
        self.machine.files.on_death = lambda: self._died(process)
        world.story.tell(self.host, "starts")
        ports = Ports(
            clock=self.machine.clock,
            random=SimRandom(f"{world.seed} {process.name}"),
            offload=SimOffload(world.loop, process, self.machine),
            descriptors_max=1 << 16,
            files=self.machine.files,
            network=world.network.view(process, self.host),
            open_store=self._open_store,
            open_object_store=lambda _: world.objects.open(process, self.machine.files, self.weather),
        )
        world.loop.spawn(process, self._run(process, ports))

    async def _run(self, process: Process, ports: Ports) -> None:
        while True:
            node = Node(self.config, ports)
            try:
                await node.start()
            except NotStarted as error:
                self.world.story.tell(self.host, f"cannot start: {error}")
                self.failure = error
                await asyncio.sleep(START_AGAIN_S)
                continue
            if process is self.process:
                self.node = node
                self.failure = None
                self.world.story.tell(self.host, "serves")
            return

    async def _open_store(self, _metadata: str) -> MetaStore:
        self.store = MemoryStore(self.world.data, self.machine.clock)
        self.world.store_opened(self.store)
        return self.store

    def proposals(self) -> list[Shrink]:
        """What its leaders have proposed, and nobody has written yet."""
        if self.node is None or self.node.broker is None:
            return []
        return [
            Shrink(hosted.topic_id, hosted.index, sent.partition_epoch, frozenset(m.broker_id for m in sent.isr))
            for hosted in self.node.broker.partitions
            if hosted.leadership is not None
            for sent in hosted.leadership.sent
        ]

    async def stop(self) -> None:
        """Cleanly, as SIGTERM does."""
        process, node = self.process, self.node
        if node is None or process.state == DEAD:
            return
        self.world.story.tell(self.host, "stops")
        await self.world.loop.spawn(process, node.stop())
        if process is self.process and process.state != DEAD:
            self._end()

    def kill(self) -> None:
        """The process, as kill -9 does: what it wrote is there."""
        if self.is_alive:
            self.world.story.tell(self.host, "is killed")
            self._end()

    def kill_in_write(self, changes: int, bytes_written: int) -> None:
        """The process dies that many changes of its files later, in the middle of one."""
        files = self.machine.files
        files.die_at(files.changes + changes, bytes_written=bytes_written)

    def lose_power(self) -> None:
        """The machine: what was not synced is gone, or a part of it. It is dark until `power_on`."""
        self.world.story.tell(self.host, "loses power")
        self.world.network.power_off(self.host)
        if self.is_alive:
            self._end()
        self.machine.lose_power()

    def wipe(self) -> None:
        """The process dies, and its disk is replaced by an empty one."""
        self.world.story.tell(self.host, "is wiped")
        if self.is_alive:
            self._end()
        files = self.machine.files
        if files.exists(self.config.data):
            files.remove_tree(self.config.data)

    def power_on(self) -> None:
        self.world.network.power_on(self.host)

    def pause(self) -> None:
        if self.process.state == RUNNING:
            self.world.story.tell(self.host, "is paused")
            self.world.loop.pause(self.process)

    def resume(self) -> None:
        if self.process.state == PAUSED:
            self.world.story.tell(self.host, "goes on")
            self.world.loop.resume(self.process)

    def _died(self, process: Process) -> None:
        if process is self.process and self.is_alive:
            self.world.story.tell(self.host, "dies in the middle of a write")
            self._end()

    def _end(self) -> None:
        self.world.dead_mens_proposals += self.proposals()
        self.node = None
        self.world.loop.kill(self.process)
        self.machine.files.restart()


class World:
    def __init__(
        self,
        seed: int,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        *,
        loop: SimLoop | None = None,
        addresses: Sequence[tuple[str, str]] = (),
        wall_ms: int = START_WALL_MS,
    ) -> None:
        """`addresses`: where each node listens for clients and for scrapes, when the usual ones will not do."""
        self.seed = seed
        self.loop = SimLoop() if loop is None else loop
        self.wall_ms = wall_ms
        self.story = Story(self.loop)
        self.network = SimNetwork(self.loop, self.random_for("network"))
        self.data = self.loop.outside.context.run(MemoryData, MachineClock(self.loop, wall_ms, "store"))
        places: Sequence[tuple[str | None, str | None]] = addresses or [(None, None)] * brokers
        self.nodes = [SimNode(self, at + 1, settings or {}, *places[at]) for at in range(brokers)]
        self.bootstrap = ",".join(node.config.listen for node in self.nodes)
        self.client_hosts: list[str] = []
        self.store_delay_ms = 1
        self.objects = SimObjects(self.loop, self.random_for("objects"))
        self.truth = Truth(self.data)
        self.dead_mens_proposals: list[Shrink] = []

    def random_for(self, purpose: str) -> Random:
        """Each purpose has numbers of its own: more draws here change nothing there."""
        return Random(f"{self.seed} {purpose}")

    def store_opened(self, store: MemoryStore) -> None:
        store.delay_ms = self.store_delay_ms

    def new_client(self, name: str) -> tuple[Process, Outside]:
        """A process on a machine of its own, and what its client objects are handed."""
        self.client_hosts.append(name)
        clock = MachineClock(self.loop, self.wall_ms, name)
        process = Process(self.loop, name, clock)
        return process, Outside(self.network.view(process, name), clock, SimRandom(f"{self.seed} {name}"))

    async def until_serving(self, within_s: float = 60.0) -> None:
        end_s = self.loop.now_s + within_s
        while not all(node.is_serving for node in self.nodes):
            if self.loop.now_s > end_s:
                missing = [node.host for node in self.nodes if not node.is_serving]
                raise TimeoutError(f"not serving after {within_s} s: {', '.join(missing)}")
            await self.passing()

    async def passing(self, seconds: float = 0.05) -> None:
        await asyncio.sleep(seconds)

    def close(self) -> None:
        for node in self.nodes:
            # Nothing that is collected later can touch the files.
            node.machine.files.restart()
        self.loop.close()
