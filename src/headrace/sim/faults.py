"""Makes the faults of a plan happen in a world, and ends them."""

import errno
from collections.abc import Callable

from headrace.metadata.memory import Fault as StoreFault
from headrace.sim.plan import POWER, Fault
from headrace.sim.world import SimNode, World

STORE_FAULTS = (StoreFault.UNKNOWN_DROPPED, StoreFault.UNKNOWN_APPLIED, StoreFault.UNKNOWN_LATE_BY_ITSELF)

JUMP_MS_MAX = 1_200_000
"""Three that meet stay below message.timestamp.after.max.ms: brokers refuse records from further ahead."""


class Faults:
    def __init__(self, world: World) -> None:
        self._world = world
        self._dark: set[int] = set()
        self._damaged: set[int] = set()  # nodes that may have met a disk error
        self._by_kind: dict[str, Callable[[SimNode, Fault], Callable[[], None]]] = {
            "kill": self._kill,
            "kill in a write": self._kill_in_write,
            "clean restart": self._clean_restart,
            POWER: self._power_loss,
            "pause": self._pause,
            "slow disk": self._slow_disk,
            "disk error": self._disk_error,
            "store away": self._store_away,
            "store slow": self._store_slow,
            "store in doubt": self._store_in_doubt,
            "clock jump": self._clock_jump,
            "clock rate": self._clock_rate,
            "resets": self._resets,
            "cut one way": self._cut,
            "cut both ways": self._cut,
            "isolate": self._isolate,
            "slow network": self._slow_network,
        }

    def happen(self, fault: Fault) -> None:
        node = self._world.nodes[fault.nodes[0] - 1 if fault.nodes else 0]
        self._world.story.tell(node.host if fault.nodes else "all", f"{fault.kind}, for {fault.for_s:.1f} s")
        end = self._by_kind[fault.kind](node, fault)
        loop = self._world.loop
        loop.at(loop.now_s + fault.for_s, loop.outside, end)

    def heal(self) -> None:
        """Everything, at once: from here on the cluster has to come back."""
        world = self._world
        world.story.tell("all", "faults are over")
        world.network.heal_all()
        self._usual_delays()
        for node in world.nodes:
            node.machine.slow_s = 0.0
            node.machine.clock.set_rate(1.0)
            node.machine.files.faults.clear()
            node.machine.files.die_at(None)
            if node.store is not None:
                self._usual_store(node)
            node.resume()
            self._dark.discard(node.node_id)
            node.power_on()
            if node.node_id in self._damaged:
                node.kill()  # a partition that met a disk error comes back with the next start
            self._start(node)

    def _start(self, node: SimNode) -> None:
        if not node.is_alive and node.node_id not in self._dark:
            node.start()

    # Processes and machines.

    def _kill(self, node: SimNode, _fault: Fault) -> Callable[[], None]:
        node.kill()
        return lambda: self._start(node)

    def _kill_in_write(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        node.kill_in_write(int(fault.size * 20), int(fault.size * 1000) % 200)

        def end() -> None:
            node.machine.files.die_at(None)
            self._start(node)

        return end

    def _clean_restart(self, node: SimNode, _fault: Fault) -> Callable[[], None]:
        world = self._world
        if node.is_serving:
            world.loop.spawn(world.loop.outside, node.stop())
        return lambda: self._start(node)

    def _power_loss(self, node: SimNode, _fault: Fault) -> Callable[[], None]:
        node.lose_power()
        self._dark.add(node.node_id)

        def end() -> None:
            self._dark.discard(node.node_id)
            node.power_on()
            self._start(node)

        return end

    def _pause(self, node: SimNode, _fault: Fault) -> Callable[[], None]:
        node.pause()
        return node.resume

    def _clock_jump(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        by_ms = int((fault.size - 0.5) * JUMP_MS_MAX)
        node.machine.clock.jump(by_ms)
        return lambda: node.machine.clock.jump(-by_ms)

    def _clock_rate(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        node.machine.clock.set_rate(0.9 + fault.size * 0.2)
        return lambda: node.machine.clock.set_rate(1.0)

    # Disks.

    def _slow_disk(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        node.machine.slow_s = fault.size**2 * 3

        def end() -> None:
            node.machine.slow_s = 0.0

        return end

    def _disk_error(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        operation = ("write", "sync", "read")[int(fault.size * 3) % 3]
        failing = node.machine.files.fail(operation, "*.log", errno.EIO, nth=1 + int(fault.size * 10))
        self._damaged.add(node.node_id)

        def end() -> None:
            if failing in node.machine.files.faults:
                node.machine.files.faults.remove(failing)

        return end

    # The metadata store, as one node sees it.

    def _store_away(self, node: SimNode, _fault: Fault) -> Callable[[], None]:
        if node.store is not None:
            node.store.unavailable = True
        return lambda: self._usual_store(node)

    def _store_slow(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        if node.store is not None:
            node.store.delay_ms = int(fault.size**2 * 3_000)
        return lambda: self._usual_store(node)

    def _store_in_doubt(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        if node.store is not None:
            node.store.faults.append(STORE_FAULTS[int(fault.size * 100) % 3])
            node.store.late_ms = int(fault.size * 5_000)
        return _nothing

    def _usual_store(self, node: SimNode) -> None:
        if node.store is not None:
            node.store.unavailable = False
            node.store.delay_ms = self._world.store_delay_ms
            node.store.faults.clear()

    # The network.

    def _cut(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        other = self._world.nodes[fault.nodes[1] - 1]
        ways = [(node.host, other.host)] + ([(other.host, node.host)] if fault.kind == "cut both ways" else [])
        return self._cut_ways(ways)

    def _isolate(self, node: SimNode, _fault: Fault) -> Callable[[], None]:
        """From the other nodes; from clients too if there are no others."""
        others = [other.host for other in self._world.nodes if other is not node] or self._world.client_hosts
        return self._cut_ways([way for other in others for way in ((node.host, other), (other, node.host))])

    def _cut_ways(self, ways: list[tuple[str, str]]) -> Callable[[], None]:
        network = self._world.network
        for way in ways:
            network.cut(*way)

        def end() -> None:
            for way in ways:
                network.heal(*way)

        return end

    def _resets(self, node: SimNode, _fault: Fault) -> Callable[[], None]:
        world = self._world
        for host in [*world.client_hosts, *(other.host for other in world.nodes)]:
            world.network.reset(node.host, host)
        return _nothing

    def _slow_network(self, _node: SimNode, fault: Fault) -> Callable[[], None]:
        network = self._world.network
        network.delay_s_min, network.delay_s_max = 0.001, 0.01 + fault.size**3
        return self._usual_delays

    def _usual_delays(self) -> None:
        self._world.network.delay_s_min, self._world.network.delay_s_max = 0.0002, 0.002


def _nothing() -> None:
    pass
