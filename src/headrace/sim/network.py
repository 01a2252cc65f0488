"""A network in memory: connections between processes, with delay, cut links, resets and full windows.

Bytes of one connection arrive in order, however long each takes; connections overtake one another. What is sent over
a cut link waits, as TCP repeats it, and arrives some time after the link has healed.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeVar

from headrace.net.transport import Address
from headrace.sim.loop import DEAD, Process, SimLoop
from headrace.sim.transport import SimTransport

P = TypeVar("P", bound=asyncio.BaseProtocol)

FIRST_PORT = 40_000
REPEAT_S_MAX = 1.0
"""How long after a link has healed TCP may take to send again what was lost."""


class SimListening:
    def __init__(
        self,
        network: "SimNetwork",
        process: Process,
        host: str,
        address: Address,
        factory: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._network = network
        self.process = process
        self.host = host
        self.address = address
        self.factory = factory

    def close(self) -> None:
        self._network.forget(self)


class SimNetwork:
    """All hosts and links of a world. `view(process, host)` is what a node or a client is handed."""

    def __init__(self, loop: SimLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.delay_s_min = 0.0002
        self.delay_s_max = 0.002
        self.cut_links: set[tuple[str, str]] = set()  # (from, to)
        self._dark: set[str] = set()  # hosts without power
        self._listening: dict[Address, SimListening] = {}
        self._host_of: dict[Address, str] = {}  # also of those who listen no more
        self._transports: dict[SimTransport, None] = {}  # both ends of each connection
        self._next_port = FIRST_PORT

    def view(self, process: Process, host: str) -> "HostNetwork":
        process.on_death.append(partial(self._process_died, process))
        return HostNetwork(self, process, host)

    # Faults.

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from the one to the other. The way back may still be open."""
        self.cut_links.add((source, target))

    def heal(self, source: str, target: str) -> None:
        if (source, target) in self.cut_links:
            self.cut_links.discard((source, target))
            for end in list(self._transports):
                if (end.host, end.other.host) == (source, target):
                    end.send_again(self.random.uniform(0, REPEAT_S_MAX))

    def heal_all(self) -> None:
        for source, target in sorted(self.cut_links):
            self.heal(source, target)

    def reset(self, one: str, other: str) -> int:
        """Breaks the connections between two hosts. Returns how many ends were there."""
        broken = [end for end in self._transports if {end.host, end.other.host} == {one, other}]
        for end in broken:
            end.broken()
        return len(broken)

    def power_off(self, host: str) -> None:
        """Call it before the processes are killed: nobody is told that they are gone."""
        self._dark.add(host)

    def power_on(self, host: str) -> None:
        self._dark.discard(host)
        for end in list(self._transports):
            if end.other.host == host and end.other.process.state == DEAD:
                self.loop.at(self.loop.now_s + self.random.uniform(0, REPEAT_S_MAX), end.process, end.broken)

    # What views and transports use.

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.cut_links or target in self._dark or source in self._dark

    def delay_s(self) -> float:
        return self.random.uniform(self.delay_s_min, self.delay_s_max)

    async def first_packet_again(self) -> None:
        await asyncio.sleep(self.random.uniform(0.5, 1))

    def take_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def listen(self, listening: SimListening) -> None:
        if listening.address in self._listening:
            raise OSError(98, f"address {listening.address} is in use")
        self._listening[listening.address] = listening
        self._host_of[listening.address] = listening.host

    def forget(self, listening: SimListening) -> None:
        if self._listening.get(listening.address) is listening:
            del self._listening[listening.address]

    def listener_at(self, address: Address) -> SimListening | None:
        return self._listening.get(address)

    def host_of(self, address: Address) -> str:
        return self._host_of.get(address, address.host)

    def stands(self, transport: SimTransport) -> None:
        self._transports[transport] = None

    def gone(self, transport: SimTransport) -> None:
        self._transports.pop(transport, None)

    def _process_died(self, process: Process) -> None:
        for listening in [each for each in self._listening.values() if each.process is process]:
            self.forget(listening)
        for end in [end for end in self._transports if end.process is process]:
            end.end_of_process(is_told=end.host not in self._dark)


class HostNetwork:
    """The network as one process sees it."""

    def __init__(self, network: SimNetwork, process: Process, host: str) -> None:
        self._network = network
        self._process = process
        self._host = host

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]) -> SimListening:
        address = Address(host, port or self._network.take_port())
        listening = SimListening(self._network, self._process, self._host, address, factory)
        self._network.listen(listening)
        return listening

    async def connect(self, host: str, port: int, factory: Callable[[], P]) -> P:
        network, loop = self._network, self._network.loop
        await asyncio.sleep(network.delay_s())
        there = network.host_of(Address(host, port))
        while network.is_cut(self._host, there) or network.is_cut(there, self._host):
            await network.first_packet_again()
        target = network.listener_at(Address(host, port))
        await asyncio.sleep(network.delay_s())
        if target is None or target.process.state == DEAD:
            raise ConnectionRefusedError(111, "Connection refused")
        ours = SimTransport(network, self._process, self._host, network.take_port())
        theirs = SimTransport(network, target.process, there, port)
        ours.other, theirs.other = theirs, ours
        network.stands(ours)
        network.stands(theirs)
        loop.soon(target.process, lambda: theirs.open(target.factory()))
        protocol = factory()
        ours.open(protocol)
        return protocol
