import ipaddress
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.advertise import is_wildcard, own_address
from tests.cli.programs import PATIENCE_S, PROGRAM, headrace


def serve(directory: Path, *arguments: str) -> tuple[dict[str, Any], list[str], str]:
    """What a node prints when it is ready, the topics that a client lists there, and the node's stderr."""
    command = [PROGRAM, "serve", "--node-id", "1", "--data", str(directory / "data")]
    command += ["--metadata", f"sqlite:{directory / 'db'}", "--json", "--stop-on-eof", *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]  # mypy does not look into it
        ready = json.loads(process.stdout.readline())
        port = ready["command"][ready["command"].index("--listen") + 1].rpartition(":")[2]
        described = headrace("topic", "list", "--json", "--bootstrap", f"127.0.0.1:{port}")
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    return ready, json.loads(described.stdout)["topics"], errors.decode()


def test_clients_are_told_what_is_advertised_and_the_command_says_both(tmp_path: Path) -> None:
    ready, topics, errors = serve(tmp_path, "--listen", "127.0.0.1:0", "--advertise", "localhost:0")
    command = ready["command"]
    listen = command[command.index("--listen") + 1]
    assert ready["address"] == listen.replace("127.0.0.1", "localhost")
    assert command[command.index("--advertise") + 1] == ready["address"]
    assert (topics, "clients are told" in errors) == ([], False)


def test_a_node_that_listens_everywhere_advertises_an_address_of_its_own_and_says_so(tmp_path: Path) -> None:
    ready, _, errors = serve(tmp_path, "--listen", "0.0.0.0:0")
    host = ready["address"].rpartition(":")[0]
    assert not is_wildcard(host)
    assert f"headrace: clients are told to connect to {host}; --advertise HOST:PORT tells them another" in errors
    assert "0.0.0.0:" in " ".join(ready["command"])


def test_nobody_can_connect_to_everywhere(tmp_path: Path) -> None:
    node = ("serve", "--node-id", "1", "--data", str(tmp_path), "--metadata", "sqlite:db")
    for wrong in ("0.0.0.0:9092", "[::]:9092"):
        done = headrace(*node, "--listen", "127.0.0.1:0", "--advertise", wrong)
        assert done.returncode == 2
        assert done.said == f"headrace: --advertise takes an address that clients can connect to, not {wrong!r}"


@pytest.mark.parametrize(("wildcard", "version"), [("0.0.0.0", 4), ("::", 6)])
def test_an_address_of_its_own_is_of_the_same_kind(wildcard: str, version: int) -> None:
    assert is_wildcard(wildcard)
    assert not is_wildcard("localhost")
    own = ipaddress.ip_address(own_address(wildcard))
    assert own.version == version
    assert not own.is_unspecified
