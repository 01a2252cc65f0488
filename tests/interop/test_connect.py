"""Kafka Connect in distributed mode: lines of a file become records exactly once, and records lines of another."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.servers.choice import chosen
from tests.servers.cluster import HeadraceCluster, running_cluster
from tests.servers.connect import ConnectWorker

WAIT_S_MAX = 240.0
TOPIC = "lines"

pytestmark = pytest.mark.skipif(chosen() != "headrace", reason="it starts three nodes of Headrace by itself")


def until(condition: Callable[[], object], what: str, worker: ConnectWorker) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not in {WAIT_S_MAX:.0f} s: {what}\n{worker.log_tail()}"
        time.sleep(0.2)


def append(file: Path, first: int, count: int) -> list[str]:
    lines = [f"line {number:06d}" for number in range(first, first + count)]
    with file.open("a") as out:
        out.write("".join(f"{line}\n" for line in lines))
    return lines


class Reader:
    """Of what is committed, from the beginning."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self.values: list[str] = []

    def has(self, count: int) -> bool:
        for message in self._consumer.consume(1_000, timeout=0.2):
            assert message.error() is None, message.error()
            self.values.append((message.value() or b"").decode())
        return len(self.values) >= count

    def close(self) -> None:
        self._consumer.close()


def kill_and_restart_leader(cluster: HeadraceCluster) -> None:
    victim = cluster.leader_of(TOPIC)
    cluster.nodes[victim].kill()
    cluster.withdraw(victim)
    cluster.until_led_by_another(victim, TOPIC)
    cluster.nodes[victim].start()


@pytest.mark.timeout(600)
def test_a_file_becomes_records_once_and_records_a_file_through_restarts_of_worker_and_broker(tmp_path: Path) -> None:
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    with running_cluster(tmp_path / "nodes") as cluster:
        cluster.create_topic(TOPIC, 1, configs={"min.insync.replicas": "2"})
        worker = ConnectWorker(tmp_path / "connect", cluster.bootstrap, copies=3)
        reader = Reader(cluster.bootstrap)
        try:
            wanted = append(source, 0, 500)
            worker.start()
            reads = {"connector.class": "FileStreamSource", "tasks.max": "1", "file": str(source), "topic": TOPIC}
            writes = {"connector.class": "FileStreamSink", "tasks.max": "1", "file": str(sink), "topics": TOPIC}
            until(lambda: worker.put("source", {**reads, "exactly.once.support": "required"}), "source is made", worker)
            until(lambda: worker.put("sink", writes), "the sink is made", worker)
            until(lambda: reader.has(len(wanted)), "the first lines are records", worker)

            wanted += append(source, len(wanted), 500)
            worker.kill()
            wanted += append(source, len(wanted), 500)
            worker.start()
            until(lambda: reader.has(len(wanted)), "a killed worker goes on where it was", worker)

            wanted += append(source, len(wanted), 500)
            kill_and_restart_leader(cluster)
            wanted += append(source, len(wanted), 500)
            until(lambda: reader.has(len(wanted)), "it goes on after the death of a broker", worker)

            assert reader.values == wanted, "each line once, in order"
            # A sink writes at least once: what it wrote between two commits, it may write again.
            until(lambda: set(wanted) <= set(sink.read_text().splitlines()), "the sink wrote all", worker)
            worker.until_running("source", WAIT_S_MAX)
            worker.until_running("sink", WAIT_S_MAX)
        finally:
            worker.kill()
            reader.close()
