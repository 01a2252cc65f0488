"""One broker with a tier in a directory: reads of what is there alone and of its disk, and hot clients beside them."""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from bench.clusters import wait_until
from bench.raw import RawClient
from bench.requests import write_requests
from bench.workloads import BATCH_16K, PARTITIONS, loadgen
from tests.servers.headrace import headrace_broker
from tests.servers.process import BrokerProcess

LOCAL, TIERED, HOT, WARM = "local", "tiered", "hot", "warm"
SEGMENT_BYTES = 32 << 20
TIERED_SETTINGS = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": "1",
}
WARM_BYTES = 160_000_000
ROUNDS = 5
SETTLE_S = 1.0
LOOK_S = 0.05


class Read(NamedTuple):
    s_per_gb: float
    cpu_s_per_gb: float


class Beside(NamedTuple):
    """Latencies of a client, and what a reader beside it got: 0 when there was none."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    reader_mb_per_s: float


class Round(NamedTuple):
    """One client three times: by itself, beside a reader of the tier, and beside one of the disk."""

    alone: Beside
    cold: Beside
    local: Beside


def read_and_disturb(directory: Path, quick: bool) -> tuple[dict[str, list[Read]], dict[str, list[Round]]]:
    megabytes, rounds = (300, 2) if quick else (1_500, 5)
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.storage.url": str(directory / "objects"),
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
    }
    broker = headrace_broker(directory, settings)
    broker.start()
    try:
        for topic, configs in ((LOCAL, {"segment.bytes": str(SEGMENT_BYTES)}), (TIERED, TIERED_SETTINGS)):
            _fill(broker, directory, topic, configs, PARTITIONS, megabytes + PARTITIONS * SEGMENT_BYTES // 1_000_000)
        _fill(broker, directory, WARM, {}, 1, WARM_BYTES * 1.1 / 1e6)
        wait_until(lambda: _is_tiered(broker), "all but the active segments are in the tier alone")
        reads = _reads(broker, megabytes * 1_000_000, rounds)
        return reads, _rounds(broker, directory, megabytes * 1_000_000, quick)
    finally:
        broker.kill()


def _fill(
    broker: BrokerProcess, directory: Path, topic: str, settings: dict[str, str], partitions: int, megabytes: float
) -> None:
    """1 KB records in batches of 16 KB."""
    with RawClient(broker.port) as client:
        client.create_configured(topic, partitions, 1, settings)
    requests = write_requests(directory / f"{topic}.requests", topic, partitions, 1_000, BATCH_16K)
    total = int(megabytes * 1_000_000 // (requests.stat().st_size // partitions))
    command = loadgen("produce", requests, min(4, partitions), 8, total)(broker.port)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _is_tiered(broker: BrokerProcess) -> bool:
    directories = [broker.partitions / f"{TIERED}-{index}" for index in range(PARTITIONS)]
    return metric(broker, "remotecopylagbytes") == 0 and all(len(list(d.glob("*.log"))) == 1 for d in directories)


def metric(broker: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    start = f"kafka_server_brokertopicmetrics_{name} "
    return next(float(line.split()[1]) for line in lines if line.startswith(start))


def _reads(broker: BrokerProcess, total_bytes: int, rounds: int) -> dict[str, list[Read]]:
    """Interleaved; the first of each is dropped."""
    found: dict[str, list[Read]] = {"disk": [], "tier": []}
    for number in range(rounds + 1):
        for where, topic in (("disk", LOCAL), ("tier", TIERED)):
            cpu_s = broker.cpu_s()
            told = _run(broker, os.sched_getaffinity(0), "fetch", topic, PARTITIONS, 2, 1 << 20, total_bytes)
            gb = told["bytes"] / 1e9
            read = Read(told["wall_s"] / gb, (broker.cpu_s() - cpu_s) / gb)
            _say(f"catch-up from the {where} | {1000 / read.s_per_gb:.0f} MB/s, {read.cpu_s_per_gb:.2f} CPU s/GB")
            if number:
                found[where].append(read)
    return found


def _rounds(broker: BrokerProcess, directory: Path, total_bytes: int, quick: bool) -> dict[str, list[Round]]:
    """Each client by itself and beside a reader, in turn."""
    requests = write_requests(directory / "hot.requests", HOT, 1, 1_000, 1_000)
    with RawClient(broker.port) as client:
        client.create_topic(HOT, 1)
    hot = _processor()
    _pin(broker.pid, hot)
    count = 3_000 if quick else 10_000
    clients: dict[str, Callable[[], dict[str, Any]]] = {
        "produce": lambda: _run(broker, hot, "produce", requests, 1, 1, count),
        "fetch": lambda: _run(broker, hot, "fetch", WARM, 1, 1, BATCH_16K, WARM_BYTES),
    }
    found: dict[str, list[Round]] = {what: [] for what in clients}
    for _ in range(ROUNDS):
        for what, run in clients.items():
            alone = _beside(run(), 0)
            own_bytes = WARM_BYTES if what == "fetch" else 0
            cold, local = (_disturbed(broker, topic, total_bytes, run, own_bytes) for topic in (TIERED, LOCAL))
            found[what].append(Round(alone, cold, local))
            _say(
                f"hot {what} | p99 {alone.p99_ms:.2f} ms, beside a cold reader {cold.p99_ms:.2f} ms "
                f"({cold.reader_mb_per_s:.0f} MB/s), beside a local one {local.p99_ms:.2f} ms"
            )
    return found


def _disturbed(
    broker: BrokerProcess, topic: str, total_bytes: int, run: Callable[[], dict[str, Any]], own_bytes: int
) -> Beside:
    """`own_bytes`: what the hot client fetches itself."""
    with CatchUp(broker, topic, total_bytes) as reader:
        told = run()
        return _beside(told, reader.mb_per_s(own_bytes))


def _beside(told: dict[str, Any], reader_mb_per_s: float) -> Beside:
    return Beside(told["p50_us"] / 1000, told["p99_us"] / 1000, told["p999_us"] / 1000, reader_mb_per_s)


class CatchUp:
    """Reads a topic from its beginning, as fast as it can, and again.

    It would be on another machine: so it has only what the broker and the hot client leave of their processor.
    """

    def __init__(self, broker: BrokerProcess, topic: str, total_bytes: int) -> None:
        self._broker = broker
        reader = loadgen("fetch", topic, PARTITIONS, 1, 1 << 20, total_bytes)(broker.port)
        self._command = _on(_processor(), ["nice", "-n", "19", *reader])
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        before = self._fetched()
        self._thread.start()
        wait_until(lambda: self._fetched() > before, "the reader reads")
        time.sleep(SETTLE_S)
        self._before, self._began_s = self._fetched(), time.monotonic()
        return self

    def mb_per_s(self, others_bytes: int) -> float:
        return (self._fetched() - self._before - others_bytes) / (time.monotonic() - self._began_s) / 1e6

    def _fetched(self) -> float:
        return metric(self._broker, "bytesout_total")

    def _read(self) -> None:
        while not self._over.is_set():
            reader = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
            while reader.poll() is None and not self._over.wait(LOOK_S):
                pass
            reader.kill()
            reader.wait()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _processor() -> set[int]:
    """One for the broker and all its clients. To wake somebody on another one takes a virtual machine anything up to a
    millisecond: that would be measured, and with nobody else there it would be measured most."""
    return {min(os.sched_getaffinity(0))}


def _pin(process_id: int, processors: set[int]) -> None:
    """All threads that it has, and those that they start."""
    for thread in os.listdir(f"/proc/{process_id}/task"):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), processors)


def _on(processors: set[int], command: list[str]) -> list[str]:
    return ["taskset", "-c", ",".join(map(str, sorted(processors))), *command]


def _run(broker: BrokerProcess, processors: set[int], mode: str, *arguments: object) -> dict[str, Any]:
    command = _on(processors, loadgen(mode, *arguments)(broker.port))
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
