"""`headrace up --brokers 3`: a cluster of real processes, one of which is killed."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.cli.programs import PATIENCE_S, Up, headrace_process, is_alive, running_up, wait_until
from tests.servers.process import lists_itself

PARTITIONS = 6


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    with running_up(tmp_path, "--brokers", "3") as running:
        yield running


def run(up: Up, *command: str) -> dict[str, Any]:
    done = headrace_process(*command, "--json", "--bootstrap", up.bootstrap)
    assert done.returncode == 0, done.stderr.decode()
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def status(up: Up) -> dict[str, Any]:
    return run(up, "cluster", "status", "orders")


def produce(producer: Producer, label: str) -> dict[int, float]:
    """One record for each partition; when each was acknowledged."""
    acknowledged: dict[int, float] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged[message.partition() or 0] = time.monotonic()

    for partition in range(PARTITIONS):
        producer.produce("orders", label.encode(), partition=partition, on_delivery=note)
    assert producer.flush(PATIENCE_S) == 0
    return acknowledged


def test_the_leader_is_killed_and_the_others_go_on_until_it_is_back(
    up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(up, "topic", "create", "orders", "--partitions", str(PARTITIONS))["partitions"] == PARTITIONS
    producer = Producer({"bootstrap.servers": up.bootstrap, "acks": "all", "enable.idempotence": True})
    assert len(produce(producer, "before")) == PARTITIONS
    before = status(up)
    assert [partition["replicas"] for partition in before["partitions"] if len(partition["replicas"]) != 3] == []
    leader = before["partitions"][0]["leader"]
    led = [partition["partition"] for partition in before["partitions"] if partition["leader"] == leader]

    killed_s = time.monotonic()
    os.kill(up.nodes[leader]["pid"], signal.SIGKILL)
    acknowledged = produce(producer, "after")
    with capsys.disabled():
        elapsed_s = max(acknowledged[partition] for partition in led) - killed_s
        print(f"\nkill -9 of a leader to the next acknowledged write: {elapsed_s:.2f} s (target: under 1 s)")

    wait_until(lambda: f"node {leader} was ended by SIGKILL; to start it again:" in up.said(), "the death is reported")
    assert f"--node-id {leader} " in up.said()
    assert up.process.poll() is None
    now = status(up)
    assert leader not in [node["id"] for node in now["nodes"]]
    assert all(partition["leader"] not in (leader, None) for partition in now["partitions"])
    assert now["summary"]["under_replicated"] == PARTITIONS

    with (tmp_path / "again").open("wb") as log:
        again = subprocess.Popen(up.nodes[leader]["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until(lambda: status(up)["summary"]["under_replicated"] == 0, "every replica is in sync again")
        elected = run(up, "cluster", "elect", "--topic", "orders")["elections"]
        assert {e["error"] for e in elected} <= {None, "ELECTION_NOT_NEEDED"}
        assert {p["leader"] for p in status(up)["partitions"] if p["partition"] in led} == {leader}
        sessions = run(up, "cluster", "sessions")["sessions"]
        assert {(s["node"], s["replica_id"]) for s in sessions} >= {
            (a, b) for a in up.nodes for b in up.nodes if a != b
        }
        assert run(up, "cluster", "failed") == {"failed": []}
        assert len(produce(producer, "again")) == PARTITIONS
    finally:
        again.terminate()
        assert again.wait(PATIENCE_S) == 0
    assert up.stop() == 0


def test_all_nodes_stop_cleanly_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_up(tmp_path, "--brokers", "3", "--data", str(tmp_path / "kept")) as up:
        run(up, "topic", "create", "orders", "--partitions", "100")
        asked_s = time.monotonic()
        assert up.stop(signal.SIGINT) == 0
        with capsys.disabled():
            print(f"\nthree nodes with 100 partitions stopped in {time.monotonic() - asked_s:.2f} s")
        assert not any(is_alive(node["pid"]) for node in up.nodes.values())
        # When everybody leaves nobody can take over: nobody waits for that either.
        assert "still leads partitions that others could lead" not in up.said()
        for node in up.nodes.values():
            assert (Path(node["data"]) / "logs" / ".kafka_cleanshutdown").exists()


def test_a_node_that_somebody_paused_stops_with_the_others(tmp_path: Path) -> None:
    with running_up(tmp_path, "--brokers", "2") as up:
        os.kill(up.nodes[2]["pid"], signal.SIGSTOP)
        assert up.stop(signal.SIGINT) == 0
        assert not any(is_alive(node["pid"]) for node in up.nodes.values())


def test_nodes_listen_on_ports_in_a_row(tmp_path: Path) -> None:
    port = ports_in_a_row()
    with running_up(tmp_path, "--brokers", "2", "--port", str(port)) as up:
        assert up.bootstrap == f"127.0.0.1:{port},127.0.0.1:{port + 1}"
        assert [node["id"] for node in up.ready["nodes"]] == [1, 2]
        assert lists_itself(port)
        assert lists_itself(port + 1)
        created = run(up, "topic", "create", "orders")
        assert created["partitions"] == 1
        (partition,) = status(up)["partitions"]
        assert sorted(partition["replicas"]) == [1, 2]
        assert up.stop() == 0


def test_one_node_that_cannot_start_ends_all(tmp_path: Path) -> None:
    port = ports_in_a_row()
    with socket.create_server(("127.0.0.1", port + 1)):
        done = headrace_process("up", "--brokers", "2", "--json", "--port", str(port), "--data", str(tmp_path / "kept"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert f"headrace: Node 2 cannot start on 127.0.0.1:{port + 1}" in done.stderr.decode()
    assert not lists_itself(port)


def ports_in_a_row() -> int:
    """The first of two free ones."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port: int = first.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
            return port
