"""Large answers leave in slices, one in each turn of the loop: whoever sends small requests is served between them.

Somebody who catches up takes megabytes at a time, and copying them to the socket takes as long as many small requests.
Where nobody else has asked for anything for a while, an answer is one slice. What comes from the tier is in less of a
hurry: while others are busy, its slices are large and seldom. What a client notices at its 99th percentile is how often
it meets a slice, more than for how long: what one in a hundred requests meets must be rare.
"""

import asyncio
from collections import deque
from typing import Protocol

SLICE_BYTES = 64 << 10
"""While others ask for something. An answer up to this size leaves at once."""

QUIET_S = 0.05
QUIET_SLICES = 16
"""For so long, and for so many slices, nobody else has asked for anything before it is believed that nobody does: a
loop that was held up has heard nobody."""

PACED_SLICE_BYTES = 1 << 20
PAUSE_S = 0.08
"""Of each connection, before so much of what is in no hurry: 13 MB/s, and of 5,000 requests in a second 13 meet one. In
slices of 64 KB at the same speed, 200 would."""

BUSY_REQUESTS = 10
BUSY_S = 0.02
"""So many requests of others in that time, and somebody is in a hurry. Consumers that wait for news ask a few times in
a second."""


class Sender(Protocol):
    def send_slice(self) -> None: ...


class Slices:
    """One per node: of all that have something large to send, one sends a slice per turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[Sender] = deque()
        self._is_due = False
        self.small_requests = 0
        """Reads from connections whose last answer was small, ever: those that wait for whatever is sent meanwhile."""

    def later(self, sender: Sender) -> None:
        """In one of the next turns. A sender says so once until then."""
        self._waiting.append(sender)
        if not self._is_due:
            self._is_due = True
            self.loop.call_soon(self._next)

    def after_pause(self, sender: Sender, slice_bytes: int) -> None:
        """The same, but most of the time is for others."""
        self.loop.call_later(PAUSE_S * min(1, slice_bytes / PACED_SLICE_BYTES), self.later, sender)

    def _next(self) -> None:
        sender = self._waiting.popleft()
        self._is_due = bool(self._waiting)
        if self._is_due:
            self.loop.call_soon(self._next)
        sender.send_slice()


class SliceSize:
    """How much one connection sends at a time."""

    __slots__ = ("_asked_s", "_counted", "_counted_s", "_is_busy", "_seen", "_sent", "_slices", "own_requests")

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._seen = slices.small_requests
        self._asked_s = slices.loop.time()
        self._sent = 0  # slices, since then
        self._counted, self._counted_s = self._seen, self._asked_s
        self._is_busy = True
        self.own_requests = 0
        """Of those that `Slices` counts."""

    @property
    def others_wait(self) -> bool:
        """Somebody may: small requests came on other connections, a moment ago."""
        requests, now_s = self._slices.small_requests - self.own_requests, self._slices.loop.time()
        if requests != self._seen:
            self._seen, self._asked_s, self._sent = requests, now_s, 0
        return self._sent < QUIET_SLICES or now_s - self._asked_s < QUIET_S

    @property
    def others_are_busy(self) -> bool:
        """So many small requests came on other connections that whoever is in no hurry waits."""
        requests, now_s = self._slices.small_requests - self.own_requests, self._slices.loop.time()
        count, time_s = requests - self._counted, now_s - self._counted_s
        if time_s >= BUSY_S:
            self._is_busy = count * BUSY_S >= BUSY_REQUESTS * time_s
            self._counted, self._counted_s = requests, now_s
            return self._is_busy
        return self._is_busy or count >= BUSY_REQUESTS

    def next(self, bytes_max: int, *, is_paced: bool) -> int:
        size = bytes_max
        if self.others_wait:
            size = PACED_SLICE_BYTES if is_paced and self.others_are_busy else SLICE_BYTES
        self.sent()
        return size

    def sent(self) -> None:
        """A slice, or all of an answer: one that is small, or leaves by TLS, which cannot be cut."""
        self._sent += 1
