"""Files and directories that have their last name, and go when their delay (`file.delete.delay.ms`) is over.

`put` is for the loop; everything else for the one thread that removes, since a gigabyte takes its time.
"""

import heapq
from collections import deque
from contextlib import suppress

from headrace.storage.files import Files

WAITING_MAX = 100_000
"""Names that wait at one time; with more of them, those that are due next go before their time."""

REMOVED_AT_ONCE_MAX = 100
"""So that a sync which somebody waits for gets its turn between."""

RETRY_MS = 60_000


class Trash:
    __slots__ = ("_files", "_new", "_waiting")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._new: deque[tuple[str, int]] = deque()
        self._waiting: list[tuple[int, str]] = []
        """A heap: when it is due, and what."""

    def __len__(self) -> int:
        return len(self._new) + len(self._waiting)

    def put(self, path: str, delay_ms: int) -> None:
        """The delay begins when the trash is looked at next."""
        self._new.append((path, delay_ms))

    def empty(self, now_ms: int) -> bool:
        """Removes some of what is due; whether there is more. What cannot be removed is tried again, and raised."""
        while self._new:
            path, delay_ms = self._new.popleft()
            heapq.heappush(self._waiting, (now_ms + delay_ms, path))
        failure: OSError | None = None
        for _ in range(REMOVED_AT_ONCE_MAX):
            if not self._is_due(now_ms):
                break
            _, path = heapq.heappop(self._waiting)
            try:
                self._remove(path)
            except OSError as error:
                failure = error
                self.put(path, RETRY_MS)
        if failure is not None:
            raise failure
        return self._is_due(now_ms)

    def _is_due(self, now_ms: int) -> bool:
        return bool(self._waiting) and (self._waiting[0][0] <= now_ms or len(self._waiting) > WAITING_MAX)

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            if self._files.is_directory(path):
                self._files.remove_tree(path)
            else:
                self._files.remove(path)
