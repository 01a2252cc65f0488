"""How much one micro-batch takes of what is there."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.model import TopicPartition

ByPartition = Mapping[TopicPartition, int]

RECORD_BYTES_ASSUMED = 10_000
"""Where nothing is known of any: rather more than most records have, so that a limit stays one."""


@dataclass
class Admission:
    """Remembers when the last batch was let through, for who waits for enough records but not for ever.

    The first batch of a run does not wait, as in Spark's own connector.
    """

    offsets_max: int | None
    offsets_min: int | None
    delay_ms_max: int
    bytes_max: int | None
    _last_ms: int | None = None

    @property
    def is_unlimited(self) -> bool:
        return self.offsets_max is None and self.offsets_min is None and self.bytes_max is None

    def ends(
        self,
        begins: ByPartition,
        latest: ByPartition,
        record_bytes: Mapping[TopicPartition, float],
        now_ms: int,
        *,
        may_wait: bool = True,
    ) -> dict[TopicPartition, int]:
        """Where the batch ends; where it begins if it has to wait."""
        available = sum(max(0, latest[one] - begins[one]) for one in latest)
        is_early = self._last_ms is not None and now_ms - self._last_ms < self.delay_ms_max
        if may_wait and is_early and self.offsets_min is not None and available < self.offsets_min:
            return dict(begins)
        if available:
            self._last_ms = now_ms
        limit = self._limit(begins, latest, record_bytes, available)
        return dict(latest) if limit is None or limit >= available else share_out(begins, latest, limit)

    def _limit(
        self, begins: ByPartition, latest: ByPartition, record_bytes: Mapping[TopicPartition, float], available: int
    ) -> int | None:
        limits = [] if self.offsets_max is None else [self.offsets_max]
        if self.bytes_max is not None and available:
            known = {one: latest[one] - begins[one] for one in record_bytes if latest.get(one, 0) > begins.get(one, 0)}
            mean = float(RECORD_BYTES_ASSUMED)
            if known:
                mean = sum(record_bytes[one] * count for one, count in known.items()) / sum(known.values())
            limits.append(max(1, int(self.bytes_max / mean)))
        return min(limits) if limits else None


def share_out(begins: ByPartition, latest: ByPartition, limit: int) -> dict[TopicPartition, int]:
    """About so many records in all, each partition by its share of what is there, but one at least: a small partition
    beside large ones would wait for ever."""
    sizes = {one: max(0, latest[one] - begins[one]) for one in sorted(latest)}
    total = sum(sizes.values())
    shares = {one: min(size, max(1, size * limit // total)) for one, size in sizes.items()}
    left = limit - sum(shares.values())  # by rounding; less than nothing where many have got their one
    for one, size in sizes.items():
        if left <= 0:
            break
        extra = min(left, size - shares[one])
        shares[one] += extra
        left -= extra
    return {one: begins[one] + shares[one] for one in sizes}
