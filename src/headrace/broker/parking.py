"""Fetches that wait for data: their timers, and the events that end the waiting.

A waiting fetch costs one timer and nothing per partition. What an event completes is answered at the end of the loop's
turn, so that everything appended in one turn goes out in one answer.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from headrace.broker.partitions import Hosted, Partitions
from headrace.config import BrokerConfig
from headrace.core.acl import Allowed, Operation, topic
from headrace.core.fetch_answer import Fetch
from headrace.core.fetch_entries import watching
from headrace.core.fetch_sessions import FetchSessions
from headrace.core.ownership_gate import Gated
from headrace.net.connection import Connection
from headrace.net.turn import Turn
from headrace.runtime import Random

SESSION_PARTITIONS_MAX = 1_000_000
"""In all sessions together; each costs a quarter of a kilobyte."""

ANSWER_BYTES_PER_TURN = 8 << 20
"""When many wake at once, the others of this loop run in between."""


UNOWNED_WAIT_MS = 500
"""How long a fetch waits, at most, for a partition that nobody owns and only an owner may read."""


class Waiting(Protocol):
    """The request behind a parked fetch."""

    @property
    def connection(self) -> Connection: ...
    def answer(self, fetch: Fetch) -> int:
        """Returns the bytes of records that it sent."""
        ...


class FetchEvents:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turn: Turn,
        random: Random,
        partitions: Partitions,
        is_allowed: Allowed,
        config: BrokerConfig,
    ) -> None:
        self._loop = loop
        self._turn = turn
        self._waiting: dict[Fetch, tuple[Waiting, asyncio.TimerHandle]] = {}
        self._by_connection: dict[Connection, dict[Fetch, None]] = {}
        self._woken: dict[Fetch, None] = {}
        self.sessions = FetchSessions(
            slots_max=config.max_incremental_fetch_session_cache_slots,
            partitions_max=SESSION_PARTITIONS_MAX,
            fetch_bytes_max=config.fetch_max_bytes,
            draw_id=lambda: random.bits(31),
            find_by_name=partitions.find_by_name,
            find_by_id=partitions.find,
            allowed=lambda principal, name: is_allowed(principal, Operation.READ, topic(name)),
        )

    # Waiting.

    def park(self, fetch: Fetch, waiting: Waiting) -> None:
        """`fetch` was parked by its session; it is answered by an event, or when it has waited long enough."""
        wait_ms = min(fetch.wait_ms_max, UNOWNED_WAIT_MS) if fetch.session.unowned else fetch.wait_ms_max
        timer = self._loop.call_later(wait_ms / 1000, self.answer, (fetch,))
        self._waiting[fetch] = (waiting, timer)
        self._by_connection.setdefault(waiting.connection, {})[fetch] = None

    def answer(self, fetches: Iterable[Fetch]) -> None:
        """At once, whatever there is."""
        for fetch in fetches:
            self._answer(fetch)

    def connection_closed(self, connection: Connection) -> None:
        """Its fetches wait for nobody. Sessions live on: the client may come back on another connection."""
        for fetch in list(self._by_connection.get(connection, ())):
            self._take(fetch)
            self.sessions.abandon(fetch)

    def answer_all(self) -> None:
        """The node stops: nobody shall wait for the end of a long poll."""
        self.answer(list(self._waiting))

    def _answer(self, fetch: Fetch) -> int:
        waiting = self._take(fetch)
        return waiting.answer(fetch) if waiting is not None else 0

    def _take(self, fetch: Fetch) -> Waiting | None:
        self._woken.pop(fetch, None)
        found = self._waiting.pop(fetch, None)
        if found is None:
            return None
        waiting, timer = found
        timer.cancel()
        fetches = self._by_connection[waiting.connection]
        del fetches[fetch]
        if not fetches:
            del self._by_connection[waiting.connection]
        return waiting

    # Events. What they tell of must be true of the partition already.

    def appended(self, partition: Hosted) -> None:
        """The log end moved, and mostly the high watermark and the last stable offset with it."""
        self._wake(self.sessions.advanced(partition))

    def high_watermark_moved(self, partition: Hosted) -> None:
        """Without an append. The last stable offset moves with it, and never without."""
        self._wake(self.sessions.advanced(partition))

    def log_start_moved(self, partition: Hosted) -> None:
        self._wake(self.sessions.changed(partition))

    def tier_loaded(self, partition: Hosted) -> None:
        """What somebody may wait for has come from the tier, or will not come."""
        self._wake(self.sessions.advanced(partition))

    def replica_changed(self, partition: Hosted) -> None:
        """Its leader epoch, its leadership, its disk; or it was truncated."""
        self._wake(self.sessions.changed(partition))

    def ownership_changed(self, partition: Hosted) -> None:
        """Others may read it now than before. Who hears that nobody may, hears it soon."""
        self._wake(self.sessions.changed(partition))
        for entry in watching(partition):
            fetch = entry.session.waiter
            if fetch is not None and entry.fault is Gated.UNOWNED and fetch in self._waiting:
                waiting, timer = self._waiting[fetch]
                if timer.when() > self._loop.time() + UNOWNED_WAIT_MS / 1000:
                    timer.cancel()
                    timer = self._loop.call_later(UNOWNED_WAIT_MS / 1000, self.answer, (fetch,))
                    self._waiting[fetch] = (waiting, timer)

    def replica_removed(self, partition: Hosted) -> None:
        """It is no longer found among the partitions."""
        self._wake(self.sessions.removed(partition))

    def partition_known(self, topic: str, topic_id: bytes, index: int) -> None:
        """It is hosted from now on, or known to exist."""
        self._wake(self.sessions.placed(topic, topic_id, index))

    def replica_gone(self, replica_id: int, broker_epoch: int) -> None:
        """That registration of a node does not stand any more."""
        self._wake(self.sessions.replica_gone(replica_id, broker_epoch))

    @property
    def anybody_waits_for_partitions(self) -> bool:
        return self.sessions.anybody_waits_for_partitions

    def _wake(self, fetches: list[Fetch]) -> None:
        if not fetches:
            return
        self._woken.update(dict.fromkeys(fetches))
        self._turn.schedule()

    def end_turn(self) -> None:
        """Whoever ends the turns calls this, after what was produced is written."""
        sent = 0
        while self._woken:
            sent += self._answer(next(iter(self._woken)))
            if sent >= ANSWER_BYTES_PER_TURN and self._woken:
                self._loop.call_soon(self._turn.schedule)
                return
