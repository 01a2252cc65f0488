"""Hearing that anybody has written to a file: from the kernel where it tells (inotify), else by looking."""

import asyncio
import contextlib
import ctypes
import os
from pathlib import Path

LOOK_MS = 15
"""How often the file is looked at where the kernel does not tell."""
SETTLE_MS = 2
"""A commit writes several times; one question at its end is enough."""
_IN_MODIFY = 0x2
_EVENTS_BYTES = 4096


class Written:
    """Of one file that stays. Made and closed on the loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.Future[None] | None = None
        self._is_written = False
        self._fd = _notifications(path)
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._on_event)
        self._seen = self._look()

    @property
    def is_told(self) -> bool:
        return self._fd is not None

    async def wait(self, timeout_ms: int) -> bool:
        """Until somebody has written since the last call, or for so long; whether somebody has."""
        if self._fd is None:
            await self._look_until(self._loop.time() + timeout_ms / 1000)
        elif not self._is_written:
            wake = self._wake = self._loop.create_future()
            timer = self._loop.call_later(timeout_ms / 1000, _finish, wake)
            try:
                await wake
            finally:
                timer.cancel()
                self._wake = None
        if not self._is_written:
            return False
        await asyncio.sleep(SETTLE_MS / 1000)
        self._is_written = False
        return True

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            self._loop.remove_reader(fd)
            os.close(fd)

    def _on_event(self) -> None:
        assert self._fd is not None
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, _EVENTS_BYTES)
        self._is_written = True
        if self._wake is not None:
            _finish(self._wake)

    async def _look_until(self, end_s: float) -> None:
        while self._loop.time() < end_s and not self._is_written:
            await asyncio.sleep(LOOK_MS / 1000)
            seen, self._seen = self._seen, self._look()
            self._is_written = seen != self._seen

    def _look(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def _finish(wake: "asyncio.Future[None]") -> None:
    if not wake.done():
        wake.set_result(None)


def _notifications(path: Path) -> int | None:
    """A descriptor that can be read whenever the file was written to; None where there is no such thing."""
    try:
        system = ctypes.CDLL(None, use_errno=True)
        fd: int = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (AttributeError, OSError):
        return None  # another system
    if fd < 0:
        return None
    if system.inotify_add_watch(fd, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(fd)
        return None
    return fd
