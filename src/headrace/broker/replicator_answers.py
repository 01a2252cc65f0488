"""What an answer of the leader does to each partition of a fetcher: appended, cut, repaired, delayed or given up.

Whether a partition still wants its part of the answer is looked at in the very step that uses it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headrace.broker.disk import SYNC, DiskFaults
from headrace.broker.partitions import Hosted
from headrace.broker.replicator_asking import EARLIEST, LATEST, Leader, list_offsets
from headrace.broker.replicator_logs import FollowerLogs
from headrace.broker.replicator_tier import FromTier, Outcome, TierStarts
from headrace.core.following import (
    Append,
    Diverged,
    Fail,
    FailedPartitions,
    FetcherPartitions,
    MovedToTier,
    OutOfRange,
    Phase,
    Step,
)
from headrace.core.tier_start import NotYet, StartAt
from headrace.core.truncation import AskEarliest, RestartAt, repair
from headrace.errors import CorruptLog, ErrorCode
from headrace.runtime import Clock
from headrace.storage.log import Log
from headrace.wire.messages.fetch import PartitionData

log = logging.getLogger(__name__)

BYTES_PER_TURN = 2 << 20
"""What is appended between two turns of the loop."""

PART_COST_BYTES = 16 << 10
"""What a part without records counts for."""


NAMED_MAX = 5
"""Partitions that one line of the log names."""


class _Unsynced(NamedTuple):
    partition: Hosted
    opened: Log
    told: Append
    fault: str | None
    leader_epoch: int


class Answers:
    def __init__(
        self,
        partitions: FetcherPartitions[Hosted],
        failed: FailedPartitions[Hosted],
        logs: FollowerLogs,
        faults: DiskFaults,
        clock: Clock,
        on_failed: Callable[[Hosted, str, int], None],
        on_fenced: Callable[[Hosted], None],
        starts: TierStarts,
    ) -> None:
        self._partitions = partitions
        self._starts = starts
        self._waiting_for_tier: dict[Hosted, int] = {}  # leader epochs in which that was said
        self._failed = failed
        self._logs = logs
        self._faults = faults
        self._clock = clock
        self._on_failed = on_failed
        self._on_fenced = on_fenced
        self._fenced: list[Hosted] = []
        self._unsynced: list[_Unsynced] = []
        self._out_of_range: dict[Hosted, int] = {}  # leader epochs

    async def take(
        self, parts: Iterable[tuple[Hosted, PartitionData]], leader: Leader, replica_id: int, timeout_ms: int
    ) -> None:
        """PeerLost and the like if the leader has to be asked for its offsets and does not answer."""
        self._unsynced, self._out_of_range, self._fenced = [], {}, []
        try:
            await self._take(parts, leader, replica_id, timeout_ms)
        finally:
            self._tell_fenced()

    async def _take(
        self, parts: Iterable[tuple[Hosted, PartitionData]], leader: Leader, replica_id: int, timeout_ms: int
    ) -> None:
        taken = 0
        for partition, part in parts:
            self._guarded(partition, "append", self._take_part, partition, part)
            taken += PART_COST_BYTES + len(part.records or b"")
            if taken >= BYTES_PER_TURN:
                taken = 0
                await asyncio.sleep(0)
        for unsynced in self._unsynced:
            await self._sync(unsynced)
        self._keep_log_starts()
        if self._out_of_range:
            await self._repair(self._out_of_range, leader, replica_id, timeout_ms)

    def _keep_log_starts(self) -> None:
        moved, self._logs.moved_starts = self._logs.moved_starts, set()
        for directory in moved:
            try:
                directory.keep_log_starts()
            except OSError as error:
                self._faults.directory_failed(directory, f"a checkpoint could not be written: {error}")

    def _guarded(self, partition: Hosted, doing: str, do: Callable[..., None], *args: object) -> None:
        """Nothing that happens to one partition happens to the others."""
        try:
            do(*args)
        except (OSError, CorruptLog) as error:
            self._faults.lost(partition, doing, error)
        except Exception as error:  # any other trouble is this partition's own, and waits for its next leader epoch
            log.debug("%s: %s failed", partition, doing, exc_info=True)
            self._tell(partition, self._partitions.fail(partition, _reason(error), self._clock.monotonic_ms()))

    def _take_part(self, partition: Hosted, part: PartitionData) -> None:
        step = self._partitions.judge(partition, part, self._clock.monotonic_ms())
        if isinstance(step, Append):
            self._append(partition, step)
        elif isinstance(step, Diverged):
            self._logs.cut(partition, step)
            self._truncated(partition)
        elif isinstance(step, OutOfRange):
            self._out_of_range[partition] = self._partitions.position(partition).leader_epoch
        elif isinstance(step, MovedToTier):
            position = self._partitions.position(partition)
            self._starts.begin(partition, position.leader_epoch, leader_end=position.fetch_offset + 1)
        else:
            self._tell(partition, step)

    def _tell(self, partition: Hosted, step: Step) -> None:
        if isinstance(step, Fail) and step.is_fenced:
            self._on_fenced(partition)
            self._fenced.append(partition)
        elif isinstance(step, Fail):
            failed = self._failed.get(partition)
            self._on_failed(partition, step.reason, -1 if failed is None else failed.leader_epoch)

    def _tell_fenced(self) -> None:
        """In one line: an election of many partitions is no trouble of each."""
        if self._fenced:
            named = ", ".join(f"{partition} after {partition.leader_epoch}" for partition in self._fenced[:NAMED_MAX])
            more = len(self._fenced) - NAMED_MAX
            log.info(
                "%d partitions are not replicated before their next leader epoch, which their leader knows: %s%s",
                len(self._fenced),
                named,
                f" and {more} more" if more > 0 else "",
            )

    # Appending.

    def _append(self, partition: Hosted, told: Append) -> None:
        leader_epoch = self._partitions.position(partition).leader_epoch
        fault = self._logs.append(partition, told, leader_epoch)
        opened = partition.log
        if told.records and opened.needs_flush_before_ack():
            self._unsynced.append(_Unsynced(partition, opened, told, fault, leader_epoch))
        else:
            self._settle(partition, told, fault)

    def _settle(self, partition: Hosted, told: Append, fault: str | None) -> None:
        self._logs.settle(partition, told)
        opened = partition.log
        self._partitions.appended(partition, opened.log_end_offset, opened.epochs.latest, partition.log_start_offset)
        if fault is not None:
            log.warning("%s: what the leader sent cannot be used, and is asked for again: %s", partition, fault)
            self._partitions.delay(partition, self._clock.monotonic_ms(), ErrorCode.CORRUPT_MESSAGE)

    async def _sync(self, unsynced: _Unsynced) -> None:
        partition, opened, told, fault, leader_epoch = unsynced
        if partition.log_if_open is not opened:
            return
        try:
            await self._logs.sync(partition, opened)
        except OSError as error:
            if partition.log_if_open is opened:
                self._faults.lost(partition, SYNC, error)
            return
        if self._is_current(partition, leader_epoch, Phase.FETCHING):
            self._guarded(partition, "append", self._settle, partition, told, fault)

    def _is_current(self, partition: Hosted, leader_epoch: int, phase: Phase) -> bool:
        """Whether it is still this fetcher's to act on, after something was waited for."""
        partitions = self._partitions
        return partitions.phase(partition) is phase and partitions.position(partition).leader_epoch == leader_epoch

    # Cutting.

    def _truncated(self, partition: Hosted) -> None:
        opened = partition.log
        self._partitions.truncated(partition, opened.log_end_offset, opened.epochs.latest, partition.log_start_offset)

    async def _repair(self, asked: dict[Hosted, int], leader: Leader, replica_id: int, timeout_ms: int) -> None:
        latest = await list_offsets(leader, replica_id, LATEST, asked, timeout_ms)
        asked = self._repaired(asked, latest, None)
        if asked:
            earliest = await list_offsets(leader, replica_id, EARLIEST, asked, timeout_ms)
            self._repaired(asked, latest, earliest)

    def _repaired(
        self,
        asked: dict[Hosted, int],
        latest: dict[Hosted, int | ErrorCode],
        earliest: dict[Hosted, int | ErrorCode] | None,
    ) -> dict[Hosted, int]:
        """Does what can be decided by now; the rest is returned."""
        undecided: dict[Hosted, int] = {}

        def decide(partition: Hosted, leader_epoch: int) -> None:
            for found in (latest, earliest or latest):
                error = found[partition]
                if isinstance(error, ErrorCode):
                    now_ms = self._clock.monotonic_ms()
                    self._tell(partition, self._partitions.repair_refused(partition, error, leader_epoch, now_ms))
                    return
            known_earliest = None if earliest is None else earliest[partition]
            decided = repair(partition.log.log_end_offset, latest[partition], known_earliest)
            if isinstance(decided, AskEarliest):
                if self._starts.are_behind_tier(partition, latest[partition]):
                    self._starts.begin(partition, leader_epoch, latest[partition])
                else:
                    undecided[partition] = leader_epoch
                return
            self._logs.repair(partition, decided)
            self._truncated(partition)

        for partition, leader_epoch in asked.items():
            if self._is_current(partition, leader_epoch, Phase.TRUNCATING):
                self._guarded(partition, "truncation", decide, partition, leader_epoch)
        return undecided

    # Beginning from the tier.

    def begun(self, partition: Hosted, leader_epoch: int, outcome: Outcome) -> None:
        """It is known where the log begins, or that it is not known yet."""
        if not self._is_current(partition, leader_epoch, Phase.TRUNCATING):
            return
        now_ms = self._clock.monotonic_ms()
        if isinstance(outcome, ErrorCode):
            of_answer, self._fenced = self._fenced, []
            self._tell(partition, self._partitions.repair_refused(partition, outcome, leader_epoch, now_ms))
            self._tell_fenced()
            self._fenced = of_answer
        elif isinstance(outcome, NotYet):
            self._say_once(partition, leader_epoch, outcome.reason)
            self._partitions.delay(partition, now_ms)
        else:
            self._waiting_for_tier.pop(partition, None)
            self._guarded(partition, "truncation", self._begin, partition, outcome)
            self._keep_log_starts()

    def _begin(self, partition: Hosted, start: StartAt | FromTier) -> None:
        if isinstance(start, FromTier):
            self._logs.begin_from_tier(partition, start)
        elif start.offset != partition.log.log_end_offset:
            self._logs.repair(partition, RestartAt(start.offset))
        self._truncated(partition)

    def _say_once(self, partition: Hosted, leader_epoch: int, reason: str) -> None:
        if self._waiting_for_tier.get(partition) != leader_epoch:
            self._waiting_for_tier = {
                known: at for known, at in self._waiting_for_tier.items() if known in self._partitions
            }
            self._waiting_for_tier[partition] = leader_epoch
            log.warning("%s cannot begin from the tier yet, which is tried again: %s", partition, reason)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
