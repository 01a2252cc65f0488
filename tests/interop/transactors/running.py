"""Programs that write in transactions, as processes."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.interop.transactors.plan import PARTITIONS, SENDING_OFFSETS, value_of

ROOT = Path(__file__).resolve().parents[3]
WAIT_S_MAX = 180.0
SILENT_S_MAX = 75.0
"""More than any call of librdkafka takes by its own limit, which is 60 s."""


def until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not in {WAIT_S_MAX:.0f} s: {what()}"
        time.sleep(0.05)


class Outcome(NamedTuple):
    number: int
    tried: int


class Transactor:
    """A process that writes transactions one after another, and tells how each one ended."""

    def __init__(self, transactional_id: str, command: Sequence[str], log: Path) -> None:
        self.transactional_id = transactional_id
        self.committed: list[Outcome] = []
        self.aborted: list[Outcome] = []
        self._command = command
        self._log = log
        self._told_s = 0.0
        self._sending: Outcome | None = None
        """The transaction whose offsets are being sent, of programs that tell it."""
        log.touch()
        self._start()

    def _start(self, *arguments: str) -> None:
        self._told_s = time.monotonic()
        with self._log.open("ab") as errors:
            command = [*self._command, *arguments]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        ended = {"committed": self.committed, "aborted": self.aborted}
        for line in self.process.stdout:
            told = json.loads(line)
            outcome = Outcome(told["number"], told["tried"])
            self._sending = outcome if told["outcome"] == SENDING_OFFSETS else None
            self._told_s = time.monotonic()
            if told["outcome"] in ended:
                ended[told["outcome"]].append(outcome)

    def has_done(self, count: int) -> bool:
        return len(self.committed) + len(self.aborted) >= count or self.has_ended_well()

    def has_ended_well(self) -> bool:
        code = self.process.poll()
        assert code in (None, 0), f"{self.transactional_id} ended with {code}: {self.log_tail()}"
        if code == 0:
            self._thread.join()
        else:
            self._look_whether_it_hangs()
        return code == 0

    def _look_whether_it_hangs(self) -> None:
        """librdkafka 2.16 may wait for ever for a group coordinator whose connection it has given up itself, and no
        limit of the call ends that (its issues 5511 and 5456). Then it is a client that died: its successor has the
        same transactional id, and what was open is aborted. Anywhere else nobody may hang."""
        hanging = self._sending
        if hanging is None or time.monotonic() < self._told_s + SILENT_S_MAX:
            return
        self.close()
        print(f"{self.transactional_id} hung when it sent offsets of transaction {hanging.number}: started again")
        self._sending = None
        self.aborted.append(hanging)
        self._start(str(hanging.number), str(hanging.tried + 1))

    def values(self, outcomes: Sequence[Outcome]) -> list[bytes]:
        return [value_of(self.transactional_id, *outcome, p) for p in range(PARTITIONS) for outcome in outcomes]

    def log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
