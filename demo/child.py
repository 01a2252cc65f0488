"""A program of the demo in a process of its own, which tells what it does in JSON, one document a line."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Document = dict[str, Any]


class Child:
    """`on_line` is called in a thread. The process group is its own, so that it ends with all that it started."""

    def __init__(self, module: str, *arguments: str, log: Path, on_line: Callable[[Document], None]) -> None:
        self._on_line = on_line
        self.log = log
        paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        self._thread = threading.Thread(target=self._listen, name=module, daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """With all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._thread.join()

    def until(self, holds: Callable[[], object], what: str, within_s: float = 120.0) -> None:
        deadline = time.monotonic() + within_s
        while not holds():
            if self.process.poll() is not None and not self._thread.is_alive() and not holds():
                raise RuntimeError(f"{what}: the process has ended with {self.process.returncode}\n{self.tail()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"not in {within_s:.0f} s: {what}\n{self.tail()}")
            time.sleep(0.05)

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"{"):
                self._on_line(json.loads(line))
