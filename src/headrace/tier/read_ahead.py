"""How far to read ahead of somebody who reads on and on.

At most a fifth of what it has read so far, and one span at the least: whoever stops has cost little more than it got.
"""

SHARE = 5
STREAMS_MAX = 1_024


class Streams:
    """Readers, each known by where it will read next: a segment and a position in its log."""

    def __init__(self, ahead_bytes_max: int) -> None:
        self._ahead_bytes_max = ahead_bytes_max
        self._read_bytes: dict[tuple[str, int], int] = {}

    def read(self, begin: tuple[str, int], end: tuple[str, int], size: int) -> int:
        """Somebody read so many bytes, from `begin` up to `end`; returns how many bytes to have ready behind it.

        None for somebody who begins here, and may not go on.
        """
        before = self._read_bytes.get(begin)
        # Two that read the same, one after the other, are one reader here.
        after = max((before or 0) + size, self._read_bytes.pop(end, 0))
        if len(self._read_bytes) >= STREAMS_MAX:
            del self._read_bytes[next(iter(self._read_bytes))]
        self._read_bytes[end] = after
        return 0 if before is None else min(max(after // SHARE, 1), self._ahead_bytes_max)

    def __len__(self) -> int:
        return len(self._read_bytes)
