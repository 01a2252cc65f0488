"""Where each leader epoch began in a log: how replicas find the point up to which they agree."""

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

NO_EPOCH = -1
NO_OFFSET = -1


class EpochEntry(NamedTuple):
    """The first offset that was, or will be, written in this leader epoch."""

    epoch: int
    start_offset: int


class EpochList:
    """Epochs and start offsets, both strictly increasing from entry to entry. Epoch 0 is an epoch like any other."""

    __slots__ = ("_entries", "latest")

    latest: int
    """Epoch of the last entry, -1 without entries. A plain attribute: every append compares it."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[EpochEntry] = []
        for epoch, start_offset in entries:
            last = self._entries[-1] if self._entries else EpochEntry(NO_EPOCH, NO_OFFSET)
            if epoch <= last.epoch or start_offset <= last.start_offset:
                raise ValueError(f"Epoch {epoch} from offset {start_offset} cannot follow {tuple(last)}.")
            self._entries.append(EpochEntry(epoch, start_offset))
        self._note_latest()

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """`epoch` begins at `start_offset`. Newest entries that contradict it go. True if anything changed.

        A later offset for the latest epoch is no news: the epoch goes on.
        """
        assert epoch >= 0 and start_offset >= 0
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self._note_latest()
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch that is not above `epoch`, and the offset at which it ended.

        (-1, -1) when nothing can be said: `epoch` is undefined or newer than all. An epoch older than all
        is answered with itself and the first known start.
        """
        if epoch < 0 or epoch > self.latest:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._entries, epoch, key=_EPOCH)
        end_offset = self._entries[above].start_offset
        return (self._entries[above - 1].epoch if above else epoch), end_offset

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written; -1 if that is before all entries."""
        at = bisect_right(self._entries, offset, key=_START_OFFSET)
        return self._entries[at - 1].epoch if at else NO_EPOCH

    def truncate_from_end(self, offset: int) -> bool:
        """The log now ends at `offset`: forget epochs that began there or later. True if anything changed."""
        entries = self._entries
        before = len(entries)
        while entries and entries[-1].start_offset >= offset:
            entries.pop()
        self._note_latest()
        return len(entries) != before

    def truncate_from_start(self, offset: int) -> bool:
        """The log now begins at `offset`: the epoch that holds it begins there too, older ones are forgotten."""
        at = bisect_right(self._entries, offset, key=_START_OFFSET)
        if not at or (at == 1 and self._entries[0].start_offset == offset):
            return False
        self._entries[:at] = [EpochEntry(self._entries[at - 1].epoch, offset)]
        return True

    def clear(self) -> None:
        self._entries.clear()
        self._note_latest()

    def _note_latest(self) -> None:
        self.latest = self._entries[-1].epoch if self._entries else NO_EPOCH


_EPOCH = attrgetter("epoch")
_START_OFFSET = attrgetter("start_offset")
