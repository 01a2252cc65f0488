"""Several nodes of Headrace as processes of this machine: killed, paused, started again, and looked into."""

import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from headrace.model import TopicPartition
from headrace.sim.history import Replica
from headrace.wire.messages.metadata import MetadataResponse
from tests.servers.caller import Caller
from tests.servers.process import BrokerProcess, lasting_port

WAIT_S_MAX = 120.0
ANSWER_S_MAX = 2.0
SHORT_LEASE = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
PROGRAM = str(Path(sys.executable).with_name("headrace"))


class Seen(NamedTuple):
    """A partition as a node describes it."""

    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


class Page(NamedTuple):
    status: int
    text: str


def headrace_node(
    directory: Path, node_id: int, metadata: str, settings: Mapping[str, str], host: str = "127.0.0.1"
) -> BrokerProcess:
    """`headrace serve` with the data in `directory`, on the same ports whenever it is started."""
    port, metrics_port = lasting_port(), lasting_port()
    command = [PROGRAM, "serve", "--node-id", str(node_id), "--listen", f"{host}:{port}"]
    command += ["--data", str(directory), "--metadata", metadata, "--metrics", f"127.0.0.1:{metrics_port}"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    return BrokerProcess(
        name=f"Node {node_id}",
        port=port,
        command=command,
        partitions=directory / "logs",
        log_path=directory.with_suffix(".log"),
        metrics_port=metrics_port,
        host=host,
    )


class HeadraceCluster:
    def __init__(
        self, directory: Path, metadata: str, settings: Mapping[str, str] | None = None, size: int = 3
    ) -> None:
        """`nodes` may be replaced by others before the start."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.metadata = metadata
        given = {**SHORT_LEASE, **(settings or {})}
        self.nodes = {id_: headrace_node(directory / f"n{id_}", id_, metadata, given) for id_ in range(1, size + 1)}
        self._admin: AdminClient | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    # Deeds.

    def start(self, *node_ids: int) -> None:
        """All nodes, or those; returns when all nodes know each other."""
        chosen = [self.nodes[node_id] for node_id in node_ids or self.nodes]
        for node in chosen:
            node.launch()
        for node in chosen:
            node.wait_ready()
        self.until(lambda: all(self._members(by) == set(self.nodes) for by in self.nodes), "all nodes know each other")

    def pause(self, node_id: int) -> None:
        self.nodes[node_id].signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self.nodes[node_id].signal(signal.SIGCONT)

    def withdraw(self, node_id: int) -> None:
        """What a supervisor does that has waited for the process of a node: it tells the others of the death."""
        data = str(self.directory / f"n{node_id}")
        self._run("node", "withdraw", "--data", data, "--metadata", self.metadata)

    def stop(self) -> list[int]:
        for node in self.nodes.values():
            node.signal(signal.SIGTERM)
        return [node.wait() for node in self.nodes.values()]

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()

    # What it looks like from outside.

    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        return self._admin

    def create_topic(
        self, topic: str, partitions: int, copies: int = 3, configs: Mapping[str, str] | None = None
    ) -> None:
        created = self.admin().create_topics([NewTopic(topic, partitions, copies, config=dict(configs or {}))])
        created[topic].result(WAIT_S_MAX)
        self.until(
            lambda: all(len(self.seen(topic, by)) == partitions for by in self.nodes), f"every node knows {topic}"
        )

    def call(self, node_id: int, answer_s_max: float = 10.0) -> Caller:
        node = self.nodes[node_id]
        return Caller(node.host, node.port, answer_s_max)

    def describe(self, *topics: str, by: int | None = None) -> MetadataResponse | None:
        """As that node has them, or the first that answers; without topics only of the nodes."""
        for node_id in self.nodes if by is None else (by,):
            try:
                with self.call(node_id, ANSWER_S_MAX) as caller:
                    return caller.metadata(*topics)
            except OSError:
                continue
        return None

    def seen(self, topic: str, by: int | None = None) -> dict[int, Seen]:
        answer = self.describe(topic, by=by)
        partitions = [] if answer is None else answer.topics[0].partitions
        return {
            one.partition_index: Seen(one.leader_id, tuple(one.isr_nodes), tuple(one.replica_nodes))
            for one in partitions
        }

    def controller_id(self, by: int | None = None) -> int:
        """-1 when there is none, or nobody answers."""
        answer = self.describe(by=by)
        return -1 if answer is None else answer.controller_id

    def _members(self, by: int) -> set[int]:
        answer = self.describe(by=by)
        return set() if answer is None else {broker.node_id for broker in answer.brokers}

    def leader_of(self, topic: str, partition: int = 0, by: int | None = None) -> int:
        """-1 when there is none, or nobody answers."""
        found = self.seen(topic, by).get(partition)
        return found.leader if found is not None else -1

    def page(self, node_id: int, path: str) -> Page:
        url = f"http://127.0.0.1:{self.nodes[node_id].metrics_port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return Page(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Page(error.code, error.read().decode())

    # Waiting.

    def until(self, condition: Callable[[], object], what: str, within_s: float = WAIT_S_MAX) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(f"{node.name}: {node.log_tail()}" for node in self.nodes.values())
                raise AssertionError(f"not in {within_s:.0f} s: {what}\n{logs}")
            time.sleep(0.02)

    def until_led_by_another(self, than: int, topic: str, partition: int = 0, within_s: float = WAIT_S_MAX) -> int:
        others = [node_id for node_id in self.nodes if node_id != than]

        def moved() -> bool:
            return all(self.leader_of(topic, partition, by) not in (-1, than) for by in others)

        self.until(moved, f"another node than {than} leads {topic}-{partition}", within_s)
        return self.leader_of(topic, partition, others[0])

    def until_whole(self, topic: str) -> None:
        """Every replica of every partition is in its ISR, as every node sees it."""

        def whole() -> bool:
            views = [self.seen(topic, by) for by in self.nodes]
            return all(
                view and all(sorted(one.isr) == sorted(one.replicas) and one.leader >= 0 for one in view.values())
                for view in views
            )

        self.until(whole, f"every ISR of {topic} is whole")

    # Files.

    def replicas(self, topic: str, partitions: int) -> list[Replica]:
        """The logs as they stand in the files of each node."""
        return [
            replica_on_disk(node_id, node.partitions, TopicPartition(topic, at))
            for at in range(partitions)
            for node_id, node in self.nodes.items()
        ]

    def until_equal(self, topic: str, partitions: int) -> None:
        """The logs of all replicas are the same, byte by byte."""

        def equal() -> bool:
            found = self.replicas(topic, partitions)
            return len({(*replica[2:], replica.partition) for replica in found}) == partitions

        self.until(equal, f"the replicas of {topic} are equal")

    def _run(self, *arguments: str) -> None:
        subprocess.run([PROGRAM, *arguments], check=True, capture_output=True, timeout=30)


def replica_on_disk(node_id: int, partitions: Path, partition: TopicPartition) -> Replica:
    """The log of one replica, as a digest of the bytes of its segments; the end is that of its last batch."""
    directory = partitions / f"{partition.topic}-{partition.partition}"
    segments = sorted(directory.glob("*.log"))
    content = b"".join(path.read_bytes() for path in segments)
    start = int(segments[0].stem) if segments else 0
    return Replica(partition, node_id, start, _end_offset(content, start), sha256(content).hexdigest())


def _end_offset(content: bytes, end: int) -> int:
    at = 0
    while at + 61 <= len(content):
        base, size = int.from_bytes(content[at : at + 8], "big"), int.from_bytes(content[at + 8 : at + 12], "big")
        end = base + int.from_bytes(content[at + 23 : at + 27], "big") + 1
        at += 12 + size
    return end


@contextmanager
def running_cluster(
    directory: Path, metadata: str = "", settings: Mapping[str, str] | None = None, size: int = 3
) -> Iterator[HeadraceCluster]:
    """Starts it; at the end kills what is left, looks into the logs of the nodes, and if all is well takes the files
    away."""
    cluster = HeadraceCluster(directory, metadata or f"sqlite:{directory / 'metadata.db'}", settings, size)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
    for node in cluster.nodes.values():
        assert "Traceback" not in node.log_text(), node.log_text()
    shutil.rmtree(directory)
