"""Makes the faults of a plan happen in a world, and ends them."""

import asyncio
import errno
from collections.abc import Callable, Iterable, Sequence

from headrace.broker.partitions import Hosted
from headrace.metadata.memory import Fault as StoreFault
from headrace.model import TopicPartition
from headrace.sim.observer import find
from headrace.sim.plan import CONTROLLER, POWER, Fault
from headrace.sim.world import SimNode, World

STORE_FAULTS = (StoreFault.UNKNOWN_DROPPED, StoreFault.UNKNOWN_APPLIED, StoreFault.UNKNOWN_LATE_BY_ITSELF)

RATE_MIN, RATE_MAX = 0.976, 1.024
"""Any two clocks are within five per cent of each other: leases are safe by no more than that."""
JUMP_MS_MAX = 1_200_000
"""Three that meet stay below message.timestamp.after.max.ms: brokers refuse records from further ahead."""


LOOK_AT_COMMITS_S = 0.001
FOREVER = 1 << 62

MUDDLING = frozenset(
    {"store away", "store slow", "store in doubt", "watch held", "beats lost", "pause", "clock jump", "clock rate"}
)
LATE_S = 5.0
"""By how much a write to the metadata store may be late."""


class Faults:
    def __init__(
        self,
        world: World,
        partitions: Sequence[TopicPartition],
        *,
        is_flushed: bool,
        delay_s_max: float = 0.002,
        aims: Sequence[TopicPartition] = (),
    ) -> None:
        """`partitions` must lose nothing. `aims`: whose leaders are struck; without any the first two of those."""
        self._world = world
        self._aims = aims or partitions
        self.muddled_s = float(-FOREVER)
        """When controllers could last be behind what the metadata store knows."""
        self._delay_s_max = delay_s_max
        self._usual_delays()
        self._partitions = partitions
        self._is_flushed = is_flushed
        self._is_over = False
        self._dark: set[int] = set()
        self._losses: dict[int, int] = {}
        """The revision of the store up to which a node may have lost records; FOREVER while its disk is failing."""
        self._by_kind: dict[str, Callable[[SimNode, Fault], Callable[[], None]]] = {
            "kill": self._kill,
            "kill at a commit": self._kill_at_commit,
            "kill at a join": self._kill_at_join,
            "kill in a write": self._kill_in_write,
            "clean restart": self._clean_restart,
            POWER: self._power_loss,
            "pause": self._pause,
            "slow disk": self._slow_disk,
            "disk error": self._disk_error,
            "store away": self._store_away,
            "store slow": self._store_slow,
            "store in doubt": self._store_in_doubt,
            "watch held": self._watch_held,
            "beats lost": self._beats_lost,
            "clock jump": self._clock_jump,
            "clock rate": self._clock_rate,
            "resets": self._resets,
            "cut one way": self._cut,
            "cut both ways": self._cut,
            "isolate": self._isolate,
            "slow network": self._slow_network,
            "tier away": self._tier_trouble,
            "tier slow": self._tier_trouble,
            "tier failing": self._tier_trouble,
            "tier silent": self._tier_trouble,
            "wipe": self._wipe,
            "alone": self._alone,
        }

    def happen(self, fault: Fault) -> None:
        node = self._struck(fault.nodes[0]) if fault.nodes else self._world.nodes[0]
        self._world.story.tell(node.host if fault.nodes else "all", f"{fault.kind}, for {fault.for_s:.1f} s")
        end = self._by_kind[fault.kind](node, fault)
        loop = self._world.loop
        if fault.kind in MUDDLING:
            for_s = LATE_S if fault.kind == "store in doubt" else fault.for_s
            self.muddled_s = max(self.muddled_s, loop.now_s + for_s)
        loop.at(loop.now_s + fault.for_s, loop.outside, end)

    def _struck(self, number: int) -> SimNode:
        nodes, truth = self._world.nodes, self._world.truth
        if number > 0:
            return nodes[number - 1]
        chosen = truth.controller if number == CONTROLLER else truth.leader(self._aims[-number - 1])
        return nodes[0 if chosen is None else chosen - 1]

    def heal(self) -> None:
        """Everything, at once: from here on the cluster has to come back."""
        world = self._world
        self._is_over = True
        world.story.tell("all", "faults are over")
        world.network.heal_all()
        self._usual_delays()
        for node in world.nodes:
            node.machine.slow_s = 0.0
            node.weather.clear()
            node.machine.clock.set_rate(1.0)
            node.machine.files.faults.clear()
            node.machine.files.die_at(None)
            if node.store is not None:
                self._usual_store(node)
            node.resume()
            self._dark.discard(node.node_id)
            node.power_on()
            if self._losses.get(node.node_id) == FOREVER:
                node.kill()  # a partition that met a disk error comes back with the next start
            self._start(node)

    def _start(self, node: SimNode) -> None:
        if not node.is_alive and node.node_id not in self._dark:
            if self._losses.get(node.node_id) == FOREVER and not node.machine.files.faults:
                self._losses[node.node_id] = self._world.truth.rev
            node.start()

    def _may_lose(self, node: SimNode) -> bool:
        """Whether every acknowledged record is on the disks of others, which keep it, as far as that is promised."""
        return self._is_flushed or self._may_lose_all(node)

    def _may_lose_all(self, node: SimNode) -> bool:
        """The same, when also what was synced is gone."""
        world = self._world
        shrinks = world.dead_mens_proposals + [shrink for other in world.nodes for shrink in other.proposals()]
        return all(
            world.truth.survivors(partition, node.node_id, self._losses, shrinks) for partition in self._partitions
        )

    def _spare(self, node: SimNode) -> Callable[[], None]:
        self._world.story.tell(node.host, "is spared: nobody else is sure to have everything")
        return _nothing

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

    def _kill_at_commit(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        """When the high watermark of a partition that it leads moves next, and hardly anybody knows of it."""
        marks: dict[TopicPartition, int] = {}

        def moved(partition: TopicPartition, hosted: Hosted) -> Iterable[SimNode]:
            before = marks.get(partition, hosted.high_watermark)
            marks[partition] = hosted.high_watermark
            return (node,) if hosted.high_watermark > before else ()

        return self._kill_when(node, fault, moved)

    def _kill_at_join(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        """When the ISR of a partition that it leads grows: all but the new member."""
        members: dict[TopicPartition, set[int]] = {}

        def grew(partition: TopicPartition, hosted: Hosted) -> Iterable[SimNode]:
            now = set() if hosted.leadership is None else set(hosted.leadership.record.isr_ids)
            new = now - members.get(partition, now)
            members[partition] = now
            return [other for other in self._world.nodes if other.node_id not in new] if new else ()

        return self._kill_when(node, fault, grew)

    def _kill_when(
        self, node: SimNode, fault: Fault, doomed: Callable[[TopicPartition, Hosted], Iterable[SimNode]]
    ) -> Callable[[], None]:
        """As soon as `doomed` names somebody, of a partition that the node leads."""
        loop, process = self._world.loop, node.process
        until_s = loop.now_s + fault.for_s

        def look() -> None:
            if node.process is not process or not node.is_alive or loop.now_s >= until_s or self._is_over:
                return
            for partition in self._partitions:
                hosted = find(node, partition)
                if hosted is None or not hosted.is_leading:
                    continue
                victims = list(doomed(partition, hosted))
                for victim in victims:
                    victim.kill()
                    loop.at(loop.now_s + fault.for_s, loop.outside, self._start, victim)
                if victims:
                    return
            loop.at(loop.now_s + LOOK_AT_COMMITS_S, loop.outside, look)

        look()
        return _nothing

    def _clean_restart(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        world = self._world
        start_s = world.loop.now_s + fault.for_s

        async def restart() -> None:
            await node.stop()
            if not self._is_over:
                await asyncio.sleep(max(0.0, start_s - world.loop.now_s))
            self._start(node)

        if node.is_serving:
            world.loop.spawn(world.loop.outside, restart())
        return _nothing

    def _power_loss(self, node: SimNode, _fault: Fault) -> Callable[[], None]:
        if not self._may_lose(node):
            return self._spare(node)
        if self._losses.get(node.node_id) != FOREVER:
            self._losses[node.node_id] = self._world.truth.rev
        node.lose_power()
        self._dark.add(node.node_id)

        def end() -> None:
            self._dark.discard(node.node_id)
            node.power_on()
            self._start(node)

        return end

    def _wipe(self, node: SimNode, _fault: Fault) -> Callable[[], None]:
        """Another disk, with nothing on it."""
        if not self._may_lose_all(node):
            return self._spare(node)
        if self._losses.get(node.node_id) != FOREVER:
            self._losses[node.node_id] = self._world.truth.rev
        node.wipe()
        return lambda: self._start(node)

    def _alone(self, node: SimNode, _fault: Fault) -> Callable[[], None]:
        """All others die."""
        others = [other for other in self._world.nodes if other is not node]
        for other in others:
            other.kill()

        def end() -> None:
            for other in others:
                self._start(other)

        return end

    def _pause(self, node: SimNode, _fault: Fault) -> Callable[[], None]:
        node.pause()
        return node.resume

    def _clock_jump(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        by_ms = int((fault.size - 0.5) * JUMP_MS_MAX)
        node.machine.clock.jump(by_ms)
        return lambda: node.machine.clock.jump(-by_ms)

    def _clock_rate(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        node.machine.clock.set_rate(RATE_MIN + fault.size * (RATE_MAX - RATE_MIN))
        return lambda: node.machine.clock.set_rate(1.0)

    # Disks.

    def _slow_disk(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        node.machine.slow_s = fault.size**2 * 3

        def end() -> None:
            node.machine.slow_s = 0.0

        return end

    def _disk_error(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        """Of one file, or of all files of a partition."""
        if not self._may_lose(node):
            return self._spare(node)
        operation = ("write", "sync", "read")[int(fault.size * 3) % 3]
        pattern = ("*.log", f"*/{self._partitions[-1]}/*")[int(fault.size * 30) % 2]
        failing = node.machine.files.fail(operation, pattern, errno.EIO, nth=1 + int(fault.size * 10))
        self._losses[node.node_id] = FOREVER

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

    def _watch_held(self, node: SimNode, _fault: Fault) -> Callable[[], None]:
        """It hears of no change, and everything else works."""
        if node.store is not None:
            node.store.hold_watch()
        return lambda: self._usual_store(node)

    def _beats_lost(self, node: SimNode, _fault: Fault) -> Callable[[], None]:
        if node.store is not None:
            node.store.beats_lost = True
        return lambda: self._usual_store(node)

    def _usual_store(self, node: SimNode) -> None:
        if node.store is not None:
            node.store.unavailable = False
            node.store.beats_lost = False
            node.store.hold_watch(False)
            node.store.delay_ms = self._world.store_delay_ms
            node.store.faults.clear()

    # The object store, as one node sees it, or all of them.

    def _tier_trouble(self, node: SimNode, fault: Fault) -> Callable[[], None]:
        struck = [node] if fault.size < 0.5 else self._world.nodes
        share = fault.size * 2 % 1
        for one in struck:
            weather = one.weather
            match fault.kind:
                case "tier away":
                    weather.away = True
                case "tier slow":
                    weather.slow_s = share * 3
                case "tier failing":
                    weather.failing = share
                case "tier silent":
                    weather.silent = weather.late = share / 2

        def end() -> None:
            for one in struck:
                one.weather.clear()

        return end

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
        self._world.network.delay_s_min, self._world.network.delay_s_max = 0.0002, self._delay_s_max


def _nothing() -> None:
    pass
