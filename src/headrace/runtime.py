"""What a node is handed from outside: time, chance, and the way off the loop.

Nothing in a node reads a clock, draws a random number or starts a thread by itself. Production and the
simulator hand in their own, and run the very same code.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    def monotonic_ms(self) -> int:
        """For time-outs and ages: never goes back, says nothing about the date."""
        ...

    def wall_ms(self) -> int:
        """For record timestamps and retention only."""
        ...

    def boot_ms(self) -> int:
        """For leases only: goes on while the machine is suspended, and is one and the same for all its processes."""
        ...

    def boot_id(self) -> str:
        """Which boot of which machine `boot_ms` counts from."""
        ...


class Random(Protocol):
    def bits(self, count: int) -> int:
        """An unpredictable number of that many bits."""
        ...


class Offload(Protocol):
    """The one way off the event loop. Jobs of a lane run one at a time, in the order they were given."""

    def run(self, lane: str, job: Callable[[], T]) -> asyncio.Future[T]: ...


class StepsLost(Exception):
    """Whoever took the steps is gone. The text is one clause."""


class Apart(Protocol):
    """Long work in steps, each taken where it does not hold up the loop: `next` waits for it, in a lane of `Offload`.

    One such work at a time; the next one ends it. What is handed over, and what the steps give, can be pickled.
    """

    def begin(self, work: Callable[[], Iterator[T]]) -> Iterator[T]: ...

    def rest(self) -> None:
        """There is nothing to do for a while."""
        ...


class BesideLoop:
    """Takes the steps in the thread that asks for them."""

    def __init__(self) -> None:
        self._close: Callable[[], None] = lambda: None

    def begin(self, work: Callable[[], Iterator[T]]) -> Iterator[T]:
        self.rest()
        steps = work()
        self._close = getattr(steps, "close", self._close)
        return steps

    def rest(self) -> None:
        self._close()


def tell_bug(what: str, error: Exception) -> None:
    """A part goes on after what it should never have met. The loop's handler tells it: by a traceback in the log, and
    in the simulator by a run that has failed."""
    asyncio.get_running_loop().call_exception_handler({"message": what, "exception": error})
