"""Trying again, until it works or its time is up; and what is in the way meanwhile."""

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import TypeVar

from headrace.client.errors import NotReachable, TimedOut
from headrace.client.outside import Outside

T = TypeVar("T")


class Tries:
    """Of one thing. `troubles` holds why the last try failed, for as long as it is tried."""

    def __init__(self, outside: Outside, troubles: "dict[Tries, str]", timeout_ms: int) -> None:
        self._outside = outside
        self._troubles = troubles
        self._timeout_ms = timeout_ms
        self._deadline_ms = outside.clock.monotonic_ms() + timeout_ms
        self._failures = 0
        self._last: NotReachable | str = ""

    def __enter__(self) -> "Tries":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._troubles.pop(self, None)

    @property
    def left_ms(self) -> int:
        return max(0, self._deadline_ms - self._outside.clock.monotonic_ms())

    async def attempt(self, work: Awaitable[T], what: str) -> T:
        """One try, which ends with the time: then what was in the way before is raised, or TimedOut with `what`."""
        try:
            async with asyncio.timeout(self.left_ms / 1000):
                return await work
        except TimeoutError:
            if isinstance(self._last, NotReachable):
                raise self._last from None
            text = f"{what} within {self._timeout_ms} ms"
            raise TimedOut(f"{text}: {self._last}" if self._last else text) from None

    async def again(self, why: NotReachable | str) -> None:
        """Waits a little before the next try. When there is no time for one: NotReachable, or TimedOut saying why."""
        self._failures += 1
        self._last = why
        delay_ms = self._outside.backoff_ms(self._failures)
        if delay_ms > self.left_ms:
            raise TimedOut(why) if isinstance(why, str) else why
        self._troubles[self] = str(why)
        await asyncio.sleep(delay_ms / 1000)
