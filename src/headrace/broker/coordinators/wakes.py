"""When groups have to be told the time: one timer of the loop for all of them.

A heartbeat moves a deadline away and costs nothing here: the group is told the time too early, and says anew when.
"""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from headrace.core.group import Group
from headrace.core.group_membership import NEVER_MS
from headrace.runtime import Clock


class Wakes:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, tick: Callable[[Group, int], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._tick = tick
        self._due: list[tuple[int, int, Group]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS

    def arm(self, group: Group) -> None:
        """After anything that may have brought a deadline of the group nearer."""
        if group.wake_ms < group.armed_ms:
            group.armed_ms = group.wake_ms
            heapq.heappush(self._due, (group.wake_ms, next(self._numbers), group))
            if group.wake_ms < self._timer_ms:
                self._set_timer(group.wake_ms)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due.clear()

    def _set_timer(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = at_ms
        delay_ms = max(at_ms - self._clock.monotonic_ms(), 0)
        self._timer = self._loop.call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_ms = None, NEVER_MS
        now_ms = self._clock.monotonic_ms()
        while self._due and self._due[0][0] <= now_ms:
            at_ms, _, group = heapq.heappop(self._due)
            if at_ms == group.armed_ms:  # else it was armed again for an earlier time
                group.armed_ms = NEVER_MS
                self._tick(group, now_ms)
        if self._due and self._due[0][0] < self._timer_ms:
            self._set_timer(self._due[0][0])
