"""What a client is handed: the network, time and chance. Tests and the simulator hand in their own."""

from dataclasses import dataclass, field
from typing import Protocol

from headrace.model import TopicPartition
from headrace.net.transport import Address, LoopNetwork, Network
from headrace.runtime import Clock, Random
from headrace.system import SystemClock, SystemRandom

BACKOFF_MS = 100
BACKOFF_MS_MAX = 1_000


class Gate(Protocol):
    """What a client may do only while somebody, an ownership, lets it."""

    async def admit(self, address: Address) -> None:
        """Called with each new connection to a broker before its first request. PeerLost: it is not to be used."""
        ...

    def permits(self, partition: TopicPartition, node_id: int) -> bool:
        """Whether records of that partition may be written to and fetched from that broker now."""
        ...


@dataclass(frozen=True, slots=True)
class Outside:
    network: Network = field(default_factory=LoopNetwork)
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    gate: Gate | None = None

    def backoff_ms(self, failures: int) -> int:
        """After that many failures in a row: doubles up to a second, give or take a fifth, so that clients spread."""
        whole = min(BACKOFF_MS_MAX, BACKOFF_MS << min(max(failures - 1, 0), 10))
        return whole * (820 + self.random.bits(9) * 360 // 512) // 1000
