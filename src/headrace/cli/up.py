"""`headrace up`: nodes on this machine, each a child process `headrace serve`, until Ctrl-C or SIGTERM.

This process opens no socket, and no file that a living node has open. It waits for its children. When one dies, its
registration is withdrawn, so that others take over at once, and it stays down: its command starts it again, and it
finds its data. Like serve, it imports nothing heavy before the nodes are ready.
"""

import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace import __version__
from headrace.cli import output
from headrace.cli.children import Child, end_all, wait_until_ready
from headrace.cli.commands import BOOTSTRAP
from headrace.cli.outcome import UsageError
from headrace.cli.program import program
from headrace.cli.values import parse_settings

HOST = "127.0.0.1"
DATA = "headrace-data"
AWAITED = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGCHLD})
BROKERS_MAX = 100
COPIES = 3
"""Of each record, where there are as many nodes and nobody says otherwise."""

READY = """\
Headrace {version} is ready.

  bootstrap  {bootstrap}
  data       {data}
  metrics    {metrics}

Try next, in another terminal:

  headrace topic create orders --partitions 3{to}
  echo hello | headrace produce orders{to}
  headrace consume orders{to}
{more}
Any Kafka client works too. Ctrl-C stops everything.\
"""

READY_MANY = """\
  headrace cluster status{to}

A node that you kill, say with kill -9 {pid}, stays down, and the others take over.
"""


def up(
    *,
    brokers: int = 1,
    port: int = 9092,
    data: str | None = None,
    ephemeral: bool = False,
    tier: str | None = None,
    settings: tuple[str, ...] = (),
    json: bool = False,
) -> int:
    if ephemeral and data is not None:
        raise UsageError("--data keeps, --ephemeral does not: give one of them")
    if not 0 < brokers <= BROKERS_MAX:
        raise UsageError(f"--brokers takes a number from 1 to {BROKERS_MAX}, not {brokers}")
    if not 0 <= port <= 65_535:
        raise UsageError(f"--port takes a number up to 65535, not {port}")
    if port + brokers - 1 > 65_535:
        raise UsageError(f"--port {port} leaves no room for {brokers} brokers: the last port is 65535")
    if data == "":
        raise UsageError("--data takes a directory")
    _check_tier(tier)
    parse_settings(settings)
    with _interrupted_by_sigterm(), _directory(data, ephemeral) as directory:
        if "," in str(directory):
            raise UsageError(f"the data directory may have no comma in its path, as {directory} has")
        (directory / "metadata").mkdir(parents=True, exist_ok=True)
        if ephemeral:
            # A directory in memory, as it often is, has no room to spare for the day when its disk is full.
            settings = ("disk.reserve.bytes=0", *settings)
        if tier is not None:
            url = tier if "://" in tier else str(Path(tier).absolute())
            settings = ("remote.log.storage.system.enable=true", f"remote.storage.url={url}", *settings)
        if brokers > 1:
            settings = (f"default.replication.factor={min(COPIES, brokers)}", *settings)
        return _run(directory, brokers, port, settings, json)


def _check_tier(tier: str | None) -> None:
    if tier == "":
        raise UsageError("--tier takes a directory or the URL of an object store")
    if tier is None or "://" in tier:
        return
    from headrace.tier.opening import SCHEMES  # only who has a tier waits for what that needs

    if tier.partition(":/")[0] in SCHEMES:
        meant = tier.replace(":/", "://", 1)
        raise UsageError(f"--tier {tier} is no URL, as {meant} would be; for a directory of that name give ./{tier}")
    if Path(tier).exists() and not Path(tier).is_dir():
        raise UsageError(f"--tier takes a directory or the URL of an object store, and {tier} is a file")


def _run(directory: Path, brokers: int, port: int, settings: Sequence[str], as_json: bool) -> int:
    children: list[Child] = []
    try:
        for node_id in range(1, brokers + 1):
            children.append(_start(node_id, brokers, port and port + node_id - 1, directory, settings))
        if code := wait_until_ready(children):
            return code
        _announce(children, directory, as_json)
        _block_signals()
        _attend_to_deaths(children)
    except KeyboardInterrupt:
        pass  # This is how it is meant to end.
    finally:
        _block_signals()
        end_all(children, AWAITED)
    return 0


def _block_signals() -> None:
    """From here on signals are waited for. A handler could run just before a wait begins, and be slept through."""
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)


def _start(node_id: int, brokers: int, port: int, directory: Path, settings: Sequence[str]) -> Child:
    data, metadata = str(directory / f"node-{node_id}"), f"sqlite:{directory / 'metadata' / 'headrace.db'}"
    command = [
        *program(),
        "serve",
        *("--node-id", str(node_id)),
        *("--listen", f"{HOST}:{port}"),
        *("--data", data),
        *("--metadata", metadata),
        *(argument for setting in settings for argument in ("--set", setting)),
        *("--json", "--stop-on-eof"),
        *("--await-nodes", str(brokers)),
    ]
    # A process group of its own: Ctrl-C reaches us alone, and we stop the nodes. The pipe to its standard input
    # breaks when we die in any other way, and then the node stops too.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
    return Child(node_id, process, data, metadata)


def _announce(children: Sequence[Child], directory: Path, as_json: bool) -> None:
    bootstrap = ",".join(child.said["address"] for child in children)
    if as_json:
        output.document({"bootstrap": bootstrap, "nodes": [child.said for child in children]})
    else:
        option = "" if bootstrap == BOOTSTRAP else f" --bootstrap {bootstrap}"
        metrics = "\n             ".join(child.said["metrics"] for child in children)
        more = READY_MANY.format(to=option, pid=children[0].process.pid) if len(children) > 1 else ""
        output.line(
            READY.format(
                version=__version__, bootstrap=bootstrap, data=directory, metrics=metrics, to=option, more=more
            )
        )
    output.flush()


def _attend_to_deaths(children: Sequence[Child]) -> None:
    """Until an interrupt: withdraw a node that has died, say so, and how it is started again."""
    # Now, while nothing waits: others are to take over within milliseconds when a node dies.
    from headrace.cli.withdraw import withdraw_dead

    living = list(children)
    interrupted = False
    while not interrupted:
        for child in [child for child in living if child.process.poll() is not None]:
            living.remove(child)
            # Whether or not others can take over, the user is to know at once.
            failure = withdraw_dead(child.data, child.metadata)
            output.say(f"headrace: node {child.node_id} {child.ending()}; to start it again:")
            output.say(f"  {shlex.join(child.said['command'])}")
            if failure:
                output.say(f"headrace: {failure}")
        interrupted = signal.sigwait(AWAITED) != signal.SIGCHLD


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
