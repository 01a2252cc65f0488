"""`headrace serve` and `headrace node withdraw` with real processes."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import PATIENCE_S, PROGRAM, Done, headrace_process, is_alive, state_of, wait_until
from tests.servers.etcd import EtcdCluster, EtcdMissing


class Serving:
    """A running `headrace serve --json`."""

    def __init__(self, process: "subprocess.Popen[bytes]", errors: Path) -> None:
        self.process = process
        self.errors = errors
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, errors.read_text()
        self.ready: dict[str, Any] = json.loads(line)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(scratch: Path, data: Path, metadata: str, *arguments: str) -> Iterator[Serving]:
    errors = scratch / f"{data.name}.stderr"
    command = [PROGRAM, "serve", "--node-id", "1", "--listen", "127.0.0.1:0", "--data", str(data)]
    with errors.open("ab") as log:
        process = subprocess.Popen(
            [*command, "--metadata", metadata, "--set", "disk.reserve.bytes=0", "--json", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        yield Serving(process, errors)
    finally:
        if is_alive(process.pid):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def withdraw(data: Path, metadata: str) -> Done:
    return headrace_process("node", "withdraw", "--data", str(data), "--metadata", metadata)


@pytest.fixture(params=["sqlite", "etcd"])
def metadata(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'meta.db'}"
        return
    try:
        etcd = EtcdCluster(tmp_path / "etcd", 1)
    except EtcdMissing as missing:
        pytest.skip(str(missing))
    yield f"etcd://{','.join(etcd.addresses)}"
    etcd.close()


def test_a_node_that_died_is_withdrawn_once_and_a_living_one_never(tmp_path: Path, metadata: str) -> None:
    data = tmp_path / "data"
    with serving(tmp_path, data, metadata) as node:
        refused = withdraw(data, metadata)
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert refused.said == f"headrace: A node is running on {data}: stop it, then it withdraws itself"
        assert len(refused.stderr.splitlines()) == 1
        node.kill()
        done = withdraw(data, metadata)
        assert (done.returncode, done.stdout) == (0, b"Node 1 is withdrawn: others take over what it led\n")
        again = withdraw(data, metadata)
        assert again.stdout == b"Node 1 is not registered: there is nothing to withdraw\n"
        assert again.returncode == 0
    with serving(tmp_path, data, metadata) as node:
        late = withdraw(data, metadata)
        assert late.returncode == 1  # after a quick restart it changes nothing
        node.process.terminate()
        assert node.process.wait(PATIENCE_S) == 0
    assert withdraw(data, metadata).stdout == b"Node 1 is not registered: there is nothing to withdraw\n"


def test_a_directory_without_a_node_cannot_be_withdrawn(tmp_path: Path) -> None:
    done = withdraw(tmp_path / "nothing", f"sqlite:{tmp_path / 'meta.db'}")
    assert (done.returncode, done.stdout) == (1, b"")
    assert "is no data directory of a node" in done.said
    assert not (tmp_path / "nothing").exists()


def test_a_store_that_is_not_there_is_no_proof_that_nothing_is_registered(tmp_path: Path) -> None:
    """Somebody mistyped its name: a success would hide it, and others would wait for the end of the session."""
    data, elsewhere = tmp_path / "data", tmp_path / "mistyped.db"
    with serving(tmp_path, data, f"sqlite:{tmp_path / 'meta.db'}") as node:
        node.kill()
        done = withdraw(data, f"sqlite:{elsewhere}")
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.said == f"headrace: Node 1 was not withdrawn: {elsewhere} does not exist"
        assert not elsewhere.exists()


def pause_outside_of_the_store(pid: int, file: Path) -> None:
    """A process that stands still in the middle of a transaction keeps every other from writing."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: state_of(pid) == "T", "the node stands still")
        with contextlib.closing(sqlite3.connect(file, timeout=0.1)) as probe:
            try:
                probe.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)


def test_a_node_whose_number_another_process_has_ends_with_exit_code_1(tmp_path: Path) -> None:
    metadata, short = f"sqlite:{tmp_path / 'meta.db'}", ("--set", "broker.session.timeout.ms=1000")
    with serving(tmp_path, tmp_path / "one", metadata, *short) as one:
        pause_outside_of_the_store(one.process.pid, tmp_path / "meta.db")
        with serving(tmp_path, tmp_path / "two", metadata, *short) as two:
            os.kill(one.process.pid, signal.SIGCONT)
            assert one.process.wait(PATIENCE_S) == 1
            assert "headrace: Another process is registered as node 1; give every node" in one.errors.read_text()
            two.process.terminate()
            assert two.process.wait(PATIENCE_S) == 0


def test_settings_come_from_a_file_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    file.write_text("# of this machine\nnum.partitions = 5\nlog.retention.hours=7\nbroker.rack=from file\n")
    metadata = f"sqlite:{tmp_path / 'meta.db'}"
    options = ("--config", str(file), "--rack", "b", "--set", "log.retention.hours=8")
    with serving(tmp_path, tmp_path / "data", metadata, *options) as node:
        command = node.ready["command"]
        given = {command[at + 1] for at, word in enumerate(command) if word == "--set"}
        assert given == {"num.partitions=5", "log.retention.hours=8", "broker.rack=b", "disk.reserve.bytes=0"}
        cluster = headrace_process("cluster", "status", "--json", "--bootstrap", node.ready["address"])
        assert json.loads(cluster.stdout)["nodes"][0]["rack"] == "b"


@pytest.mark.parametrize(
    ("content", "code", "sentence"),
    [
        (b"num.partition=5", 2, "Unknown broker setting 'num.partition'; did you mean num.partitions"),
        (b"num.partitions=\\u00", 2, "is no file of settings, one key=value on each line"),
        (b"\xff=1", 2, "is no file of settings, one key=value on each line"),
        (None, 1, "No such file or directory"),
    ],
)
def test_a_file_of_settings_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, content: bytes | None, code: int, sentence: str
) -> None:
    file = tmp_path / "node.properties"
    if content is not None:
        file.write_bytes(content)
    node = ("--node-id", "1", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    done = headrace_process("serve", *node, "--metadata", f"sqlite:{tmp_path / 'm'}", "--config", str(file))
    assert (done.returncode, done.stdout) == (code, b"")
    assert sentence in done.said
    assert str(file) in done.said
