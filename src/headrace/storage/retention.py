"""Which segments have had their time. Counts from the oldest on; nothing here touches a file."""

from headrace.storage.segment import Segment
from headrace.storage.segments import Segments


def below(segments: Segments, log_start_offset: int) -> int:
    """Segments that hold nothing at or after `log_start_offset`. The active one always stays."""
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= log_start_offset:
        count += 1
    return count


def expired(segments: Segments, retention_ms: int, retention_bytes: int, now_ms: int, limit_offset: int) -> int:
    """Segments that retention by time or by size no longer keeps, and that end at or below `limit_offset`.

    It may be all of them. -1 is no limit of time, or of bytes.
    """
    excess_bytes = segments.size_bytes - retention_bytes if retention_bytes >= 0 else -1
    count = 0
    for segment in segments:
        if segment.end_offset > limit_offset or not segment.size:
            break
        if not (excess_bytes >= segment.size or is_old(segment, retention_ms, now_ms)):
            break
        excess_bytes -= segment.size
        count += 1
    return count


def is_old(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0:
        return False
    newest_ms = segment.newest_ms()
    if newest_ms > now_ms:
        # Records from the future would stay for ever: what counts then is when they were written.
        newest_ms = segment.modified_ms()
    return now_ms - newest_ms > retention_ms
