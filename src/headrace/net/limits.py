"""Bounds of a node's connections, and the memory that their requests share."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may ask for, and how many there may be. The defaults in brackets are Kafka's names."""

    frame_bytes_max: int = 100 << 20  # socket.request.max.bytes
    requests_in_flight_max: int = 256
    request_bytes_in_flight_max: int = 16 << 20
    unsent_bytes_max: int = 8 << 20  # answers that the client has not taken yet; more of them stop its next request
    all_unsent_bytes_max: int = 128 << 20  # of all connections that do not take their answers, before answers get short
    idle_ms_max: int = 600_000  # connections.max.idle.ms
    connections_max: int = 2**31 - 1  # max.connections
    connections_per_ip_max: int = 2**31 - 1  # max.connections.per.ip


SMALL_BYTES_MAX = 64 << 10
"""A frame that needs no memory of its own to be read: see framing.BIG_BYTES."""

UNBOUNDED = 2**63 - 1

RESERVE = 8
"""One part in so many of the memory for requests is for small frames."""


SHORT_ANSWER_BYTES = 1 << 20
"""What a client may still be answered when too much lies unsent."""


class Waiter(Protocol):
    """Whoever asked the budget for more than it had."""

    def granted(self, size: int) -> None: ...


class RequestBudget:
    """Memory for requests of all connections of a node (queued.max.request.bytes).

    Frames take their size before they are copied or allocated and give it back when they are answered.
    Who does not get it waits, first come, first served. Bytes that were read but cannot be handed over
    yet are held: they count, but nobody is refused them, since they are in memory already.
    Large frames take their memory as they fill it, so that announcing much and sending little holds little. Frames
    that have begun come before others, and when there is no room for any of them, one may go beyond the bound: else
    they could all wait for each other. What it takes there counts once it is whole.
    Small frames do not wait behind large ones, and a part of the memory is theirs: clients that announce
    large frames, and are slow to send them, must not keep everybody else from asking for metadata.
    """

    def __init__(self, bytes_max: int, call_soon: Callable[..., object]) -> None:
        """Zero or less means no bound, as in Kafka."""
        if bytes_max <= 0:
            bytes_max = UNBOUNDED
        self._bytes_max = bytes_max
        self._large_bytes_max = bytes_max - bytes_max // RESERVE
        self._small_bytes = min(SMALL_BYTES_MAX, bytes_max // (8 * RESERVE))
        self._call_soon = call_soon
        # In order of arrival.
        self._waiting_more: dict[Waiter, int] = {}
        self._waiting: dict[Waiter, int] = {}
        self._waiting_small: dict[Waiter, int] = {}
        self._beyond: Waiter | None = None
        self._beyond_bytes = 0
        self.taken = 0
        self.held = 0

    @property
    def scarce(self) -> bool:
        """Somebody waits: readers should take small sips, and half frames that stall have to go."""
        return bool(self._waiting or self._waiting_small or self._beyond)

    @property
    def ample(self) -> bool:
        """More than half of the memory is free: frames may have more than they have filled."""
        return (self.taken + self.held) * 2 < self._bytes_max

    def take(self, size: int, waiter: Waiter) -> bool:
        """False: the waiter is called when its turn comes, and owns the bytes then."""
        nobody_waits = not (self._waiting or self._waiting_small or self._waiting_more)
        if nobody_waits and self.taken + self.held + size <= self._large_bytes_max:
            self.taken += size  # as nearly always
            return True
        waiting = self._waiting_small if size <= self._small_bytes else self._waiting
        if not waiting and self._fits(size):
            self.taken += size
            return True
        waiting[waiter] = size
        return False

    def take_more(self, size: int, waiter: Waiter) -> bool:
        """The same, for a frame that has begun and owns some memory already."""
        # Who went beyond the bound waits behind nobody: the others wait for it.
        if (self._beyond is waiter or not self._waiting_more) and self._give_more(size, waiter):
            return True
        self._waiting_more[waiter] = size
        return False

    def is_whole(self, waiter: Waiter) -> None:
        """Its large frame has come."""
        if self._beyond is waiter:
            self._beyond = None
            self.taken += self._beyond_bytes
            self._beyond_bytes = 0
            self._serve()

    def release(self, size: int) -> None:
        self.taken -= size
        if self._waiting or self._waiting_small or self._waiting_more:
            self._serve()

    def hold(self, size: int) -> None:
        """Negative when the bytes are let go."""
        self.held += size
        if size < 0:
            self._serve()

    def leave(self, waiter: Waiter) -> None:
        """The waiter is gone; what it owns it has to give back still."""
        self.is_whole(waiter)
        waited = [line.pop(waiter, 0) for line in (self._waiting_more, self._waiting, self._waiting_small)]
        if any(waited):
            self._serve()

    def _fits(self, size: int) -> bool:
        # One frame is always let in, or a frame larger than what held bytes leave would wait for ever.
        if self.taken == 0:
            return True
        used = self.taken + self.held + size
        if size > self._small_bytes:
            return used <= self._large_bytes_max and not self._waiting_more
        return used <= self._bytes_max and not self._waits_for_all()

    def _give_more(self, size: int, waiter: Waiter) -> bool:
        if self._beyond is not waiter and self.taken + self.held + size <= self._large_bytes_max:
            self.taken += size
            return True
        if self._beyond is None or self._beyond is waiter:
            self._beyond = waiter
            self._beyond_bytes += size
            return True
        return False

    def _waits_for_all(self) -> bool:
        """A frame so large that it has to be the only one: nothing may overtake it."""
        return any(size + self.held > self._large_bytes_max for size in islice(self._waiting.values(), 1))

    def _serve(self) -> None:
        while self._waiting_more:
            waiter, size = next(iter(self._waiting_more.items()))
            if not self._give_more(size, waiter):
                break
            del self._waiting_more[waiter]
            self._call_soon(waiter.granted, size)
        for waiting in (self._waiting, self._waiting_small):
            while waiting:
                waiter, size = next(iter(waiting.items()))
                if not self._fits(size):
                    break
                del waiting[waiter]
                self.taken += size
                # Not at once: whoever gave bytes back may be in the midst of a reply.
                self._call_soon(waiter.granted, size)


class LogGate:
    """Lets one line per kind through in each interval, so that a flood of bad clients does not fill a disk."""

    def __init__(self, now: Callable[[], float], interval_s: float = 10.0) -> None:
        self._now = now
        self._interval_s = interval_s
        self._last: dict[str, tuple[float, int]] = {}  # kind: time of its last line, swallowed since

    def admit(self, kind: str) -> int | None:
        """How many lines of that kind were swallowed since its last one; None: swallow this one too."""
        now = self._now()
        since, swallowed = self._last.get(kind, (now - self._interval_s, 0))
        if now - since < self._interval_s:
            self._last[kind] = (since, swallowed + 1)
            return None
        self._last[kind] = (now, 0)
        return swallowed
