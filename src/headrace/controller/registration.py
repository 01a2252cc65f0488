"""A node's registration: a key under a lease, whose create revision is the epoch of this incarnation.

The previous registration of the same data directory is taken back first: whoever holds the directory's lock knows that
the process before is dead. Any other registration under our number is waited out, and never taken.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from headrace.controller.feed import Feed
from headrace.core.cluster import BrokerRecord, Diff
from headrace.metadata import records
from headrace.metadata.store import KV, Cmp, Lease, MetadataStoreError, MetaStore, OutcomeUnknown, Put
from headrace.runtime import Clock

log = logging.getLogger(__name__)

GRACE_MS = 2_000
"""How much longer than a lease somebody else's registration is waited for."""
RETRY_S = 0.1
WITHDRAW_S_MAX = 4.0
"""How long a stop waits for the store to take a registration back."""
OFFLINE_IN_ONE_KEY = 10_000


class NotRegistered(Exception):
    """The node cannot have its number. One sentence."""


@dataclass(frozen=True, slots=True)
class Past:
    """What the data directory says of the registration before, and what it must know of this one."""

    lease_id: int = 0
    incarnation: str = ""
    broker_epoch: int = -1
    intact_since: int = 0
    """The oldest epoch since which nothing was lost; 0: as of the next registration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a node lives. The address is the one that clients are told."""

    host: str
    port: int
    origin: str = ""
    rack: str | None = None
    log_dirs: tuple[str, ...] = ()


class Registration:
    def __init__(
        self,
        store: MetaStore,
        feed: Feed,
        clock: Clock,
        new_incarnation: Callable[[], str],
        *,
        past: Past | None = None,
        remember: Callable[[Past], None] = lambda _: None,
        ttl_ms: int,
        beat_ms: int,
    ) -> None:
        """`remember` stores what the next start must know, before it returns."""
        self.past = Past() if past is None else past
        self.lease: Lease | None = None
        self.record: BrokerRecord | None = None
        self.epoch = 0
        """0 while this process has no registration."""
        self.on_usurped: Callable[[str], None] = lambda _: None
        """Another incarnation stands under our number: this process must end. With one sentence."""
        self.on_kept: Callable[[asyncio.Task[None]], None] = lambda _: None
        """Told of the task that renews the registration."""
        self.offline: frozenset[tuple[bytes, int]] = frozenset()
        self._store = store
        self._feed = feed
        self._clock = clock
        self._new_incarnation = new_incarnation
        self.remember = remember
        self._ttl_ms, self._beat_ms = ttl_ms, beat_ms
        self._id = feed.image.node_id
        self._key = records.broker_key(self._id)
        self._place: Place | None = None
        self._granted: Lease | None = None
        self._is_leaving = False
        self._wake = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def incarnation(self) -> str:
        return "" if self.record is None else self.record.incarnation

    def is_valid(self) -> bool:
        """Whether no other node can have seen this registration end."""
        return bool(self.epoch) and self.lease is not None and self.lease.is_valid(self._clock.boot_ms())

    async def register(self, place: Place) -> None:
        """Raises NotRegistered, MetadataStoreError. From here on the registration is renewed when it is lost."""
        self._place = place
        await self._register()
        self._feed.listeners.append(self._after)
        self._keeper = asyncio.create_task(self._keep())
        self.on_kept(self._keeper)

    def lost_data(self) -> None:
        """A disk has failed: from now on nobody may take this node's log for whole. Raises OSError."""
        if self.past.intact_since:
            self._set_past(replace(self.past, intact_since=0))

    async def announce_offline(self, replicas: frozenset[tuple[bytes, int]]) -> None:
        """All replicas that this process does not serve any more; tells them again after every new registration."""
        self.offline = replicas
        while self.epoch and self.lease is not None:
            epoch, lease_id = self.epoch, self.lease.id
            try:
                if await self._write_offline(epoch, lease_id):
                    return
            except (MetadataStoreError, OutcomeUnknown) as failure:
                log.warning("offline replicas are announced again: %s", failure)
            await asyncio.sleep(RETRY_S)

    async def leave(self) -> None:
        """Says that this node shuts down: it is not elected any more, and may join no ISR."""
        self._is_leaving = True
        while self.record is not None and self.epoch and self.lease is not None:
            leaving = msgspec.structs.replace(self.record, state="shutting_down")
            put = Put(self._key, records.encode(leaving), self.lease.id)
            try:
                ok, rev = await self._store.txn([Cmp(self._key, self.epoch, "create")], [put])
            except (MetadataStoreError, OutcomeUnknown) as failure:
                log.warning("the shutdown is announced again: %s", failure)
                await asyncio.sleep(RETRY_S)
                continue
            if ok:
                self.record = leaving
                await self._feed.reached(rev)
            return

    async def close(self, *, withdraw: bool) -> None:
        """Takes the registration back, or leaves it to its lease."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if self._after in self._feed.listeners:
            self._feed.listeners.remove(self._after)
        self.epoch = 0
        if withdraw and self.lease is not None:
            try:
                async with asyncio.timeout(WITHDRAW_S_MAX):
                    await self._store.revoke(self.lease.id)
            except (MetadataStoreError, OutcomeUnknown, TimeoutError) as failure:
                reason = str(failure) or "the metadata store does not answer"
                log.warning("the registration of node %d ends with its lease: %s", self._id, reason)

    def _after(self, diff: Diff) -> None:
        if self._id in diff.brokers_changed:
            self._look()

    def _look(self) -> None:
        if not self.epoch:
            return
        found = self._feed.deltas.registrations.get(self._id)
        if found is not None and found.record.incarnation != self.incarnation:
            self.epoch = 0
            self.on_usurped(self._usurped())
        elif found is None or found.create_rev != self.epoch:
            self.epoch = 0
            self._wake.set()

    async def _keep(self) -> None:
        while True:
            assert self.lease is not None
            lost = asyncio.create_task(self.lease.lost.wait())
            woken = asyncio.create_task(self._wake.wait())
            try:
                await asyncio.wait([lost, woken], return_when=asyncio.FIRST_COMPLETED)
            finally:
                lost.cancel()
                woken.cancel()
            self._wake.clear()
            self.epoch = 0
            log.warning("node %d has lost its registration, and registers again", self._id)
            while not self.epoch:
                try:
                    await self._register()
                except NotRegistered as refused:
                    self.on_usurped(str(refused))
                    return
                except (MetadataStoreError, OutcomeUnknown) as failure:
                    log.warning("node %d cannot register for now: %s", self._id, failure)
                    await asyncio.sleep(RETRY_S)

    async def _register(self) -> None:
        place = self._place
        assert place is not None
        epoch = None
        while epoch is None:
            if self._granted is not None:  # by an attempt that failed, or lost: nothing under it may appear any more
                await self._store.revoke(self._granted.id)
            await self._make_room(place.origin)
            lease = self._granted = await self._store.grant(self._ttl_ms, self._beat_ms)
            record = self._new_record(place)
            # Before the key: if this process dies in between, the next one knows that it is its own.
            self._set_past(replace(self.past, lease_id=lease.id, incarnation=record.incarnation))
            epoch = await self._create(record, lease)
        self._set_past(replace(self.past, broker_epoch=epoch, intact_since=self.past.intact_since or epoch))
        await self._feed.reached(epoch)
        self.lease, self.record, self.epoch = lease, record, epoch
        self._look()  # it may have ended meanwhile
        self._feed.touch()
        if self.offline:
            await self._write_offline(epoch, lease.id)

    def _new_record(self, place: Place) -> BrokerRecord:
        return BrokerRecord(
            self._new_incarnation(),
            place.host,
            place.port,
            place.rack,
            origin=place.origin,
            log_dirs=place.log_dirs,
            state="shutting_down" if self._is_leaving else "up",
            intact_since=self.past.intact_since,
            last_epoch=self.past.broker_epoch,
        )

    def _set_past(self, past: Past) -> None:
        self.remember(past)
        self.past = past

    async def _make_room(self, origin: str) -> None:
        time = asyncio.get_running_loop().time
        patience_s = (self._ttl_ms + GRACE_MS) / 1000
        deadline, is_told = time() + patience_s, False
        while (found := await self._find()) is not None:
            record = records.decode(BrokerRecord, self._key, found.value)
            is_ours = record.incarnation == self.past.incarnation and record.origin == origin
            if is_ours:
                # The epoch may have been given, and used, and not been noted down.
                self._set_past(replace(self.past, broker_epoch=max(self.past.broker_epoch, found.create_rev)))
                await self._store.revoke(self.past.lease_id)
            if is_ours or not record.origin:  # an older program's has no lease, and there was one such node only
                if not (await self._store.txn([Cmp(self._key, found.mod_rev)], deletes=[self._key])).ok:
                    continue
            elif self._keeper is not None or time() > deadline:  # one that was registered never takes its number back
                raise NotRegistered(self._usurped())
            else:
                if not is_told:
                    is_told = True
                    log.info(
                        "node %d is registered, not by this directory: waiting %g s at most for the end of its session",
                        self._id,
                        patience_s,
                    )
                await asyncio.sleep(RETRY_S)

    def _usurped(self) -> str:
        return f"Another process is registered as node {self._id}; give every node a number of its own"

    async def _find(self) -> KV | None:
        return next((kv for kv in (await self._store.load(self._key)).kvs if kv.key == self._key), None)

    async def _create(self, record: BrokerRecord, lease: Lease) -> int | None:
        """The epoch; None when somebody else was faster. Who comes first becomes the controller by the same write."""
        controller = records.ControllerRecord(self._id, record.incarnation)
        own = Put(self._key, records.encode(record), lease.id)
        office = Put(records.CONTROLLER_KEY, records.encode(controller), lease.id)
        puts = [own] if self._feed.image.controller is not None or self._is_leaving else [own, office]
        while True:
            try:
                ok, rev = await self._store.txn([Cmp(put.key, 0) for put in puts], puts)
                if ok:
                    return rev
            except OutcomeUnknown as failure:
                log.warning("the registration of node %d is looked up: %s", self._id, failure)
            found = await self._find()
            if found is not None:
                if records.decode(BrokerRecord, self._key, found.value).incarnation == record.incarnation:
                    return found.create_rev
                return None
            puts = [own]

    async def _write_offline(self, epoch: int, lease_id: int) -> bool:
        """False when the registration is another one by now."""
        ordered = sorted(self.offline)
        parts = [ordered[at : at + OFFLINE_IN_ONE_KEY] for at in range(0, len(ordered), OFFLINE_IN_ONE_KEY)]
        known = {kv.key: kv.mod_rev for kv in (await self._store.load(records.offline_key(self._id, 0)[:-1])).kvs}
        puts = []
        for part, replicas in enumerate(parts):
            record = records.OfflineRecord(tuple((topic_id.hex(), index) for topic_id, index in replicas))
            puts.append(Put(records.offline_key(self._id, part), records.encode(record), lease_id))
        deletes = sorted(known.keys() - {put.key for put in puts})
        when = [Cmp(key, known.get(key, 0)) for key in [put.key for put in puts] + deletes]
        ok, rev = await self._store.txn([*when, Cmp(self._key, epoch, "create")], puts, deletes)
        if ok:
            await self._feed.reached(rev)
        return ok
