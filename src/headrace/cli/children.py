"""Nodes that are child processes of `headrace up`."""

import json
import selectors
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.cli.outcome import Failure


@dataclass(slots=True)
class Child:
    node_id: int
    process: subprocess.Popen[bytes]
    data: str
    metadata: str
    said: dict[str, Any] = field(default_factory=dict)
    """What the node printed when it was ready: its element of "nodes"."""

    def ending(self) -> str:
        code = self.process.returncode
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def wait_until_ready(children: Sequence[Child]) -> int:
    """0 when all nodes serve. A node that cannot start has said why on stderr; its exit code is ours."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            assert child.process.stdout is not None
            selector.register(child.process.stdout, selectors.EVENT_READ, child)
        while selector.get_map():
            for key, _ in selector.select():
                selector.unregister(key.fileobj)
                if code := _hear(key.data):
                    return code
    return 0


def _hear(child: Child) -> int:
    assert child.process.stdout is not None
    line = child.process.stdout.readline()
    if line:
        child.said = json.loads(line)
        return 0
    code = child.process.wait()
    if code < 0:
        raise Failure(f"node {child.node_id} {child.ending()} before it was ready")
    return code or 1


def end_all(children: Sequence[Child], awaited: Iterable[signal.Signals]) -> None:
    """Cleanly; another interrupt while we wait kills. The signals, SIGCHLD among them, are blocked."""
    for child in children:
        child.process.terminate()
        child.process.send_signal(signal.SIGCONT)  # one that was paused hears of it only when it goes on
    while any(child.process.poll() is None for child in children):
        if signal.sigwait(awaited) != signal.SIGCHLD:
            for child in children:
                child.process.kill()
