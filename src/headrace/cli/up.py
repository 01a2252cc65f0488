"""`headrace up`: nodes on this machine, each a child process `headrace serve`, until Ctrl-C or SIGTERM.

This process opens no socket and no data file. It waits for its children, and stays when one dies, so that a node
which was killed can be started again by its command and finds its data. Like serve, it imports nothing heavy.
"""

import json
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace import __version__
from headrace.cli import output
from headrace.cli.commands import BOOTSTRAP
from headrace.cli.outcome import Failure, UsageError
from headrace.cli.program import program
from headrace.cli.values import parse_settings

HOST = "127.0.0.1"
DATA = "headrace-data"
AWAITED = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGCHLD})

READY = """\
Headrace {version} is ready.

  bootstrap  {bootstrap}
  data       {data}
  metrics    {metrics}

Try next, in another terminal:

  headrace topic create orders --partitions 3{to}
  echo hello | headrace produce orders{to}
  headrace consume orders{to}

Any Kafka client works too. Ctrl-C stops everything.\
"""


@dataclass(slots=True)
class Child:
    node_id: int
    process: subprocess.Popen[bytes]
    said: dict[str, Any] = field(default_factory=dict)
    """What the node printed when it was ready: its element of "nodes"."""


def up(
    *,
    port: int = 9092,
    data: str | None = None,
    ephemeral: bool = False,
    settings: tuple[str, ...] = (),
    json: bool = False,
) -> int:
    if ephemeral and data is not None:
        raise UsageError("--data keeps, --ephemeral does not: give one of them")
    if not 0 <= port <= 65_535:
        raise UsageError(f"--port takes a number up to 65535, not {port}")
    if data == "":
        raise UsageError("--data takes a directory")
    parse_settings(settings)
    with _interrupted_by_sigterm(), _directory(data, ephemeral) as directory:
        if "," in str(directory):
            raise UsageError(f"the data directory may have no comma in its path, as {directory} has")
        (directory / "metadata").mkdir(parents=True, exist_ok=True)
        if ephemeral:
            # A directory in memory, as it often is, has no room to spare for the day when its disk is full.
            settings = ("disk.reserve.bytes=0", *settings)
        return _run(directory, port, settings, json)


def _run(directory: Path, port: int, settings: Sequence[str], as_json: bool) -> int:
    children: list[Child] = []
    try:
        children.append(_start(1, port, directory, settings))
        for child in children:
            if code := _wait_until_ready(child):
                return code
        _announce(children, directory, as_json)
        _block_signals()
        _report_deaths(children)
    except KeyboardInterrupt:
        pass  # This is how it is meant to end.
    finally:
        _block_signals()
        _stop(children)
    return 0


def _block_signals() -> None:
    """From here on signals are waited for. A handler could run just before a wait begins, and be slept through."""
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)


def _start(node_id: int, port: int, directory: Path, settings: Sequence[str]) -> Child:
    command = [
        *program(),
        "serve",
        *("--node-id", str(node_id)),
        *("--listen", f"{HOST}:{port}"),
        *("--data", str(directory / f"node-{node_id}")),
        *("--metadata", f"sqlite:{directory / 'metadata' / 'headrace.db'}"),
        *(argument for setting in settings for argument in ("--set", setting)),
        *("--json", "--stop-on-eof"),
    ]
    # A process group of its own: Ctrl-C reaches us alone, and we stop the nodes. The pipe to its standard input
    # breaks when we die in any other way, and then the node stops too.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
    return Child(node_id, process)


def _wait_until_ready(child: Child) -> int:
    """0 when the node serves. A node that cannot start has said why on stderr; its exit code is ours."""
    assert child.process.stdout is not None
    line = child.process.stdout.readline()
    if line:
        child.said = json.loads(line)
        return 0
    code = child.process.wait()
    if code < 0:
        raise Failure(f"node {child.node_id} {_ending(code)} before it was ready")
    return code or 1


def _announce(children: Sequence[Child], directory: Path, as_json: bool) -> None:
    bootstrap = ",".join(child.said["address"] for child in children)
    if as_json:
        output.document({"bootstrap": bootstrap, "nodes": [child.said for child in children]})
    else:
        option = "" if bootstrap == BOOTSTRAP else f" --bootstrap {bootstrap}"
        metrics = " ".join(child.said["metrics"] for child in children)
        output.line(READY.format(version=__version__, bootstrap=bootstrap, data=directory, metrics=metrics, to=option))
    output.flush()


def _report_deaths(children: Sequence[Child]) -> None:
    """Until an interrupt: say which node has died, and how it is started again."""
    living = list(children)
    interrupted = False
    while not interrupted:
        for child in [child for child in living if child.process.poll() is not None]:
            living.remove(child)
            output.say(f"headrace: node {child.node_id} {_ending(child.process.returncode)}; to start it again:")
            output.say(f"  {shlex.join(child.said['command'])}")
        interrupted = signal.sigwait(AWAITED) != signal.SIGCHLD


def _stop(children: Sequence[Child]) -> None:
    """Cleanly; another interrupt while we wait kills."""
    for child in children:
        child.process.terminate()
    while any(child.process.poll() is None for child in children):
        if signal.sigwait(AWAITED) != signal.SIGCHLD:
            for child in children:
                child.process.kill()


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _directory(data: str | None, ephemeral: bool) -> Iterator[Path]:
    if not ephemeral:
        yield Path(data or DATA).absolute()
        return
    directory = Path(tempfile.mkdtemp(prefix="headrace-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
