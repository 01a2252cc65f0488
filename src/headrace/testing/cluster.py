"""Brokers in the caller's process, on free ports, with data in memory, to which things happen on demand."""

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, TypeVar

from headrace.broker.replicator import Replicator
from headrace.metadata.memory import MemoryStore
from headrace.model import TopicPartition
from headrace.net.transport import Address
from headrace.node_config import NotStarted
from headrace.sim.hosted import Gateway, HostedLoop
from headrace.sim.loop import MachineClock, Process
from headrace.sim.world import SimNode, World
from headrace.storage.memory_files import MemoryFiles
from headrace.system import SystemClock, SystemRandom
from headrace.tier.memory import MemoryBucket

T = TypeVar("T")

HOST = "127.0.0.1"
CLIENTS = "clients"
"""The name of everybody outside, where links are cut."""

DISK_OPERATIONS = ("write", "sync", "read")
START_S_MAX = 30.0
LOOK_EVERY_S = 0.005


class Cluster:
    """`async with` runs the brokers on the caller's loop; `with` runs them on a loop of their own, in a thread.

    `settings` are broker settings with Kafka's names, for example {"num.partitions": "3"}. Brokers have the numbers
    1 to `brokers`, and each has a clock, a metadata client and files of its own.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, *, brokers: int = 1) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        self._settings = dict(settings or {})
        self._brokers = brokers
        self._world: World | None = None
        self._servers: list[asyncio.Server] = []
        self._gateways: set[asyncio.Transport] = set()
        self._thread: _LoopThread | None = None

    @property
    def bootstrap(self) -> str:
        """What a client takes as bootstrap.servers."""
        return self._running().bootstrap

    @property
    def metrics_url(self) -> str:
        return self.metrics_url_of(1)

    def metrics_url_of(self, broker: int) -> str:
        return f"http://{self._node(broker).config.metrics}/metrics"

    # What happens to brokers.

    def kill(self, broker: int) -> None:
        """The process, as `kill -9` does: what it wrote is there."""
        self.do(self._node(broker).kill)

    def lose_power(self, broker: int) -> None:
        """The machine: what it had not synced is gone, or a part of it."""
        self.do(self._node(broker).lose_power)

    def pause(self, broker: int) -> None:
        """As SIGSTOP does: connections stay, nobody answers."""
        self.do(self._node(broker).pause)

    def resume(self, broker: int) -> None:
        self.do(self._node(broker).resume)

    def start(self, broker: int) -> None:
        """One that was killed or lost its power. It serves a little later: see `until_serving`."""
        node = self._node(broker)
        if node.is_alive:
            raise ValueError(f"broker {broker} runs: only one that was killed or lost its power is started")

        def start() -> None:
            node.power_on()
            node.start()

        self.do(start)

    def restart(self, broker: int) -> None:
        """Killed and started at once."""
        self.kill(broker)
        self.start(broker)

    async def until_serving(self) -> None:
        """Until every broker serves."""
        await self._until_serving(self._running())

    def wait_until_serving(self) -> None:
        """The same for `with`."""
        assert self._thread is not None, "inside `async with`, await until_serving()"
        self._thread.run(self.until_serving())

    # Links. A name is the number of a broker, or CLIENTS.

    def cut(self, one: int | str, other: int | str, *, one_way: bool = False) -> None:
        """Nothing arrives at the other any more, and with `one_way` only that way. Connections do not notice."""
        network, here, there = self._running().network, self._host(one), self._host(other)
        self.do(lambda: network.cut(here, there))
        if not one_way:
            self.do(lambda: network.cut(there, here))

    def heal(self) -> None:
        """Every link."""
        self.do(self._running().network.heal_all)

    def reset(self, one: int | str, other: int | str) -> None:
        """Breaks the connections that stand between them."""
        network, here, there = self._running().network, self._host(one), self._host(other)
        self.do(lambda: network.reset(here, there))

    # Disks.

    def slow_disk(self, broker: int, seconds: float, topic: str = "*", partition: int | None = None) -> None:
        """Each sync of that partition's files takes that much longer; zero ends it."""
        slow = self._node(broker).machine.files.slow
        pattern = _pattern(topic, partition)

        def change() -> None:
            slow.pop(pattern, None)
            if seconds:
                slow[pattern] = seconds

        self.do(change)

    def fail_disk(
        self, broker: int, topic: str = "*", partition: int | None = None, *, operation: str = "write", times: int = 1
    ) -> None:
        """The next calls of "write", "sync" or "read" on log files of that partition fail with an I/O error."""
        if operation not in DISK_OPERATIONS:
            raise ValueError(f"a disk fails to {', '.join(DISK_OPERATIONS)}, not to {operation!r}")
        files = self.files(broker)
        self.do(lambda: files.fail(operation, _pattern(topic, partition), errno.EIO, times=times))

    # What replicas know.

    def hold_high_watermark(self, broker: int, held: bool = True) -> None:
        """As a follower it copies on and does not hear what is committed, until this is ended or it starts again."""
        node = self._node(broker).node
        assert node is not None and node.broker is not None, f"broker {broker} does not serve"
        replicator = node.broker.roles.replicator
        assert isinstance(replicator, Replicator)
        replicator.logs.hears_high_watermarks = not held

    def leader(self, topic: str, partition: int) -> int | None:
        """Who leads by the metadata; None if nobody does."""
        return self._running().truth.leader(TopicPartition(topic, partition))

    def in_sync(self, topic: str, partition: int) -> set[int]:
        """The members of the ISR, by the metadata."""
        record = self._running().truth.partition(TopicPartition(topic, partition))
        return set() if record is None else set(record.isr_ids)

    async def until(self, holds: Callable[[], bool], within_s: float = 30.0) -> None:
        """Until the condition holds; TimeoutError when it does not in that time."""
        async with asyncio.timeout(within_s):
            while not holds():
                await _passing()

    def wait_until(self, holds: Callable[[], bool], within_s: float = 30.0) -> None:
        """The same for `with`. The condition is looked at in the thread of the brokers."""
        assert self._thread is not None, "inside `async with`, await until()"
        self._thread.run(self.until(holds, within_s))

    # What belongs to one broker alone.

    def do(self, work: Callable[[], object]) -> None:
        """Between two steps of the brokers, also when they run in a thread: for what is not a method of the cluster."""
        if self._thread is None:
            work()
        else:
            self._thread.run(_called(work))

    def clock(self, broker: int) -> MachineClock:
        return self._node(broker).machine.clock

    def files(self, broker: int) -> MemoryFiles:
        return self._node(broker).machine.files

    def store(self, broker: int) -> MemoryStore:
        """Its client of the metadata store, which fails on demand."""
        store = self._node(broker).store
        assert store is not None, "it has not started"
        return store

    @property
    def tier(self) -> MemoryBucket:
        """The object store of all brokers, for clusters whose settings give them a tier."""
        return self._running().objects.bucket

    # Beginning and end.

    async def __aenter__(self) -> "Cluster":
        try:
            await self._start()
        except BaseException:  # whatever ends the start, a cancellation too, nothing stays
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        world, self._world = self._world, None
        for server in self._servers:
            server.close()
        self._servers.clear()
        for transport in list(self._gateways):
            transport.abort()
        self._gateways.clear()
        if world is not None:
            for node in world.nodes:
                node.kill()
            world.close()

    def __enter__(self) -> "Cluster":
        self._thread = _LoopThread()
        try:
            return self._thread.run(self.__aenter__())
        except BaseException:  # whatever ends the start, the thread goes
            self._end_thread()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        try:
            self._thread.run(self.__aexit__(None, None, None))
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._thread.stop()
            self._thread = None

    async def _start(self) -> None:
        host = asyncio.get_running_loop()
        loop = HostedLoop(host)
        outside: list[Callable[[int], Gateway]] = []
        addresses = []
        for _ in range(self._brokers):
            ports = [await self._listen(host, outside) for _ in range(2)]
            addresses.append((f"{HOST}:{ports[0]}", f"{HOST}:{ports[1]}"))
        seed, wall_ms = SystemRandom().bits(64), SystemClock().wall_ms()
        world = World(seed, self._brokers, self._settings, loop=loop, addresses=addresses, wall_ms=wall_ms)
        self._world = world
        world.network.delay_s_min = world.network.delay_s_max = 0.0
        world.store_delay_ms = 0
        process = Process(loop, CLIENTS)
        network = world.network.view(process, CLIENTS)
        outside.append(lambda port: _Outside(self._gateways, loop, process, network, Address(HOST, port)))
        for node in world.nodes:
            node.start()
        await self._until_serving(world)

    async def _listen(self, host: asyncio.AbstractEventLoop, outside: list[Callable[[int], Gateway]]) -> int:
        port = 0
        server = await host.create_server(lambda: outside[0](port), HOST, 0)
        self._servers.append(server)
        port = int(server.sockets[0].getsockname()[1])
        return port

    async def _until_serving(self, world: World) -> None:
        async with asyncio.timeout(START_S_MAX):
            while not all(node.is_serving for node in world.nodes):
                _raise_failure(world)
                await _passing()

    def _node(self, broker: int) -> SimNode:
        nodes = self._running().nodes
        if not 1 <= broker <= len(nodes):
            raise ValueError(f"there is no broker {broker}: they have the numbers 1 to {len(nodes)}")
        return nodes[broker - 1]

    def _host(self, name: int | str) -> str:
        if isinstance(name, int):
            return self._node(name).host
        if name != CLIENTS:
            raise ValueError(f"a link has a number or CLIENTS at its ends, not {name!r}")
        return name

    def _running(self) -> World:
        if self._world is None:
            raise RuntimeError("the cluster does not run: use it inside `with Cluster() as cluster`")
        return self._world


def _pattern(topic: str, partition: int | None) -> str:
    return f"*/{topic}-{'*' if partition is None else partition}/*.log"


def _raise_failure(world: World) -> None:
    for node in world.nodes:
        if node.failure is not None:
            raise NotStarted(str(node.failure))


async def _passing() -> None:
    await asyncio.sleep(LOOK_EVERY_S)


async def _called(work: Callable[[], object]) -> None:
    work()


class _Outside(Gateway):
    """Known to the cluster, so that the end of the cluster is its end too."""

    def __init__(self, known: set[asyncio.Transport], *args: Any) -> None:
        super().__init__(*args)
        self._known = known
        self._mine: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._mine = transport
        self._known.add(self._mine)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._known.discard(self._mine)
        super().connection_lost(exc)


class _LoopThread:
    """An event loop in a thread of its own. A daemon: a test that forgot to stop it must not hang the test run."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headrace-testing", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
