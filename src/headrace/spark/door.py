"""The way from Spark's processes, which know no event loop, to the async client: one loop in a thread per process."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Door:
    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headrace-spark", daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Goes on while the caller does something else."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:  # Ctrl-C and a killed task too: nothing goes on behind the caller's back
            future.cancel()
            raise

    def post(self, work: Callable[[], object]) -> None:
        """Nobody waits for it; it is done before whatever is asked for later."""
        self._loop.call_soon_threadsafe(work)

    def call(self, work: Callable[[], T]) -> T:
        async def called() -> T:
            return work()

        return self.run(called())


def _new_loop() -> asyncio.AbstractEventLoop:
    """The faster one, where it is installed: a task receives megabytes in many pieces."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


_doors: list[Door] = []
"""Of this process, at most one: Spark keeps its Python processes from task to task, and so connections live on."""


def door() -> Door:
    """A forked process has no thread of its parent's, so it gets a door of its own."""
    if not _doors or _doors[0].process_id != os.getpid():
        _doors[:] = [Door()]
    return _doors[0]
