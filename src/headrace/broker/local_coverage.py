"""What this node has of tiered partitions on its own disk: who knows it, and how it stands in messages.

The tier says so by `Coverages.of`. Without a tier nothing is reported, and no message is larger for it.
"""

from collections.abc import Callable
from typing import Protocol, TypedDict

from headrace.broker.partitions import Hosted
from headrace.core.coverage import LocalCoverage

Report = Callable[[Hosted], LocalCoverage | None]
"""None for what is not tiered, or not known."""


class Told(Protocol):
    """The private fields of a partition in Fetch, and of a member in AlterPartition."""

    local_log_start_offset: int
    coverage_since_ms: int
    local_bytes: int
    at_local_retention: bool


class Fields(TypedDict, total=False):
    local_log_start_offset: int
    coverage_since_ms: int
    local_bytes: int
    at_local_retention: bool


def report(_: Hosted) -> LocalCoverage | None:
    return None


class Coverages:
    def __init__(self) -> None:
        self.report: Report = report
        """Set by the tier."""

    def of(self, partition: Hosted) -> LocalCoverage | None:
        return self.report(partition) if partition.config.remote_storage_enable else None


def coverage_told(told: Told) -> LocalCoverage | None:
    if told.local_log_start_offset < 0:
        return None
    return LocalCoverage(told.local_log_start_offset, told.coverage_since_ms, told.local_bytes, told.at_local_retention)


def fields_of(local: LocalCoverage | None) -> Fields:
    if local is None:
        return {}
    return Fields(
        local_log_start_offset=local.local_log_start,
        coverage_since_ms=local.coverage_since_ms,
        local_bytes=local.local_bytes,
        at_local_retention=local.at_local_retention,
    )
