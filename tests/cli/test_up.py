"""`headrace up` with real processes."""

import os
import signal
import socket
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.cli.programs import PATIENCE_S, PROGRAM, headrace_process, is_alive, running_up, wait_until
from tests.servers.process import lists_itself


def test_one_line_of_json_says_everything_about_the_nodes(tmp_path: Path) -> None:
    with running_up(tmp_path, "--set", "num.partitions=3", "--data", str(tmp_path / "kept")) as up:
        node = up.node
        assert list(up.ready) == ["bootstrap", "nodes"]
        assert list(node) == ["id", "pid", "address", "metrics", "data", "command", "broker_epoch"]
        assert (node["id"], node["address"], node["data"]) == (1, up.bootstrap, str(tmp_path / "kept" / "node-1"))
        assert node["command"][1] == "serve"
        assert node["command"][-2:] == ["--set", "num.partitions=3"]
        assert lists_itself(int(up.bootstrap.rpartition(":")[2]))
        with urlopen(node["metrics"], timeout=PATIENCE_S) as page:
            assert b"headrace_" in page.read()
        assert up.stop() == 0
        assert up.process.stdout is not None
        assert up.process.stdout.read() == b""
    assert (tmp_path / "kept" / "metadata" / "headrace.db").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_nodes_cleanly_and_ephemeral_data_goes(tmp_path: Path, number: signal.Signals) -> None:
    with running_up(tmp_path) as up:
        directory = Path(up.node["data"]).parent
        assert directory.exists()
        assert up.stop(number) == 0
        assert not is_alive(up.pid)
        assert not directory.exists()


def test_a_node_that_dies_is_reported_and_its_command_starts_it_again(tmp_path: Path) -> None:
    with running_up(tmp_path) as up:
        os.kill(up.pid, signal.SIGKILL)
        wait_until(lambda: "node 1 was ended by SIGKILL" in up.said(), "the death is reported")
        assert up.process.poll() is None
        port = int(up.bootstrap.rpartition(":")[2])
        assert not lists_itself(port)
        with (tmp_path / "again").open("wb") as log:
            again = subprocess.Popen(up.node["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_until(lambda: lists_itself(port), "the node answers again")
        finally:
            again.terminate()
            assert again.wait(PATIENCE_S) == 0
        assert up.stop() == 0


def test_a_second_interrupt_kills_a_node_that_does_not_stop(tmp_path: Path) -> None:
    """It cannot take its registration back, and waits for that, because somebody has locked the metadata."""
    with running_up(tmp_path) as up:
        port, metadata = int(up.bootstrap.rpartition(":")[2]), Path(up.node["data"]).parent / "metadata" / "headrace.db"
        with closing(sqlite3.connect(metadata, isolation_level=None)) as intruder:
            intruder.execute("BEGIN IMMEDIATE")
            up.process.send_signal(signal.SIGINT)
            wait_until(lambda: not lists_itself(port), "the node does not serve any more")
            up.process.send_signal(signal.SIGINT)
            up.process.wait(PATIENCE_S)
            assert not is_alive(up.pid)
        assert "ends with its lease" not in up.said()  # as it says when it has waited for long enough


def test_nodes_stop_when_their_parent_is_killed(tmp_path: Path) -> None:
    with running_up(tmp_path, "--data", str(tmp_path / "kept")) as up:
        up.process.kill()
        up.process.wait(PATIENCE_S)
        wait_until(lambda: not is_alive(up.pid), "the orphan has stopped")


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = headrace_process("up", "--ephemeral", "--json", "--port", str(port))
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.said.startswith(f"headrace: Node 1 cannot start on 127.0.0.1:{port} with ")
    assert done.said.endswith(": Address already in use")
    assert len(done.stderr.splitlines()) == 1


def test_a_data_directory_in_use_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with running_up(tmp_path, "--data", str(tmp_path / "kept")):
        done = headrace_process("up", "--data", str(tmp_path / "kept"), "--port", "0")
    assert (done.returncode, done.stdout) == (1, b"")
    assert "node-1" in done.said
    assert len(done.stderr.splitlines()) == 1


def test_ephemeral_nodes_keep_no_reserve_for_a_full_disk_unless_told(tmp_path: Path) -> None:
    for told, size in (((), 0), (("--set", "disk.reserve.bytes=5000"), 5000)):
        with running_up(tmp_path, *told) as up:
            reserves = [file.stat().st_size for file in Path(up.node["data"]).glob(".headrace-reserve")]
            assert sum(reserves) == size
            assert up.stop() == 0


def test_without_a_word_about_data_it_is_kept_in_the_current_directory(tmp_path: Path) -> None:
    command = [PROGRAM, "up", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path)
    assert process.stdout is not None
    first = process.stdout.readline().decode()
    process.terminate()
    text = first + process.stdout.read().decode()
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 0
    assert f"data       {tmp_path / 'headrace-data'}" in text
    assert "headrace produce orders --bootstrap 127.0.0.1:" in text
    assert (tmp_path / "headrace-data" / "node-1").is_dir()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "x", "--ephemeral"], "--data keeps, --ephemeral does not"),
        (["--port", "65536"], "--port takes a number up to 65535, not 65536"),
        (["--port", "x"], "--port"),
        (["--port", "0", "--set", "novalue"], "--set takes key=value, not 'novalue'"),
        (
            ["--port", "0", "--set", "num.partition=3"],
            "Unknown broker setting 'num.partition'; did you mean num.partitions",
        ),
        (["--port", "0", "--set", "num.partitions=0", "--ephemeral"], "Invalid value '0' for num.partitions"),
        (["--bogus"], "--bogus"),
    ],
)
def test_what_is_asked_wrongly_is_exit_code_2(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    done = headrace_process("up", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert sentence in done.said
