"""Many idle partitions: what they cost in memory, at start-up, in an idle fetch of a session and during a scrape."""

import json
import statistics
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass

from bench.native import program
from bench.raw import RawClient
from tests.servers.process import BrokerProcess

QUIET_CPU_SHARE = 0.12
QUIET_S_MAX = 180
SCRAPES = 5


@dataclass
class IdlePartitions:
    """Of one broker with one topic of so many partitions, none of which holds a record."""

    partitions: int
    create_s: float
    memory_bytes_per_partition: float
    opening_response_bytes: int
    idle_response_bytes: int
    cpu_us_per_fetch: list[float]
    wall_us_per_fetch: list[float]


def idle_partitions(broker: BrokerProcess, partitions: int, rounds: int, round_s: float) -> IdlePartitions:
    topic, rss_before, began = f"idle-{partitions}", broker.rss_bytes(), time.monotonic()
    with RawClient(broker.port) as client:
        client.create_topic(topic, partitions)
        create_s = time.monotonic() - began
        wait_until_quiet(broker)
        memory = (broker.rss_bytes() - rss_before) / partitions
        idle_share = cpu_share(broker, round_s)
        opened = client.fetch(0, 0, topic, range(partitions))
        epoch, cpu_us, wall_us, idle_bytes = 1, [], [], 0
        for number in range(rounds + 1):
            cpu_before_s, began, fetches = broker.cpu_s(), time.monotonic(), 0
            while time.monotonic() - began < round_s:
                idle = client.fetch(opened.session_id, epoch)
                assert idle.session_id == opened.session_id and idle.topics == 0, idle
                idle_bytes = idle.response_bytes
                epoch += 1
                fetches += 1
            wall_s = time.monotonic() - began
            used_s = max(0.0, broker.cpu_s() - cpu_before_s - idle_share * wall_s)
            said = f"{used_s / fetches * 1e6:.0f} CPU us, {idle_bytes} bytes"
            print(f"  idle fetch over {partitions} partitions | {broker.name} | {said}", file=sys.stderr, flush=True)
            if number > 0:
                cpu_us.append(used_s / fetches * 1e6)
                wall_us.append(wall_s / fetches * 1e6)
    return IdlePartitions(partitions, create_s, memory, opened.response_bytes, idle_bytes, cpu_us, wall_us)


def cpu_share(broker: BrokerProcess, seconds: float) -> float:
    before_s = broker.cpu_s()
    time.sleep(seconds)
    return (broker.cpu_s() - before_s) / seconds


def wait_until_quiet(broker: BrokerProcess) -> None:
    """Topics are answered for long before all their logs exist; two quiet seconds say that the work is done."""
    deadline, quiet = time.monotonic() + QUIET_S_MAX, 0
    while quiet < 2 and time.monotonic() < deadline:
        quiet = quiet + 1 if cpu_share(broker, 1) < QUIET_CPU_SHARE else 0


@dataclass
class Stall:
    """The longest answer to a serial ping, in rounds with and without a scrape of /metrics."""

    with_scrape_ms: list[float]
    without_ms: list[float]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.with_scrape_ms)


def stall_during_scrapes(broker: BrokerProcess) -> Stall:
    """A round of 1 s each; the load generator pings, so that this process cannot be what stalls."""
    stall = Stall([], [])
    for _ in range(SCRAPES):
        stall.without_ms.append(_longest_ping_ms(broker, scrape=False))
        stall.with_scrape_ms.append(_longest_ping_ms(broker, scrape=True))
    return stall


def _longest_ping_ms(broker: BrokerProcess, *, scrape: bool) -> float:
    pinging = subprocess.Popen([program("loadgen"), "ping", str(broker.port), "1"], stdout=subprocess.PIPE)
    if scrape:
        time.sleep(0.3)  # in the middle of the pings
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics", timeout=30) as page:
            assert b"kafka_server" in page.read()
    told, _ = pinging.communicate()
    assert pinging.returncode == 0
    return float(json.loads(told)["max_us"]) / 1000
