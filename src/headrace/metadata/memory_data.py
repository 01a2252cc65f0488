"""What the clients of a metadata store in memory share, as processes share a server: keys, revisions, leases."""

import asyncio
import contextvars
from collections.abc import Sequence

from headrace.metadata.store import KV, Cmp, Compacted, Event, MetadataStoreError, Put, Revision, Snapshot, TxnResult
from headrace.runtime import Clock

LOG_REVISIONS = 10_000
"""How many revisions are kept for those who watch."""


class LoopClock:
    """The time of the running loop, which need not be real; for those who are handed no clock."""

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return self.monotonic_ms()

    def boot_ms(self) -> int:
        return self.monotonic_ms()

    def boot_id(self) -> str:
        return "loop"


class _Granted:
    __slots__ = ("expires_ms", "ttl_ms")

    def __init__(self, ttl_ms: int, expires_ms: int) -> None:
        self.ttl_ms = ttl_ms
        self.expires_ms = expires_ms


class Watches(dict[asyncio.Event, None]):
    """A set that keeps its order: who is woken first must not depend on addresses in memory."""

    def add(self, woken: asyncio.Event) -> None:
        self[woken] = None

    def discard(self, woken: asyncio.Event) -> None:
        self.pop(woken, None)


class MemoryData:
    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = LoopClock() if clock is None else clock
        self.context = contextvars.copy_context()
        """That of whoever made it: what the server does later belongs to no node."""
        self.rev = 0
        self.compacted = 0
        self.kvs: dict[bytes, KV] = {}
        self.watches = Watches()
        """Set at every revision."""
        self._log: list[Revision] = []
        self._leases: dict[int, _Granted] = {}
        self._lease_of: dict[bytes, int] = {}
        self._last_lease = 0

    def load(self, prefix: bytes) -> Snapshot:
        self.expire()
        return Snapshot([self.kvs[key] for key in sorted(self.kvs) if key.startswith(prefix)], self.rev)

    def txn(self, when: Sequence[Cmp], puts: Sequence[Put], deletes: Sequence[bytes]) -> TxnResult:
        self.expire()
        if not all(self._holds(compare) for compare in when):
            return TxnResult(False, self.rev)
        if any(put.lease and put.lease not in self._leases for put in puts):
            raise MetadataStoreError("The lease of a key to write is gone")
        self._write(puts, deletes)
        return TxnResult(True, self.rev)

    def next_revision(self, after_rev: int) -> Revision | None:
        if after_rev < self.compacted:
            raise Compacted(f"The metadata store forgot what was before revision {self.compacted}")
        # Revisions have no gaps, so that each stands at a known place.
        place = after_rev - self.rev + len(self._log)
        return self._log[place] if place < len(self._log) else None

    def compact(self, rev: int) -> None:
        self.compacted = max(self.compacted, min(rev, self.rev))
        del self._log[: max(0, self.compacted - self.rev + len(self._log))]

    def grant(self, ttl_ms: int) -> int:
        self.expire()
        self._last_lease += 1
        self._leases[self._last_lease] = _Granted(ttl_ms, self.clock.boot_ms() + ttl_ms)
        for woken in self.watches:  # they wait for the next lease to run out, which may be this
            woken.set()
        return self._last_lease

    def beat(self, lease_id: int) -> bool:
        self.expire()
        granted = self._leases.get(lease_id)
        if granted is not None:
            granted.expires_ms = self.clock.boot_ms() + granted.ttl_ms
        return granted is not None

    def revoke(self, lease_id: int) -> None:
        if self._leases.pop(lease_id, None) is not None:
            self._write((), [key for key, holder in self._lease_of.items() if holder == lease_id])

    def expire(self) -> None:
        if not self._leases:
            return
        now_ms = self.clock.boot_ms()
        for lease_id in [lease_id for lease_id, granted in self._leases.items() if granted.expires_ms <= now_ms]:
            self.revoke(lease_id)

    def next_expiry_ms(self) -> int | None:
        return min((granted.expires_ms for granted in self._leases.values()), default=None)

    def _write(self, puts: Sequence[Put], deletes: Sequence[bytes]) -> None:
        deleted = [key for key in deletes if key in self.kvs]
        if not puts and not deleted:
            return
        self.rev += 1
        events = [Event(key, None, self.rev) for key in deleted]
        for key in deleted:
            del self.kvs[key]
            self._lease_of.pop(key, None)
        for put in puts:
            known = self.kvs.get(put.key)
            create_rev = self.rev if known is None else known.create_rev
            self.kvs[put.key] = KV(put.key, put.value, create_rev, self.rev)
            self._lease_of.pop(put.key, None)
            if put.lease:
                self._lease_of[put.key] = put.lease
            events.append(Event(put.key, put.value, self.rev, create_rev))
        self._log.append(Revision(self.rev, tuple(sorted(events))))
        if len(self._log) > 2 * LOG_REVISIONS:
            self.compact(self.rev - LOG_REVISIONS)
        for woken in self.watches:
            woken.set()

    def _holds(self, compare: Cmp) -> bool:
        known = self.kvs.get(compare.key)
        if known is None:
            return compare.rev == 0
        return compare.rev == (known.mod_rev if compare.field == "mod" else known.create_rev)
