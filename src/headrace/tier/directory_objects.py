"""Objects of a directory that are being read stay open: what the kernel has in memory of them can then be read without
a thread, and a thread that reads them fights less often with the loop for the interpreter."""

import asyncio

from headrace.storage.files import ReadFile

OBJECTS_MAX = 256

IDLE_S = 10.0
"""An object that nobody reads for so long is closed: deleted by another node, it would keep its place on the disk."""


class OpenObjects:
    def __init__(self) -> None:
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

    def keep(self, key: str, file: ReadFile) -> None:
        self._files.pop(key, None)
        if len(self._files) >= OBJECTS_MAX:
            del self._files[next(iter(self._files))]
        self._files[key] = file
        self._used.add(key)
        self._look_later()

    def forget(self, key: str) -> None:
        self._files.pop(key, None)

    def close(self) -> None:
        self._files.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._close_idle)

    def _close_idle(self) -> None:
        self._timer = None
        used, self._used = self._used, set()
        self._files = {key: file for key, file in self._files.items() if key in used}
        if self._files:
            self._look_later()
