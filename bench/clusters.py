"""Three nodes of Apache Kafka or of Headrace on this machine, driven and measured as one."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.raw import RawClient
from bench.results import HEADRACE, KAFKA
from headrace.cli.withdraw import withdraw_dead
from tests.servers.kafka import kafka_nodes
from tests.servers.process import CLOCK_TICKS_PER_S, PAGE_BYTES, BrokerFailed, lasting_port

NODES = 3
WAIT_S_MAX = 300.0
STOP_S_MAX = 20.0
LOOK_S = 0.01
LOOK_AT_MANY_S = 0.25
"""Between two looks at a topic of thousands of partitions: describing them is work for the node that is asked."""
MANY_PARTITIONS = 1_000


class Nodes(ABC):
    """Node n listens on `ports[n]`. What is started again has the data of the last run."""

    name: str
    ports: dict[int, int]

    @property
    def port(self) -> int:
        return next(iter(self.ports.values()))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    @abstractmethod
    def pids(self) -> dict[int, int]: ...

    @abstractmethod
    def launch(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """As a user stops it."""

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def die(self, node_id: int) -> None:
        """kill -9 of one node; returns at once."""

    @abstractmethod
    def revive(self, node_id: int) -> None:
        """Starts the node that died."""

    def start(self) -> float:
        """Seconds until every node answers Metadata and tells of all nodes."""
        began = time.monotonic()
        self.launch()
        self.wait_ready()
        return time.monotonic() - began

    def wait_ready(self) -> None:
        wait_until(lambda: all(map(_tells_of_all, self.ports.values())), f"{NODES} nodes of {self.name} answer")

    def wait_whole(self, topic: str, partitions: int) -> None:
        """Until every node says that every replica of every partition is in its ISR."""

        look_s = LOOK_AT_MANY_S if partitions > MANY_PARTITIONS else LOOK_S
        for port in self.ports.values():
            wait_until(partial(_is_whole, port, topic, partitions), f"every ISR of {topic} is whole", look_s)

    def cpu_s(self) -> float:
        """Of all nodes, in the kernel's ticks of 10 ms."""
        return sum(_cpu_s(pid) for pid in self.pids.values())

    def rss_bytes(self) -> int:
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids.values()) * PAGE_BYTES

    def pause(self, node_id: int) -> None:
        os.kill(self.pids[node_id], signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        os.kill(self.pids[node_id], signal.SIGCONT)


class KafkaNodes(Nodes):
    name = KAFKA

    def __init__(self, directory: Path) -> None:
        self._nodes = dict(enumerate(kafka_nodes(directory, NODES), 1))
        self.ports = {node_id: node.port for node_id, node in self._nodes.items()}

    @property
    def pids(self) -> dict[int, int]:
        return {node_id: node.pid for node_id, node in self._nodes.items()}

    def launch(self) -> None:
        for node in self._nodes.values():
            node.launch()

    def stop(self) -> None:
        """Without a quorum the last ones may wait for long: then they are killed."""
        for node in self._nodes.values():
            node.signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S_MAX
        while time.monotonic() < deadline and any(_is_running(node.process) for node in self._nodes.values()):
            time.sleep(LOOK_S)
        self.kill()

    def kill(self) -> None:
        for node in self._nodes.values():
            node.kill()

    def die(self, node_id: int) -> None:
        self._nodes[node_id].signal(signal.SIGKILL)

    def revive(self, node_id: int) -> None:
        self._nodes[node_id].wait()
        self._nodes[node_id].launch()
        self.wait_ready()


class HeadraceNodes(Nodes):
    """`headrace up --brokers 3`. A node that died is started again by the command that `up` told, as a child of this
    process, which then does what `up` would: it waits for it, and withdraws it when it dies."""

    name = HEADRACE

    def __init__(self, directory: Path) -> None:
        first = _adjacent_ports(NODES)
        self.ports = {node_id: first + node_id - 1 for node_id in range(1, NODES + 1)}
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._up: subprocess.Popen[bytes] | None = None
        self._told: dict[int, dict[str, Any]] = {}
        self._revived: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> dict[int, int]:
        revived = {node_id: process.pid for node_id, process in self._revived.items()}
        return {node_id: told["pid"] for node_id, told in self._told.items()} | revived

    def launch(self) -> None:
        program = str(Path(sys.executable).with_name("headrace"))
        command = [program, "up", "--brokers", str(NODES), "--port", str(self.port), "--json"]
        self._up = self._run([*command, "--data", str(self._directory / "data")])
        assert self._up.stdout is not None
        line = self._up.stdout.readline()
        if not line:
            raise BrokerFailed(f"headrace up ended with {self._up.wait()}: see {self._directory / 'log'}")
        self._told = {node["id"]: node for node in json.loads(line)["nodes"]}

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Also those that are paused, and would not stop."""
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._end(signal.SIGKILL)

    def die(self, node_id: int) -> None:
        os.kill(self.pids[node_id], signal.SIGKILL)
        if node_id in self._revived:
            self._revived.pop(node_id).wait()
            failure = withdraw_dead(self._told[node_id]["data"], f"sqlite:{self._directory}/data/metadata/headrace.db")
            assert not failure, failure

    def revive(self, node_id: int) -> None:
        self._revived[node_id] = self._run(self._told[node_id]["command"])
        self.wait_ready()

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._directory / "log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )

    def _end(self, number: signal.Signals) -> None:
        for process in self._revived.values():
            process.send_signal(number)
            process.wait(WAIT_S_MAX)
        self._revived.clear()
        if self._up is not None:
            self._up.send_signal(signal.SIGTERM)
            self._up.wait(WAIT_S_MAX)
        self._up, self._told = None, {}


def wait_until(condition: Callable[[], bool], what: str, look_s: float = LOOK_S) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {WAIT_S_MAX:.0f} s: {what}")
        time.sleep(look_s)


def _tells_of_all(port: int) -> bool:
    try:
        with RawClient(port) as client:
            return client.brokers() == NODES
    except OSError:
        return False


def _is_whole(port: int, topic: str, partitions: int) -> bool:
    try:
        with RawClient(port) as client:
            described = client.describe(topic)
    except OSError:
        return False
    return len(described) == partitions and all(one.isr_size == NODES for one in described.values())


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S


def _is_running(process: subprocess.Popen[bytes] | None) -> bool:
    return process is not None and process.poll() is None


def _adjacent_ports(count: int) -> int:
    """The first of so many that are free now."""
    while True:
        first = lasting_port()
        if all(_is_free(port) for port in range(first, first + count)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
