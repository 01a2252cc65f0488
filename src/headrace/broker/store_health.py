"""Whether this node hears from the metadata store. What needs no change of metadata is served without it."""

from headrace.controller.registration import Registration
from headrace.runtime import Clock

BEATS_MISSED = 2
GRACE_MS = 500


class StoreHealth:
    def __init__(self, registration: Registration, clock: Clock, beat_ms: int) -> None:
        self._registration = registration
        self._clock = clock
        self._beat_ms = beat_ms

    def lease_remaining_ms(self) -> int:
        """How long this node may tell offsets without hearing from the store again."""
        lease = self._registration.lease
        if lease is None or not self._registration.is_valid():
            return 0
        margin_ms = max(500, lease.ttl_ms // 16)
        return max(0, lease.beat_sent_ms + lease.ttl_ms - margin_ms - self._clock.boot_ms())

    def unavailable_ms(self) -> int:
        """0 while the store answers in time."""
        lease = self._registration.lease
        if lease is None:
            return 0
        silent_ms = self._clock.boot_ms() - lease.beat_sent_ms
        return silent_ms if silent_ms > self._beat_ms * BEATS_MISSED + GRACE_MS else 0

    def trouble(self) -> str:
        """One line for those who ask whether the node is ready; empty when all is well."""
        silent_ms = self.unavailable_ms()
        if silent_ms:
            served = "data is served" if self.lease_remaining_ms() else "data is served, latest offsets are not told"
            return f"the metadata store has not answered for {silent_ms} ms: {served}"
        if not self._registration.is_valid():
            return "the node is not registered: its registration ended, and the next one is not there yet"
        return ""
