"""What this node proposes as a leader: who joins the ISRs of its partitions, and who has to leave them.

A partition that may want a change is looked at within the turn. Proposals go to the controller one request after
another, each with all that has gathered meanwhile. A proposal ends with a newer record and by nothing else, so that
what fails is sent again; where no record comes, the store itself is asked what holds.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from headrace.broker.commits import Commits
from headrace.broker.local_coverage import Coverages, fields_of
from headrace.broker.partitions import Hosted
from headrace.broker.peers import Peers
from headrace.controller import isr_changes
from headrace.controller.controller import Controller
from headrace.core.cluster import ClusterImage, PartitionRecord
from headrace.core.leading import PROPOSE_AGAIN_MS, RESUME_AFTER_MS, Leadership, Proposal
from headrace.errors import ErrorCode
from headrace.metadata.store import MetadataStoreError
from headrace.net.peer import PeerLost
from headrace.runtime import Clock
from headrace.wire.messages.replication import (
    AlterPartitionPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicData,
    BrokerState,
)

log = logging.getLogger(__name__)

SLICE_PARTITIONS = 200
"""Looked at in one turn of the loop."""
PROPOSALS_MAX = 1_000
"""In one request."""
VERSION = 3
ANSWER_MS_MAX = 5_000
RETRY_MS_MIN, RETRY_MS_MAX = 50, 1_000
WATCHDOG_S = 1.0
GRACE_MS = 100
"""A node that restarts takes its registration away and puts the next one: in between nobody has to go."""


class _Sent(NamedTuple):
    partition: Hosted
    leadership: Leadership
    proposal: Proposal

    @property
    def is_current(self) -> bool:
        leadership = self.leadership
        return (
            self.partition.leadership is leadership
            and leadership.is_pending
            and leadership.record.partition_epoch == self.proposal.partition_epoch
        )


class IsrUpdates:
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        image: ClusterImage,
        controller: Controller,
        peers: Peers,
        commits: Commits,
    ) -> None:
        self.leading: dict[Hosted, None] = {}
        """Partitions of which this node leads other replicas."""
        self.shrinks = self.expands = self.failures = 0
        self.on_read: Callable[[Hosted, PartitionRecord], None] = lambda *_: None
        """A record that the store holds, and that has not come by the watch."""
        self.on_deposed: Callable[[int], None] = lambda _: None
        """This registration of the node does not stand any more: it leads nothing."""
        self._loop = loop
        self._clock = clock
        self._image = image
        self._controller = controller
        self._peers = peers
        self._commits = commits
        self.coverages = Coverages()
        self._client_id = f"headrace-isr-{image.node_id}"
        self._due: dict[Hosted, None] = {}
        self._scheduled = False
        self._outbox: dict[Hosted, _Sent] = {}
        self._pending: dict[Hosted, None] = {}
        self._vanished_ms: dict[int, int] = {}
        self._is_sending = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._closed = False

    # What may make a change of the ISR due.

    def look(self, partition: Hosted) -> None:
        self._due[partition] = None
        self._schedule()

    def look_at(self, partitions: Iterable[Hosted]) -> None:
        self._due.update(dict.fromkeys(partitions))
        self._schedule()

    def look_later(self, partition: Hosted, delay_ms: int) -> None:
        self._after(delay_ms, lambda: self.look(partition))

    def followed(self, partition: Hosted, now_ms: int) -> None:
        """A follower told how far it is."""
        self._commits.commit(partition, now_ms)
        if self._commits.log_start_waits:
            self._commits.wake_log_start_waits(partition)
        leadership = partition.leadership
        if leadership is not None and len(leadership.record.isr) <= len(leadership.followers):
            self.look(partition)

    def nodes_changed(self, broker_ids: set[int]) -> None:
        """Registered, gone, shutting down, with other offline replicas."""
        now_ms = self._clock.monotonic_ms()
        vanished = False
        for broker_id in broker_ids:
            if broker_id in self._image.brokers:
                self._vanished_ms.pop(broker_id, None)
            else:
                self._vanished_ms[broker_id] = now_ms
                vanished = True
        self.look_at(self._replicated_to(broker_ids))
        if vanished:
            self._after(GRACE_MS + 1, lambda: self.look_at(self._replicated_to(broker_ids)))

    def stepped_down(self, partition: Hosted) -> None:
        """If nothing comes of it, the leader serves again."""
        self.look_later(partition, RESUME_AFTER_MS + 1)

    def _replicated_to(self, broker_ids: set[int]) -> list[Hosted]:
        return [
            partition
            for partition in self.leading
            if partition.leadership is not None and not broker_ids.isdisjoint(partition.leadership.followers)
        ]

    def _after(self, delay_ms: int, work: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            work()

        if not self._closed:
            timer = self._loop.call_later(delay_ms / 1000, run)
            self._timers.add(timer)

    def _schedule(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        now_ms = self._clock.monotonic_ms()
        if self._vanished_ms:
            self._vanished_ms = {b: ms for b, ms in self._vanished_ms.items() if now_ms - ms < GRACE_MS}
        spared = frozenset(self._vanished_ms)
        for partition in list(islice(self._due, SLICE_PARTITIONS)):
            del self._due[partition]
            self._examine(partition, now_ms, spared)
        if self._due:
            self._schedule()
        self._send_soon()

    def _examine(self, partition: Hosted, now_ms: int, spared: frozenset[int]) -> None:
        leadership = partition.leadership
        if leadership is None:
            return
        self._commits.commit(partition, now_ms)
        proposal = leadership.wanted_change(
            now_ms,
            log_end=partition.log_end_offset,
            high_watermark=partition.high_watermark,
            log_start=partition.log_start_offset,
            spared=spared,
        )
        if proposal is not None:
            self._propose(partition, leadership, proposal, now_ms)

    def _propose(self, partition: Hosted, leadership: Leadership, proposal: Proposal, now_ms: int) -> None:
        leadership.proposed(proposal, now_ms)
        self._pending[partition] = None
        self._outbox[partition] = _Sent(partition, leadership, proposal)

    # Proposals on their way.

    def _send_soon(self) -> None:
        if self._outbox and not self._is_sending and not self._closed:
            self._is_sending = True
            self._spawn(self._send_all())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_all(self) -> None:
        retry_ms = RETRY_MS_MIN
        try:
            while self._outbox:
                batch = [self._outbox.pop(partition) for partition in list(islice(self._outbox, PROPOSALS_MAX))]
                batch = [sent for sent in batch if sent.is_current]
                if batch and await self._send(batch):
                    await asyncio.sleep(retry_ms / 1000)
                    retry_ms = min(retry_ms * 2, RETRY_MS_MAX)
                else:
                    retry_ms = RETRY_MS_MIN
        finally:
            self._is_sending = False

    async def _send(self, batch: list[_Sent]) -> bool:
        """True when something has to be sent again."""
        epoch = self._controller.registration.epoch
        outcome = await self._ask(epoch, batch)
        now_ms = self._clock.monotonic_ms()
        again = False
        for n, sent in enumerate(batch):
            error = outcome if isinstance(outcome, ErrorCode) else outcome[n]
            if not error:
                continue  # the record comes by the watch
            self.failures += 1
            if not sent.is_current:
                continue
            again |= self._refused(sent, error, epoch, now_ms)
        return again

    def _refused(self, sent: _Sent, error: ErrorCode, epoch: int, now_ms: int) -> bool:
        partition, leadership, proposal = sent
        reaction = leadership.answered(error, proposal, now_ms)
        if reaction == "resume":
            self._propose(partition, leadership, leadership.resume(), now_ms)
            self.look_later(partition, PROPOSE_AGAIN_MS + 1)
        elif reaction == "retry":
            self._outbox.setdefault(partition, sent)
            return True
        elif reaction == "deposed":
            if epoch == self._controller.registration.epoch:
                self.on_deposed(epoch)
            else:
                self._outbox.setdefault(partition, sent)
        elif reaction == "wait":
            log.info("%s: the proposed ISR %s was refused with %s", partition, proposal.isr, error.name)
        return False

    async def inform(self, partitions: Sequence[Hosted]) -> ErrorCode | list[ErrorCode]:
        """Tells what members have on their own disks, beside any proposal: the committed ISR changes nothing."""
        batch = []
        for partition in partitions:
            leadership = partition.leadership
            assert leadership is not None
            record = leadership.record
            committed = Proposal(record.isr, record.leader_epoch, record.partition_epoch)
            batch.append(_Sent(partition, leadership, committed))
        return await self._ask(self._controller.registration.epoch, batch)

    async def _ask(self, epoch: int, batch: list[_Sent]) -> ErrorCode | list[ErrorCode]:
        """A code for all, or one for each: NONE where the record is written."""
        controller = self._image.controller
        if controller is None or not epoch:
            return ErrorCode.REQUEST_TIMED_OUT
        if controller.id == self._image.node_id:
            return await self._ask_here(epoch, batch)
        request = AlterPartitionRequest(
            broker_id=self._image.node_id, broker_epoch=epoch, topics=_by_topic(batch, self.coverages)
        )
        try:
            answer = await self._peers.ask(
                controller.id, request, AlterPartitionResponse, VERSION, ANSWER_MS_MAX, self._client_id
            )
        except PeerLost as lost:
            log.info("the controller did not hear of %d changes of ISRs: %s", len(batch), lost)
            return ErrorCode.REQUEST_TIMED_OUT
        if answer.error_code:
            return ErrorCode(answer.error_code)
        codes = {
            (topic.topic_id, result.partition_index): ErrorCode(result.error_code)
            for topic in answer.topics
            for result in topic.partitions
        }
        unknown = ErrorCode.REQUEST_TIMED_OUT
        return [codes.get((sent.partition.topic_id, sent.partition.index), unknown) for sent in batch]

    async def _ask_here(self, epoch: int, batch: list[_Sent]) -> ErrorCode | list[ErrorCode]:
        outcome = await self._controller.alter_partitions(
            self._image.node_id,
            epoch,
            [
                isr_changes.Proposal(
                    sent.partition.topic_id,
                    sent.partition.index,
                    sent.proposal.leader_epoch,
                    sent.proposal.isr,
                    False,
                    sent.proposal.partition_epoch,
                    sent.proposal.resume,
                    self.coverages.of_members(sent.partition, sent.proposal.isr),
                    self.coverages.log_start(sent.partition),
                )
                for sent in batch
            ],
        )
        if isinstance(outcome, ErrorCode):
            return outcome
        return [settled if isinstance(settled, ErrorCode) else ErrorCode.NONE for settled in outcome]

    # What nobody told.

    def start(self, lag_ms_max: Callable[[], int]) -> None:
        self._spawn(self._sweep(lag_ms_max))
        self._spawn(self._watch())

    async def _sweep(self, lag_ms_max: Callable[[], int]) -> None:
        """Followers that fell behind are noticed by nothing but time."""
        while True:
            await asyncio.sleep(lag_ms_max() / 2000)
            for partition in self.leading:
                if partition.leadership is not None:
                    partition.leadership.lag_ms_max = lag_ms_max()
            self.look_at(self.leading)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCHDOG_S)
            now_ms = self._clock.monotonic_ms()
            for partition in list(self._pending):
                leadership = partition.leadership
                if leadership is None or not leadership.is_pending:
                    del self._pending[partition]
                elif leadership.is_overdue(now_ms):
                    await self._look_up(partition, leadership)
            self._send_soon()

    async def _look_up(self, partition: Hosted, leadership: Leadership) -> None:
        """Nothing came of the proposals: what the store holds decides."""
        try:
            record = await self._controller.read_partition(partition.topic_id, partition.index)
        except MetadataStoreError as failure:
            log.info("%s: its record cannot be read: %s", partition, failure)
            return
        if partition.leadership is not leadership or not leadership.is_pending:
            return
        if record is not None and record.partition_epoch > leadership.record.partition_epoch:
            self.on_read(partition, record)
        else:
            proposal = leadership.read_from_store(self._clock.monotonic_ms())
            self._outbox[partition] = _Sent(partition, leadership, proposal)

    async def close(self) -> None:
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _by_topic(batch: list[_Sent], coverages: Coverages) -> list[AlterPartitionTopicData]:
    topics: dict[bytes, list[AlterPartitionPartitionData]] = {}
    for partition, _, proposal in batch:
        told = coverages.of_members(partition, proposal.isr)
        data = AlterPartitionPartitionData(
            partition_index=partition.index,
            leader_epoch=proposal.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=m.broker_id, broker_epoch=m.broker_epoch, **fields_of(told.get(m.broker_id)))
                for m in proposal.isr
            ],
            partition_epoch=proposal.partition_epoch,
            resume=proposal.resume,
            log_start_offset=coverages.log_start(partition),
        )
        topics.setdefault(partition.topic_id, []).append(data)
    return [AlterPartitionTopicData(topic_id=topic_id, partitions=data) for topic_id, data in topics.items()]
