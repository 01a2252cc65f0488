"""What a log is made from, and who may be at work on it."""

from dataclasses import dataclass
from typing import Protocol

from headrace.core.epochs import EpochList
from headrace.core.producers import ProducerTable
from headrace.storage.local_part import LocalPart
from headrace.storage.recovery import Recovery
from headrace.storage.segment import Segment
from headrace.storage.segments import Segments


@dataclass(slots=True)
class Contents:
    """What opening found in a partition directory."""

    segments: Segments
    epochs: EpochList
    epoch_on_disk: int
    producers: ProducerTable
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    recovery: Recovery | None
    unsynced_segments: list[Segment]
    local: LocalPart | None = None


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
