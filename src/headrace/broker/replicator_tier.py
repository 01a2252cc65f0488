"""Followers whose leader has older records in the tier alone: where each begins, and what it has to know of before.

This runs beside the fetcher, on a connection of its own: a slow object store holds up no other partition. Whatever
goes wrong, the partition asks its leader again later.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from headrace.broker.partitions import Hosted
from headrace.broker.replicator_asking import (
    EARLIEST,
    EARLIEST_LOCAL,
    PENDING_UPLOAD,
    Leader,
    Leaders,
    ends_of_epochs,
    offset_of,
)
from headrace.config import BrokerConfig
from headrace.core.cluster import RegisteredBroker
from headrace.core.epochs import EpochEntry
from headrace.core.tier_rows import Manifest, SegmentRow
from headrace.core.tier_start import (
    NotYet,
    OffsetAndEpoch,
    Start,
    StartAt,
    StartBehind,
    begins_behind_tier,
    epoch_before,
    is_inside,
    segments_with,
    start_by_earliest_local,
    start_by_pending_upload,
)
from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from headrace.runtime import tell_bug
from headrace.tier.store import ObjectMissing, StoreUnavailable
from headrace.wire.errors import ProtocolError

STARTS_AT_ONCE = 4
"""Of one fetcher: each holds a manifest, and the producers of one partition, in memory."""


class Known(NamedTuple):
    """What was known of the log at the end of a remote segment."""

    epochs: tuple[EpochEntry, ...]
    snapshot: bytes
    """Of producers; empty if there is none."""


class StartCounts(Protocol):
    """Of one topic."""

    aux_requests: int
    aux_errors: int


class RemoteParts(Protocol):
    """The tier as followers use it. Raises StoreUnavailable, ObjectMissing, and ValueError for what cannot be read."""

    async def manifest(self, topic_id: bytes, index: int) -> Manifest | None:
        """The one in force, as far as this node knows; None if it knows of none."""
        ...

    async def known_at_end(self, topic_id: bytes, index: int, row: SegmentRow) -> Known: ...

    def counts(self, topic: str) -> StartCounts: ...


class FromTier(NamedTuple):
    """The log begins, empty, at `offset`: behind a remote segment, whose end is taken over."""

    offset: int
    log_start: int
    since_ms: int
    """Wall clock when the copy of the segment was finished: what was appended since then lies behind it."""
    known: Known


Outcome: TypeAlias = StartAt | FromTier | NotYet | ErrorCode
"""An error code is the leader's."""


class _Refused(Exception):
    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class TierStarts:
    """Of one fetcher. `on_found` is told of each partition for which it was begun and not forgotten since."""

    def __init__(
        self,
        leader: RegisteredBroker,
        leaders: Leaders,
        client_id: str,
        replica_id: int,
        tier: Callable[[], RemoteParts | None],
        config: Callable[[], BrokerConfig],
        on_found: Callable[[Hosted, int, Outcome], None],
    ) -> None:
        self._node = leader
        self._leaders = leaders
        self._client_id = client_id
        self._replica_id = replica_id
        self._tier = tier
        self._config = config
        self._on_found = on_found
        self._turns = asyncio.Semaphore(STARTS_AT_ONCE)
        self._running: dict[Hosted, tuple[int, asyncio.Task[None]]] = {}
        self._connection: Leader | None = None
        self._connecting = asyncio.Lock()

    def begin(self, partition: Hosted, leader_epoch: int, leader_end: int) -> None:
        """Nothing happens if it is on its way in this leader epoch. The leader's log ends at or after `leader_end`."""
        running = self._running.get(partition)
        if running is not None:
            if running[0] == leader_epoch:
                return
            running[1].cancel()
        task = asyncio.get_running_loop().create_task(self._run(partition, leader_epoch, leader_end))
        self._running[partition] = leader_epoch, task

    def are_behind_tier(self, partition: Hosted, leader_end: int) -> bool:
        """Whether an empty follower of it begins behind the tier, if there is one."""
        config = partition.config
        is_enabled = self._config().follower_fetch_last_tiered_offset_enable and self._tier() is not None
        is_compacted = "compact" in config.cleanup_policy
        return begins_behind_tier(
            is_enabled, config.remote_storage_enable, is_compacted, partition.log_end_offset, leader_end
        )

    def forget(self, partition: Hosted) -> None:
        running = self._running.pop(partition, None)
        if running is not None:
            running[1].cancel()

    async def close(self) -> None:
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()
        self._hang_up()

    async def _run(self, partition: Hosted, leader_epoch: int, leader_end: int) -> None:
        async with self._turns:
            outcome = await self._outcome(partition, leader_epoch, leader_end)
        running = self._running.get(partition)
        if running is None or running[1] is not asyncio.current_task():
            return
        del self._running[partition]
        if not self._running:
            self._hang_up()
        self._on_found(partition, leader_epoch, outcome)

    async def _outcome(self, partition: Hosted, leader_epoch: int, leader_end: int) -> Outcome:
        tier = self._tier()
        if tier is None:
            return NotYet("this node has no tier: remote.log.storage.system.enable is false")
        counts = tier.counts(partition.topic)
        counts.aux_requests += 1
        try:
            outcome = await self._find(tier, partition, leader_epoch, leader_end)
        except _Refused as refused:
            outcome = refused.error
        except (PeerLost, ProtocolError, TimeoutError) as error:
            self._hang_up()
            outcome = NotYet(f"node {self._node.id} does not answer: {error}")
        except (StoreUnavailable, ObjectMissing, ValueError) as error:
            outcome = NotYet(str(error))
        except Exception as bug:  # whatever it is, the partition must not be left behind
            tell_bug(f"{partition}: looking for where it begins failed", bug)
            outcome = NotYet("something unexpected happened")
        if isinstance(outcome, NotYet | ErrorCode):
            counts.aux_errors += 1
        return outcome

    async def _find(self, tier: RemoteParts, partition: Hosted, leader_epoch: int, leader_end: int) -> Outcome:
        start, earliest = await self._start(partition, leader_epoch, leader_end)
        if not isinstance(start, StartBehind):
            return start
        epoch = start.epoch
        if epoch > 0:
            ends = await self._ends(partition, leader_epoch, [epoch - 1])
            epoch = epoch_before(start, *ends[epoch - 1])
        manifest = await tier.manifest(partition.topic_id, partition.index)
        if manifest is None:
            return NotYet("no manifest of its tier is known here yet")
        offset = start.offset - 1
        for row in segments_with(manifest.rows, epoch, offset):
            leader_ends = await self._ends(partition, leader_epoch, [epoch for epoch, _ in row.epochs])
            if is_inside(row, offset, leader_ends):
                known = await tier.known_at_end(partition.topic_id, partition.index, row)
                return FromTier(row.end_offset + 1, earliest, row.finished_ms, known)
        return NotYet(f"no remote segment with offset {offset} of epoch {epoch} is known here yet")

    async def _start(self, partition: Hosted, leader_epoch: int, leader_end: int) -> tuple[Start, int]:
        """With the leader's log start, asked last: it may move up to what was told before, and not the reverse."""
        if not self.are_behind_tier(partition, leader_end):
            own_end = partition.log_end_offset
            local = await self._offset(partition, leader_epoch, EARLIEST_LOCAL)
            earliest = (await self._offset(partition, leader_epoch, EARLIEST)).offset
            return start_by_earliest_local(local, earliest, own_end), earliest
        pending = await self._offset(partition, leader_epoch, PENDING_UPLOAD)
        # Where the leader knows what is pending, nobody asks where its disk begins.
        local = pending if pending.offset >= 0 else await self._offset(partition, leader_epoch, EARLIEST_LOCAL)
        earliest = (await self._offset(partition, leader_epoch, EARLIEST)).offset
        return start_by_pending_upload(pending, earliest, local.offset), earliest

    # Questions to the leader.

    async def _offset(self, partition: Hosted, leader_epoch: int, timestamp: int) -> OffsetAndEpoch:
        leader, timeout_ms = await self._connected(), self._config().replica_socket_timeout_ms
        answer = await offset_of(leader, self._replica_id, timestamp, partition, leader_epoch, timeout_ms)
        if isinstance(answer, ErrorCode):
            raise _Refused(answer)
        return answer

    async def _ends(self, partition: Hosted, leader_epoch: int, epochs: list[int]) -> dict[int, tuple[int, int]]:
        leader, timeout_ms = await self._connected(), self._config().replica_socket_timeout_ms
        answer = await ends_of_epochs(leader, self._replica_id, epochs, partition, leader_epoch, timeout_ms)
        if isinstance(answer, ErrorCode):
            raise _Refused(answer)
        return answer

    async def _connected(self) -> Leader:
        async with self._connecting:
            if self._connection is None:
                self._connection = await self._leaders.connect(self._node, self._client_id)
            return self._connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close("nothing more to ask")
