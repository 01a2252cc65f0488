"""How long a broker takes from exec to its first useful answer, and what it holds then."""

from dataclasses import dataclass
from pathlib import Path

from tests.servers.process import BrokerProcess


@dataclass
class StartUp:
    seconds: list[float]
    cpu_s: list[float]
    rss_bytes: list[int]


def start_up(broker: BrokerProcess, times: int) -> StartUp:
    """After a first start that sets the data directory up and does not count; leaves the broker running."""
    measured = StartUp([], [], [])
    broker.start()
    for _ in range(times):
        broker.stop()
        measured.seconds.append(broker.start())
        measured.cpu_s.append(broker.cpu_s())
        measured.rss_bytes.append(broker.rss_bytes())
    return measured


def machine() -> str:
    """One line on what the figures were taken on."""
    cpus = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    release = Path("/proc/sys/kernel/osrelease").read_text().strip()
    return f"{len(cpus)} x {cpus[0].partition(':')[2].strip()}, {memory_kb / 1e6:.0f} GB, Linux {release}"
