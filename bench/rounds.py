"""Workloads in interleaved rounds: each round drives every broker once, with the same program."""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bench.native import program


class Driven(Protocol):
    """A broker, or several as one."""

    @property
    def name(self) -> str: ...
    @property
    def port(self) -> int: ...
    def cpu_s(self) -> float: ...


@dataclass(frozen=True)
class Workload:
    name: str
    topic: str
    command: Callable[[int], list[str]]
    """By the broker's port; prints one line of JSON."""
    unit: str
    """What the broker's CPU is divided by: "GB" or "request"."""
    ratio_max: float
    """Our target for Headrace's CPU as a share of Apache Kafka's."""
    prefault_mb: int = 0


class Sample(NamedTuple):
    """One run of a workload."""

    cpu_s: float
    wall_s: float
    bytes: float
    requests: int
    client_cpu_s: float
    p50_us: float
    p99_us: float


@dataclass
class Measured:
    """The rounds that count, per broker."""

    workload: Workload
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def cpu(self, broker: str) -> list[float]:
        """Seconds per GB, or microseconds per request."""
        if self.workload.unit == "GB":
            return [sample.cpu_s / sample.bytes * 1e9 for sample in self.samples[broker]]
        return [sample.cpu_s / sample.requests * 1e6 for sample in self.samples[broker]]

    def median(self, broker: str, what: Callable[[Sample], float]) -> float:
        return statistics.median(map(what, self.samples[broker]))

    def ratio(self) -> float | None:
        """Headrace's median CPU as a share of Apache Kafka's."""
        if len(self.samples) < 2:
            return None
        return statistics.median(self.cpu("Headrace")) / statistics.median(self.cpu("Apache Kafka"))


def run(workload: Workload, brokers: Sequence[Driven], rounds: int, warm_up: int) -> Measured:
    """The first `warm_up` rounds, in which a JVM compiles, are dropped."""
    measured = Measured(workload, {broker.name: [] for broker in brokers})
    for number in range(warm_up + rounds):
        for broker in brokers:
            sample = one_round(workload, broker)
            note = " (warm-up, dropped)" if number < warm_up else ""
            print(
                f"  {workload.name} | {broker.name} | {describe(workload, sample)}{note}", file=sys.stderr, flush=True
            )
            if number >= warm_up:
                measured.samples[broker.name].append(sample)
    return measured


def one_round(workload: Workload, broker: Driven) -> Sample:
    if workload.prefault_mb:
        subprocess.run([program("prefault"), str(workload.prefault_mb)], check=True)
    cpu_before_s = broker.cpu_s()
    done = subprocess.run(workload.command(broker.port), stdout=subprocess.PIPE, check=True)
    cpu_s = broker.cpu_s() - cpu_before_s
    told = json.loads(done.stdout.splitlines()[-1])
    figures = (told[name] for name in ("wall_s", "bytes", "requests", "client_cpu_s", "p50_us", "p99_us"))
    return Sample(cpu_s, *figures)


def describe(workload: Workload, sample: Sample) -> str:
    if workload.unit == "GB":
        cpu = f"{sample.cpu_s / sample.bytes * 1e9:.2f} CPU s/GB"
        return f"{cpu}, {sample.bytes / sample.wall_s / 1e6:.0f} MB/s"
    cpu = f"{sample.cpu_s / sample.requests * 1e6:.1f} CPU us/request"
    return f"{cpu}, {sample.requests / sample.wall_s:.0f}/s, p50 {sample.p50_us:.0f} us, p99 {sample.p99_us:.0f} us"
