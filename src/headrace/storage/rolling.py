"""When a segment is full: by bytes, by age in record time, or by distance from its first offset."""

from zlib import crc32

from headrace.storage.log_config import NEVER, LogConfig
from headrace.storage.segment import RELATIVE_OFFSET_MAX, Segment
from headrace.wire.batch import BatchHeader


class RollLimits:
    """What the active segment takes. Worked out when something first exceeds it, so that an append compares only."""

    __slots__ = ("bytes_max", "offset_max", "timestamp_max")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Another segment, or other settings."""
        self.bytes_max = 0
        self.timestamp_max = self.offset_max = NEVER

    def are_exceeded(self, config: LogConfig, segment: Segment, header: BatchHeader, end: int) -> bool:
        """Whether `segment` has no place for a batch that would end at `end`. An empty one takes any that is near."""
        first_timestamp = segment.first_timestamp()
        self.bytes_max = config.segment_bytes
        self.timestamp_max = first_timestamp + age_ms_max(config, segment) if first_timestamp >= 0 else NEVER
        self.offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        are_exceeded = header.last_offset > self.offset_max or (
            end > header.size and (end > self.bytes_max or header.max_timestamp > self.timestamp_max)
        )
        if not segment.size:
            self.forget()  # they depend on what is about to be written
        return are_exceeded


def age_ms_max(config: LogConfig, segment: Segment) -> int:
    if not config.segment_jitter_ms:
        return config.segment_ms
    # So that partitions which began together do not roll together; the same after a restart.
    return config.segment_ms - crc32(segment.log.path.encode()) % min(config.segment_jitter_ms, config.segment_ms)
