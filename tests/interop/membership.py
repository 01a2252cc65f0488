"""Members of groups, each a process with a client library of its own: killed, paused, and heard."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.clients.node import MODULES
from tests.servers.java import java

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MEMBERS = HERE / "members"
WAIT_S_MAX = 120.0
RANGE = "range"


class Member:
    def __init__(self, command: list[str], log: Path) -> None:
        self.assigned: frozenset[int] = frozenset()
        self.read: list[int] = []
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                cwd=ROOT,
            )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "assigned" in told:
                self.assigned = frozenset(told["assigned"])
            else:
                self.read += told["read"]

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._ended()

    def leave(self) -> None:
        """As a program ends that closes its consumer."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError(f"a member does not end: {self.log_tail()}") from None
        finally:
            self._ended()

    def _ended(self) -> None:
        """What it has told before is heard."""
        self._process.wait()
        self._listening.join()
        self.assigned = frozenset()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])


class Group:
    """Members of one group, by the clients that `kinds` names in turn."""

    def __init__(self, name: str, kinds: list[str], bootstrap: str, topic: str, scratch: Path) -> None:
        self.name = name
        self.members: list[Member] = []
        self._kinds = kinds
        self._bootstrap = bootstrap
        self._topic = topic
        self._scratch = scratch

    def add(self) -> Member:
        number = len(self.members)
        kind = self._kinds[number % len(self._kinds)]
        command = COMMANDS[kind]([self._bootstrap, self.name, self._topic])
        member = Member(command, self._scratch / f"{self.name}-{number}.log")
        self.members.append(member)
        return member

    def shares(self, among: int, partitions: int) -> bool:
        """Whether so many members have all partitions, none of them two members."""
        for member in self.members:
            assert member.is_alive or not member.assigned, f"{self.name}: {member.log_tail()}"
        held = [member.assigned for member in self.members if member.assigned]
        return len(held) == among and sorted(p for each in held for p in each) == list(range(partitions))

    @property
    def read(self) -> set[int]:
        return {value for member in self.members for value in list(member.read)}

    def told(self) -> str:
        held = [sorted(member.assigned) for member in self.members]
        return f"{self.name}: {held}, read {len(self.read)}\n" + "\n".join(m.log_tail() for m in self.members)

    def close(self) -> None:
        for member in self.members:
            if member.is_alive:
                member.resume()
                member.kill()


@contextmanager
def groups_of(kinds: dict[str, list[str]], bootstrap: str, topic: str, scratch: Path) -> Iterator[list[Group]]:
    groups = [Group(name, chosen, bootstrap, topic, scratch) for name, chosen in kinds.items()]
    try:
        yield groups
    finally:
        for group in groups:
            group.close()


def until(groups: list[Group], condition: Callable[[Group], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    for group in groups:
        while not condition(group):
            assert time.monotonic() < deadline, f"not in {WAIT_S_MAX:.0f} s: {what}\n{group.told()}"
            time.sleep(0.05)


def _python(module: str, assignor: str) -> Callable[[list[str]], list[str]]:
    return lambda words: [sys.executable, "-m", f"tests.interop.members.{module}", *words, assignor]


def _java(assignor: str) -> Callable[[list[str]], list[str]]:
    return lambda words: java("Member", *words, assignor, memory="128m")


COMMANDS: dict[str, Callable[[list[str]], list[str]]] = {
    "confluent": _python("confluent", RANGE),
    "confluent-cooperative": _python("confluent", "cooperative-sticky"),
    "kafka-python": _python("pure_python", RANGE),
    "aiokafka": _python("asynchronous", RANGE),
    "kafkajs": lambda words: ["node", str(MEMBERS / "kafkajs.js"), str(MODULES), *words],
    "java": _java("RangeAssignor"),
    "java-cooperative": _java("CooperativeStickyAssignor"),
}
