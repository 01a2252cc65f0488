"""What of a log may be compacted, and how much it needs it. Nothing here changes anything."""

from dataclasses import dataclass

from headrace.storage.log import Log
from headrace.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class Dirt:
    """The dirty part of a log, as far as it can be cleaned now."""

    first_dirty_offset: int
    end_offset: int
    """Of the last segment that can be cleaned."""
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """How much longer than `max.compaction.lag.ms` its oldest record has waited."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_enough(self, ratio_min: float) -> bool:
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.ratio >= ratio_min)


def dirt_of(log: Log, limit_offset: int, now_ms: int, lag_ms_min: int, lag_ms_max: int) -> Dirt:
    """`limit_offset`: beyond it records are not committed, or belong to transactions that are open.

    Whole segments, without the active one, that are on the disk and of which nothing is younger than `lag_ms_min`.
    """
    limit_offset = min(limit_offset, log.recovery_point)
    first_dirty_offset = end_offset = log.first_dirty_offset
    clean_bytes = cleanable_bytes = 0
    oldest: Segment | None = None
    for segment in list(log.segments)[:-1]:
        if segment.end_offset <= first_dirty_offset:
            clean_bytes += segment.size
            continue
        if segment.end_offset > limit_offset or (lag_ms_min and segment.newest_ms() > now_ms - lag_ms_min):
            break
        oldest = oldest or segment
        cleanable_bytes += segment.size
        end_offset = segment.end_offset
    overdue_ms = 0
    if oldest is not None and lag_ms_max < now_ms:
        overdue_ms = max(now_ms - oldest.first_timestamp() - lag_ms_max, 0)
    return Dirt(first_dirty_offset, end_offset, clean_bytes, cleanable_bytes, overdue_ms)
