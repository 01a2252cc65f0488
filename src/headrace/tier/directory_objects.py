"""Segments of a directory that are being read stay open: what the kernel has in memory of them can then be read without
a thread, and a thread that reads them fights less often with the loop for the interpreter."""

import asyncio
from collections.abc import Callable

from headrace.storage.files import ReadFile

OBJECTS_MAX = 64
"""Half of the descriptors that a node leaves to whatever is neither a data file nor a connection."""

IDLE_S = 10.0
"""An object that nobody reads for so long is closed: deleted by another node, it would keep its place on the disk."""


class OpenObjects:
    """`close` is given files that nobody needs any more, in a list of its own: to close a large one that is deleted
    takes the disk a while."""

    def __init__(self, close: Callable[[list[ReadFile]], None]) -> None:
        self._close = close
        self._files: dict[str, ReadFile] = {}
        """What was used last is last."""
        self._used: set[str] = set()
        """Since the timer began."""
        self._timer: asyncio.TimerHandle | None = None

    def get(self, key: str) -> ReadFile | None:
        file = self._files.pop(key, None)
        if file is not None:
            self._files[key] = file
            self._used.add(key)
        return file

    def take(self, key: str) -> ReadFile | None:
        return self._files.pop(key, None)

    def keep(self, key: str, file: ReadFile) -> None:
        self.forget(key)
        if len(self._files) >= OBJECTS_MAX:
            self.forget(next(iter(self._files)))
        self._files[key] = file
        self._used.add(key)
        self._look_later()

    def forget(self, key: str) -> None:
        if key in self._files:
            self._close([self._files.pop(key)])

    def take_all(self) -> list[ReadFile]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        files = list(self._files.values())
        self._files.clear()
        return files

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._close_idle)

    def _close_idle(self) -> None:
        self._timer = None
        used, self._used = self._used, set()
        idle = [self._files.pop(key) for key in list(self._files) if key not in used]
        if idle:
            self._close(idle)
        if self._files:
            self._look_later()
