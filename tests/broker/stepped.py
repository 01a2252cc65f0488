"""Time, threads and trouble of a node under test: all of it moves only when the test says so."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
NOW_MS = 1_700_000_000_000


class Tracebacks(logging.Handler):
    """Collects what must not happen: tracebacks in the log, and failures that only the loop notices."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.seen.append(record.getMessage())

    def unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.seen.append(f"{context.get('message')}: {context.get('exception')!r}")


class SteppedClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def boot_ms(self) -> int:
        return self.now_ms

    def boot_id(self) -> str:
        return "boot"


class NodeClock(SteppedClock):
    """For a node: its lease is renewed as the loop's time goes by, so that a step of this clock must not end it."""

    def boot_ms(self) -> int:
        return NOW_MS


class SteppedOffload:
    """Runs every job at once in the loop's own thread, except in lanes that are held: those wait to be released."""

    def __init__(self) -> None:
        self._held: dict[str, deque[Callable[[], None]]] = {}

    def run(self, lane: str, job: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def settle() -> None:
            try:
                result = job()
            except Exception as error:  # whatever a job raises belongs to whoever waits for it
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)

        if lane in self._held:
            self._held[lane].append(settle)
        else:
            settle()
        return future

    def hold(self, lane: str) -> None:
        self._held.setdefault(lane, deque())

    def held(self, lane: str) -> int:
        return len(self._held.get(lane, ()))

    def step(self, lane: str) -> None:
        """The oldest job of a held lane is done."""
        self._held[lane].popleft()()

    def swap(self, lane: str) -> None:
        """The newest job of a held lane is the next."""
        self._held[lane].rotate(1)

    def release(self, lane: str) -> None:
        for settle in self._held.pop(lane, ()):
            settle()

    def forget(self) -> None:
        """As a dying process does with its jobs."""
        self._held.clear()
