"""The command `headrace`, in this process or in one of its own: its output and exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from headrace.cli import main

PROGRAM = str(Path(sys.executable).with_name("headrace"))
PATIENCE_S = 60.0


class Done(NamedTuple):
    """What a command left behind."""

    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def said(self) -> str:
        """The first line on stderr."""
        return self.stderr.decode().partition("\n")[0]


def headrace(*arguments: str, stdin: bytes = b"") -> Done:
    """Runs in this process, which is quick, with real files for its input and output."""
    with TemporaryFile() as input_, TemporaryFile() as output, TemporaryFile() as errors:
        input_.write(stdin)
        input_.seek(0)
        kept = sys.stdin, sys.stdout, sys.stderr
        sys.stdin, sys.stdout, sys.stderr = map(TextIOWrapper, (input_, output, errors))
        try:
            code = main(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            mine, (sys.stdin, sys.stdout, sys.stderr) = (sys.stdin, sys.stdout, sys.stderr), kept
            for wrapper in mine:
                wrapper.detach()
        output.seek(0)
        errors.seek(0)
        return Done(code, output.read(), errors.read())


def headrace_process(*arguments: str, cwd: Path | None = None, within_s: float = PATIENCE_S) -> Done:
    """Runs as people run it. Whatever happened, there is no traceback."""
    command = [PROGRAM, *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=within_s, cwd=cwd)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return Done(done.returncode, done.stdout, done.stderr)


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)


def state_of(pid: int) -> str:
    """One letter of the kernel: R and S work, T stands still, Z has ended; nothing if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(pid: int) -> bool:
    return state_of(pid) not in ("", "Z")


@dataclass
class Up:
    """A running `headrace up --json`."""

    process: subprocess.Popen[bytes]
    ready: dict[str, Any]
    errors: Path

    @property
    def bootstrap(self) -> str:
        return str(self.ready["bootstrap"])

    @property
    def nodes(self) -> dict[int, dict[str, Any]]:
        return {node["id"]: node for node in self.ready["nodes"]}

    @property
    def node(self) -> dict[str, Any]:
        (node,) = self.ready["nodes"]
        assert isinstance(node, dict)
        return node

    @property
    def pid(self) -> int:
        return int(self.node["pid"])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def said(self) -> str:
        return self.errors.read_text()


@contextmanager
def running_up(scratch: Path, *arguments: str) -> Iterator[Up]:
    """With --ephemeral unless the arguments say where data is kept."""
    kept = [] if "--data" in arguments else ["--ephemeral"]
    free = [] if "--port" in arguments else ["--port", "0"]
    errors = scratch / "up.stderr"
    command = [PROGRAM, "up", "--json", *free, *kept, *arguments]
    with errors.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, errors.read_text()
    up = Up(process, json.loads(line), errors)
    try:
        yield up
    finally:
        for pid in (process.pid, *(node["pid"] for node in up.nodes.values())):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert "Traceback" not in up.said(), up.said()
