"""Slow work that runs beside a client's own: each kind once at a time, and not again at once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.client.outside import Outside
from headrace.errors import KafkaError
from headrace.net.peer import PeerLost


class Beside:
    """Connecting, asking for metadata, and the like. What fails is tried again by whoever still needs it."""

    def __init__(self, outside: Outside, on_done: Callable[[], None]) -> None:
        self._outside = outside
        self._on_done = on_done
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, int] = {}
        self._reasons: dict[str, str] = {}  # of what failed when it ran last
        self._rests_until_ms: dict[str, int] = {}

    @property
    def trouble(self) -> str | None:
        return next(iter(self._reasons.values()), None)

    def forget_trouble(self) -> None:
        """Things go well again, without what failed here."""
        self._reasons.clear()

    def start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> int:
        """Zero if it runs now; else the time, in ms, from which it may be started again."""
        if name in self._tasks:
            return 0
        until_ms = self._rests_until_ms.get(name, 0)
        if until_ms > self._outside.clock.monotonic_ms():
            return until_ms
        self._tasks[name] = asyncio.ensure_future(self._run(name, work))
        return 0

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        failures = self._failures.pop(name, 0)
        try:
            await work()
            self._reasons.pop(name, None)
        except (KafkaError, PeerLost) as error:
            self._failures[name] = failures + 1
            self._reasons[name] = str(error)
        finally:
            del self._tasks[name]
        # After success too: metadata that names no leader yet must not be asked for in a tight loop.
        rest_ms = self._outside.backoff_ms(self._failures.get(name, 1))
        self._rests_until_ms[name] = self._outside.clock.monotonic_ms() + rest_ms
        self._on_done()
