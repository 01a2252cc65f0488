"""A machine of the simulated world: its clock, its disk, and the processes that it runs one after another."""

import asyncio
from collections.abc import Callable
from fnmatch import fnmatchcase
from random import Random
from typing import Any, TypeVar

from headrace.sim.loop import MachineClock, Process, SimLoop
from headrace.storage.memory_files import MemoryFiles, ProcessDied

T = TypeVar("T")

JOB_S_MAX = 0.002


class SimRandom:
    """The random source of one process."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)


class SimFiles(MemoryFiles):
    """A process that dies in the middle of an operation is dead for the loop too."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self.on_death: Callable[[], None] = lambda: None
        self.slow: dict[str, float] = {}
        """By pattern of paths: how many seconds longer a sync takes there."""
        self.slowness_s = 0.0
        """What has gathered since somebody took it."""

    def enter(self, operation: str, path: str, size: int = 0, life: int | None = None) -> int:
        if self.slow and operation == "sync":
            self.slowness_s += sum(seconds for pattern, seconds in self.slow.items() if fnmatchcase(path, pattern))
        try:
            return super().enter(operation, path, size, life)
        except ProcessDied:
            if life is None or life == self.life:
                self.on_death()
            raise

    def leave(self) -> None:
        try:
            super().leave()
        except ProcessDied:
            self.on_death()
            raise


class SimOffload:
    """Jobs take virtual time, and happen at its end. Those of a lane are done one after another."""

    def __init__(self, loop: SimLoop, process: Process, machine: "Machine") -> None:
        self._loop = loop
        self._process = process
        self._machine = machine
        self._free_at_s: dict[str, float] = {}

    def run(self, lane: str, job: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self._loop.create_future()
        begin_s = max(self._loop.now_s, self._free_at_s.get(lane, 0.0))
        end_s = self._free_at_s[lane] = begin_s + self._machine.job_s()
        self._loop.at(end_s, self._process, self._do, job, future)
        return future

    def _do(self, job: Callable[[], Any], future: "asyncio.Future[Any]") -> None:
        files = self._machine.files
        files.slowness_s = 0.0
        result, failure = None, None
        try:
            result = job()
        except ProcessDied:
            raise
        except BaseException as error:  # as a thread hands it over
            failure = error
        if files.slowness_s:
            self._loop.at(self._loop.now_s + files.slowness_s, self._process, _settle, future, result, failure)
        else:
            _settle(future, result, failure)


def _settle(future: "asyncio.Future[Any]", result: Any, failure: BaseException | None) -> None:
    if future.cancelled():
        return
    if failure is not None:
        future.set_exception(failure)
    else:
        future.set_result(result)


class Machine:
    def __init__(self, loop: SimLoop, random: Random, host: str, wall_ms: int) -> None:
        self.host = host
        self.clock = MachineClock(loop, wall_ms + random.randrange(1000), host)
        self.files = SimFiles(self.clock.wall_ms)
        self.slow_s = 0.0
        """What every job of a slow disk takes on top."""
        self._random = random

    def job_s(self) -> float:
        return self._random.uniform(0.0001, JOB_S_MAX) + self.slow_s

    def lose_power(self) -> None:
        """Of what was not synced, any part may have reached the disk."""
        share = self._random.choice((0.0, 0.5, 0.9, 1.0))
        self.files.lose_power(lambda: self._random.random() < share)
        self.clock.boot()
