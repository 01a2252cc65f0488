"""Three nodes of each: how they start, replicate, fail over, and what they cost when nothing happens."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.cluster_results import ClusterResults, Idle, Starts
from bench.clusters import HeadraceNodes, KafkaNodes, Nodes
from bench.failover import fail_over
from bench.raw import RawClient
from bench.rounds import Workload, run
from bench.workloads import BATCH_1M, BATCH_16K, PARTITIONS, confluent

MAKERS: dict[str, Callable[[Path], Nodes]] = {"kafka": KafkaNodes, "headrace": HeadraceNodes}
START_TOPIC = "start"
IDLE_TOPIC = "idle"
IDLE_PARTITIONS = 10_000
QUIET_CPU_CHANGE = 0.15
QUIET_S_MAX = 120
LOOPBACK = "lo"


class ClusterRun:
    def __init__(self, scratch: Path, chosen: Sequence[str], machine: str, quick: bool) -> None:
        self._clusters = [MAKERS[name](scratch / f"{name}-nodes") for name in chosen]
        self._quick = quick
        self.results = ClusterResults(machine, rounds=1 if quick else 3, warm_up=1)

    def run(self) -> ClusterResults:
        try:
            for nodes in self._clusters:
                self._start(nodes)
                nodes.stop()
            for nodes in self._clusters:
                nodes.start()
            for workload in _replicated(100 if self._quick else 400):
                self._replicate(workload)
            for nodes in self._clusters:
                nodes.kill()
            for nodes in self._clusters:  # one after another: who is idle shall not be what another one waits for
                nodes.start()
                self._fail_over(nodes)
                self._idle(nodes)
                nodes.kill()
        finally:
            for nodes in self._clusters:
                nodes.kill()
        return self.results

    def _start(self, nodes: Nodes) -> None:
        """After a first start that sets the directories up and does not count."""
        nodes.start()
        with RawClient(nodes.port) as client:
            client.create_replicated(START_TOPIC, PARTITIONS)
        nodes.wait_whole(START_TOPIC, PARTITIONS)
        starts = self.results.starts[nodes.name] = Starts([], [], [])
        for _ in range(self.results.rounds):
            nodes.stop()
            began = time.monotonic()
            starts.ready_s.append(nodes.start())
            starts.cpu_s.append(nodes.cpu_s())
            nodes.wait_whole(START_TOPIC, PARTITIONS)
            starts.whole_s.append(time.monotonic() - began)
            told = f"answers after {starts.ready_s[-1]:.2f} s, every ISR is whole after {starts.whole_s[-1]:.2f} s"
            print(f"  start of three nodes | {nodes.name} | {told}", file=sys.stderr, flush=True)

    def _replicate(self, workload: Workload) -> None:
        for nodes in self._clusters:
            with RawClient(nodes.port) as client:
                client.create_replicated(workload.topic, PARTITIONS)
            nodes.wait_whole(workload.topic, PARTITIONS)
        self.results.measured.append(run(workload, self._clusters, self.results.rounds, self.results.warm_up))
        for nodes in self._clusters:
            self.results.rss_bytes[nodes.name] = nodes.rss_bytes()
            with RawClient(nodes.port) as client:
                client.delete_topic(workload.topic)

    def _fail_over(self, nodes: Nodes) -> None:
        """Apache Kafka notices both in the same way, by its session's end, and takes long to start again."""
        deaths = 5 if self._quick else 10
        died_s, hung_s = fail_over(nodes, deaths, 2 if self._quick else 3)
        self.results.died_s[nodes.name], self.results.hung_s[nodes.name] = died_s, hung_s

    def _idle(self, nodes: Nodes) -> None:
        began = time.monotonic()
        with RawClient(nodes.port) as client:
            client.create_replicated(IDLE_TOPIC, IDLE_PARTITIONS)
        nodes.wait_whole(IDLE_TOPIC, IDLE_PARTITIONS)
        whole_s = time.monotonic() - began
        _wait_until_steady(nodes)
        idle = self.results.idle[nodes.name] = Idle(IDLE_PARTITIONS, whole_s, nodes.rss_bytes(), [], [])
        seconds = 5 if self._quick else 10
        for _ in range(self.results.rounds):
            cpu_s, sent = nodes.cpu_s(), _loopback_bytes()
            time.sleep(seconds)
            idle.cpu_share.append((nodes.cpu_s() - cpu_s) / seconds)
            idle.bytes_per_s.append((_loopback_bytes() - sent) / seconds)
            told = f"{idle.cpu_share[-1]:.1%} of a core, {idle.bytes_per_s[-1]:,.0f} bytes/s"
            print(f"  idle with {IDLE_PARTITIONS} partitions | {nodes.name} | {told}", file=sys.stderr, flush=True)


def _replicated(megabytes: int) -> Iterator[Workload]:
    for batch_bytes, label, share in ((BATCH_1M, "1 MB", 1), (BATCH_16K, "16 KB", 4)):
        topic = f"replicated-{batch_bytes}"
        settings = [f"batch.size={batch_bytes}", "acks=all", "queue.buffering.max.messages=1000000"]
        yield Workload(
            f"replicated produce, acks=all, {label} batches",
            topic,
            confluent("produce", topic, megabytes * 1_000 // share, 1_000, *settings),
            "GB",
            ratio_max=0.5,
            prefault_mb=9 * megabytes // share,
        )


def _wait_until_steady(nodes: Nodes) -> None:
    """Until what the nodes use stays what it is for three looks."""
    deadline, alike, before_s = time.monotonic() + QUIET_S_MAX, 0, 0.0
    while alike < 3 and time.monotonic() < deadline:
        cpu_s = nodes.cpu_s()
        time.sleep(2)
        used_s = (nodes.cpu_s() - cpu_s) / 2
        alike = alike + 1 if used_s <= before_s * (1 + QUIET_CPU_CHANGE) + 0.03 else 0
        before_s = used_s


def _loopback_bytes() -> int:
    """Everything on this machine that went over it, so nothing else may run."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == LOOPBACK:
            return int(counters.split()[0])
    raise LookupError(f"there is no {LOOPBACK}")
