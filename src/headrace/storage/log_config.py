"""The settings that a log acts on. Frozen, so that many logs share one."""

from dataclasses import dataclass

UNLIMITED = -1
NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Defaults are Kafka's."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10 << 20
    retention_ms: int = 604_800_000
    retention_bytes: int = UNLIMITED
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    file_delete_delay_ms: int = 60_000
    is_compacted: bool = False
    is_tiered: bool = False
    local_retention_ms: int = UNLIMITED
    """Of what is in the tier too."""
    local_retention_bytes: int = UNLIMITED

    def __post_init__(self) -> None:
        # Positions in an index are 31 bits.
        assert 0 < self.segment_bytes < 2**31
