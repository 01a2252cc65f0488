"""What a log is made from, and who may be at work on it."""

from dataclasses import dataclass, field
from typing import Protocol

from headrace.core.epochs import NO_EPOCH, EpochList
from headrace.core.producers import ProducerTable
from headrace.storage.local_part import LocalPart
from headrace.storage.recovery import Recovery
from headrace.storage.segment import Segment
from headrace.storage.segments import Segments


@dataclass(slots=True)
class Contents:
    """What opening found in a partition directory; without more than segments, in none."""

    segments: Segments
    epochs: EpochList = field(default_factory=EpochList)
    epoch_on_disk: int = NO_EPOCH
    producers: ProducerTable = field(default_factory=ProducerTable)
    log_start_offset: int = 0
    log_end_offset: int = 0
    recovery_point: int = 0
    recovery: Recovery | None = None
    unsynced_segments: list[Segment] = field(default_factory=list)
    local: LocalPart | None = None
    lost_beginning: range | None = None


class Cleaning(Protocol):
    """A round of compaction."""

    def interrupt(self) -> None:
        """Its segments are about to change: it ends here."""
        ...

    def finish_moves(self) -> None:
        """A segment that is on its way into its place is there then."""
        ...

    def dropping(self, first_offset: int) -> None:
        """Segments before that offset are about to go. No segment is on its way into its place."""
        ...

    def abandon(self) -> None: ...
