"""The end of a loop turn: work that many requests of the turn share is done once, then the answers leave."""

from collections.abc import Callable
from typing import Protocol


class Writer(Protocol):
    def flush(self) -> None: ...


class Turn:
    """One per node. Whatever is queued during a turn of the event loop happens together at its end."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._scheduled = False
        self._writers: list[Writer] = []
        self.before_writes: list[Callable[[], None]] = []
        """Run first, in this order: appends, say, whose answers then leave in the same turn."""

    def schedule(self) -> None:
        """There is something to do at the end of this turn."""
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self.end)

    def write(self, writer: Writer) -> None:
        """That connection has something to send; a connection says so once until it is flushed."""
        self._writers.append(writer)
        if not self._scheduled:
            self.schedule()

    def end(self) -> None:
        try:
            for hook in self.before_writes:
                hook()
        finally:
            # Only now: what the hooks answered leaves below and needs no turn of its own.
            self._scheduled = False
            writers, self._writers = self._writers, []
            for writer in writers:
                writer.flush()
