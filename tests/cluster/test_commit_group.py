"""Two drivers of one query while coordinators and drivers are killed with -9, and drivers are paused in between."""

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace.core.internal_topics import TRANSACTION_STATE, partition_of
from headrace.core.transactional_id import query_key
from headrace.sim.batches import TOPIC, Row, row_of, rows_of
from tests.cluster.batch_driver import PARTITIONS, QUERY, SCOPE, last_of
from tests.cluster.ends import end_of
from tests.servers.cluster import HeadraceCluster

BATCHES = 60
DEEDS = ("kill the coordinator", "kill a driver", "pause a driver", "kill the coordinator and a driver")
STATE_PARTITIONS = 50
ROWS = [row for batch_id in range(BATCHES) for task in rows_of(batch_id) for row in task]
WAIT_S_MAX = 240.0
SEED = 7


class Drivers:
    """Each is started again when it was killed, as another run on the same checkpoint."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self.checkpoint = directory / "checkpoint"
        self.checkpoint.touch()
        self.runs = 0
        self.running = [self._start(), self._start()]

    def _start(self) -> "subprocess.Popen[bytes]":
        self.runs += 1
        command = [sys.executable, "-m", "tests.cluster.batch_driver", self._bootstrap, f"run-{self.runs}"]
        with (self._directory / f"driver-{self.runs}.log").open("wb") as log:
            return subprocess.Popen(
                [*command, str(self.checkpoint), str(BATCHES)], stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self, at: int) -> None:
        self.running[at].kill()
        self.running[at].wait()
        self.running[at] = self._start()

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait()

    def logs(self) -> str:
        return "\n".join(path.read_text()[-1_000:] for path in sorted(self._directory.glob("driver-*.log")))


def until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not in {WAIT_S_MAX:.0f} s: {what()}"
        time.sleep(0.02)


@pytest.mark.timeout(900)
def test_every_batch_is_there_once_and_whole_whoever_died(cluster: HeadraceCluster, tmp_path: Path) -> None:
    """Tcg-1, 2 and 4. What drivers leave open when they die times out long after the test: nobody waits for it."""
    cluster.create_topic(TOPIC, PARTITIONS, configs={"min.insync.replicas": "2"})
    drivers = Drivers(cluster.bootstrap, tmp_path)
    random = Random(SEED)
    rounds = 8

    def has_come_to(batch_id: int) -> None:
        until(lambda: last_of(drivers.checkpoint) >= batch_id, drivers.logs)

    try:
        for number in range(rounds):
            has_come_to((number + 1) * BATCHES // (rounds + 2))
            time.sleep(random.uniform(0, 0.1))  # somewhere in a batch
            _do(DEEDS[number % len(DEEDS)], cluster, drivers, random, has_come_to)
        has_come_to(BATCHES - 1)
        for process in drivers.running:
            assert process.wait(WAIT_S_MAX) == 0, drivers.logs()
        found = _committed(cluster.bootstrap)
    finally:
        drivers.close()
    assert Counter(found) == dict.fromkeys(ROWS, 1)
    lines = drivers.checkpoint.read_text().splitlines()
    firsts = Counter(int(line.split()[0]) for line in lines if line.endswith("first"))
    assert max(firsts.values()) == 1, "nobody commits what is committed"
    print(f"{BATCHES} batches, {drivers.runs} runs, {len(lines) - len(firsts)} times decided before")


def _do(
    deed: str, cluster: HeadraceCluster, drivers: Drivers, random: Random, has_come_to: Callable[[int], None]
) -> None:
    at = random.randrange(2)
    if deed == "pause a driver":
        drivers.running[at].send_signal(signal.SIGSTOP)
        has_come_to(min(last_of(drivers.checkpoint) + 4, BATCHES - 1))
        drivers.running[at].send_signal(signal.SIGCONT)
        return
    if "driver" in deed:
        drivers.kill(at)
    if "coordinator" in deed:
        index = partition_of(query_key(SCOPE, QUERY), STATE_PARTITIONS)
        victim = cluster.leader_of(TRANSACTION_STATE, index)
        cluster.nodes[victim].kill()
        cluster.withdraw(victim)
        cluster.nodes[victim].start()


def _committed(bootstrap: str) -> list[Row]:
    """By a client of another house: all that is committed, up to the end of the logs."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "none"}
    partitions = [TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)]
    everything = Consumer({**settings, "isolation.level": "read_uncommitted"})
    ends = [end_of(everything, partition) for partition in partitions]
    everything.close()
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    found: list[Row] = []

    def read() -> bool:
        for message in consumer.consume(1_000, timeout=0.5):
            if message.error() is None:
                found.append(row_of(message.value() or b""))
        stable = [end_of(consumer, partition) for partition in partitions]
        return stable == ends and len(found) >= len(ROWS)

    try:
        consumer.assign(partitions)
        until(read, lambda: f"{len(found)} rows are read")
        for _ in range(4):
            read()  # what comes in the next moments, too: there should be nothing more
    finally:
        consumer.close()
    return found
