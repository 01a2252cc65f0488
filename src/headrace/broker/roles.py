"""What this node is to each partition: its leader, a follower, or nothing. It follows from the records alone.

Levels are compared, not events: whatever changed, a partition gets the role that its newest record gives it now. Many
that change at once are looked at in slices; one that waits for its turn is as late as a watch may be anyway.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol

from headrace.broker.appends import Appends
from headrace.broker.commits import Commits
from headrace.broker.disk import wake_acks
from headrace.broker.isr_updates import IsrUpdates
from headrace.broker.list_guards import ListGuards
from headrace.broker.parking import FetchEvents
from headrace.broker.partitions import Hosted, Partitions
from headrace.broker.replicator_tier import RemoteParts
from headrace.core.cluster import ClusterImage, Diff, PartitionRecord, RegisteredBroker, Topic
from headrace.core.following import FailedPartitions
from headrace.core.leading import Leadership
from headrace.errors import ErrorCode
from headrace.runtime import Clock

log = logging.getLogger(__name__)

SLICE_PARTITIONS = 200
"""Roles that are taken in one turn of the loop."""


class Replicator(Protocol):
    """Copies partitions from their leaders."""

    failed: FailedPartitions[Hosted]
    tier: RemoteParts | None

    def follow(self, partition: Hosted, leader: RegisteredBroker, leader_epoch: int) -> None:
        """From now on, or on from there: also for one that it follows already."""

    def stop(self, partition: Hosted) -> None:
        """When it returns nothing more is done to the partition. Also for one that it does not follow."""

    def list_again(self, partition: Hosted) -> None:
        """Its leader is to hear of it again, although nothing was fetched."""

    async def close(self) -> None: ...


class NoReplicator:
    """For a node that follows nothing."""

    def __init__(self) -> None:
        self.failed: FailedPartitions[Hosted] = FailedPartitions()
        self.tier: RemoteParts | None = None

    def follow(self, partition: Hosted, leader: RegisteredBroker, leader_epoch: int) -> None:
        del partition, leader, leader_epoch

    def stop(self, partition: Hosted) -> None:
        del partition

    def list_again(self, partition: Hosted) -> None:
        del partition

    async def close(self) -> None:
        pass


class Roles:
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        image: ClusterImage,
        own_epoch: Callable[[], int],
        partitions: Partitions,
        appends: Appends,
        events: FetchEvents,
        commits: Commits,
        guards: ListGuards,
        isr_updates: IsrUpdates,
        replicator: Replicator,
    ) -> None:
        """`own_epoch` is that of this process's registration, 0 while there is none."""
        self.before_leading: list[Callable[[Hosted], None]] = []
        """This node is about to lead what it did not lead before, and nothing was written as its leader yet."""
        self.on_leading: list[Callable[[Hosted], None]] = []
        """This node serves clients as the leader from now on, or goes on under another leader epoch."""
        self.on_ended: list[Callable[[Hosted], None]] = []
        """It does not any more: moved, stepped down, dropped, or its disk failed. Only after `on_leading`."""
        self.replicator = replicator
        self._loop = loop
        self._clock = clock
        self._image = image
        self._own_epoch = own_epoch
        self._partitions = partitions
        self._appends = appends
        self._events = events
        self._commits = commits
        self._guards = guards
        self._isr_updates = isr_updates
        self._leads_as = 0  # the broker epoch by which the roles were taken
        self._denied_epoch = 0
        self._broker_epochs: dict[int, int] = {}
        self._due: dict[tuple[bytes, int], None] = {}
        self._scheduled = False
        self._following: dict[Hosted, tuple[RegisteredBroker, int]] = {}
        self._told_leading: dict[Hosted, int] = {}
        """What the hooks were told: leader epochs of partitions that clients are served from."""
        self._read: dict[Hosted, PartitionRecord] = {}
        """Newer than what the image holds: read from the store when the watch was late."""
        isr_updates.on_read = self._on_read
        isr_updates.on_deposed = self._on_deposed

    # Changes of the metadata.

    def start(self) -> None:
        """Everything that the image holds, in the turn in which it was loaded."""
        for topic in self._image.topics.values():
            self._host(topic, range(len(topic.partitions)))
        self._broker_epochs = {broker.id: broker.epoch for broker in self._image.brokers.values()}
        self._take_all()

    def apply(self, diff: Diff) -> None:
        if diff.brokers_changed:
            self._end_sessions(diff.brokers_changed)
        for deleted in diff.topics_deleted:
            self._drop(deleted.id)
        known = self._image.topics_by_id
        for created in diff.topics_created:
            if known.get(created.id) is created:
                self._host(created, range(len(created.partitions)))
        for grown, index in diff.partitions_created:
            if known.get(grown.id) is grown:
                self._host(grown, (index,))
        for configured in diff.topics_configured:
            self._partitions.configure(configured)
            self._isr_updates.look_at(self._partitions.hosted_of(configured.id))
        self._due.update(((topic.id, index), None) for topic, index in diff.partitions_changed)
        if diff.brokers_changed:
            self._due.update(dict.fromkeys(self._led_by_others(diff.brokers_changed)))
        if self._leads_as != self._current_epoch():
            self._due.update(((partition.topic_id, partition.index), None) for partition in self._partitions)
        if self._due and not self._scheduled:
            self._take_slice()
        if diff.brokers_changed or diff.offline_changed:
            self._isr_updates.nodes_changed(diff.brokers_changed | diff.offline_changed)

    def _end_sessions(self, broker_ids: set[int]) -> None:
        """What an earlier registration of a node still sends counts no more, before the next one's does."""
        for broker_id in broker_ids:
            known = self._image.brokers.get(broker_id)
            before = self._broker_epochs.pop(broker_id, None)
            if known is not None:
                self._broker_epochs[broker_id] = known.epoch
            if before is not None and (known is None or known.epoch != before):
                self._events.replica_gone(broker_id, before)

    def _led_by_others(self, broker_ids: set[int]) -> Iterable[tuple[bytes, int]]:
        """Where this node follows, or would, and its leader has come, gone or moved."""
        for partition in self._partitions:
            if not partition.is_leading and self._record_of(partition).leader in broker_ids:
                yield partition.topic_id, partition.index

    def _current_epoch(self) -> int:
        """Of this node's registration, if this process made it, and the metadata say that it stands."""
        registered = self._image.brokers.get(self._image.node_id)
        epoch = self._own_epoch()
        return epoch if registered is not None and registered.epoch == epoch != self._denied_epoch else 0

    def _host(self, topic: Topic, indexes: Iterable[int]) -> None:
        node_id = self._image.node_id
        own = [index for index in indexes if node_id in topic.partitions[index].replicas]
        if own:
            self._partitions.host(topic, own)
            self._due.update(((topic.id, index), None) for index in own)
        if self._events.anybody_waits_for_partitions:
            for index in indexes:
                self._events.partition_known(topic.name, topic.id, index)

    def _drop(self, topic_id: bytes) -> None:
        for partition in self._partitions.hosted_of(topic_id):
            self._forget(partition)
        for dropped in self._partitions.drop(topic_id):
            self._ended(dropped)
            self._events.replica_removed(dropped)

    def _drop_one(self, partition: Hosted) -> None:
        self._forget(partition)
        self._stop_leading(partition)
        self._partitions.drop_one(partition)
        self._ended(partition)
        self._events.replica_removed(partition)

    def _forget(self, partition: Hosted) -> None:
        self.replicator.stop(partition)
        self._following.pop(partition, None)
        self._read.pop(partition, None)
        self._isr_updates.leading.pop(partition, None)

    # Taking roles.

    def _take_all(self) -> None:
        self._due.update(((partition.topic_id, partition.index), None) for partition in self._partitions)
        if self._due and not self._scheduled:
            self._take_slice()

    def _take_slice(self) -> None:
        self._scheduled = False
        self._appends.end_turn()  # what was accepted under the old roles is written under them
        self._leads_as = self._current_epoch()
        for key in list(islice(self._due, SLICE_PARTITIONS)):
            del self._due[key]
            self._take(*key)
        if self._due:
            self._scheduled = True
            self._loop.call_soon(self._take_slice)

    def _record_of(self, partition: Hosted) -> PartitionRecord:
        """The partition's topic is in the image as long as the partition is hosted."""
        record = self._image.topics_by_id[partition.topic_id].partitions[partition.index]
        read = self._read.get(partition)
        if read is None:
            return record
        if read.partition_epoch > record.partition_epoch:
            return read
        del self._read[partition]
        return record

    def _take(self, topic_id: bytes, index: int) -> None:
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None:
            return
        partition = self._partitions.find(topic_id, index)
        is_replica = self._image.node_id in topic.partitions[index].replicas
        if isinstance(partition, ErrorCode):
            if is_replica:
                self._host(topic, (index,))
            return
        if not is_replica:
            self._drop_one(partition)
            return
        record = self._record_of(partition)
        if record.leader != self._image.node_id:
            self._follow(partition, record)
        elif self._leads_as:
            self._lead(partition, record)
        else:
            self.replicator.stop(partition)
            self._following.pop(partition, None)
            if partition.is_leading:
                self._stop_leading(partition)
                self._ended(partition)

    def _lead(self, partition: Hosted, record: PartitionRecord) -> None:
        before, epoch_before = partition.leadership, partition.leader_epoch
        isr_before = None if before is None else before.record.isr
        if not partition.is_leading:
            self.replicator.stop(partition)
            self._following.pop(partition, None)
            for hook in self.before_leading:
                hook(partition)
        now_ms = self._clock.monotonic_ms()
        high_watermark = partition.high_watermark
        lag_ms_max = self._image.broker_config.replica_lag_time_max_ms
        if not partition.lead(record, self._leads_as, now_ms, self._image, lag_ms_max):
            self._appends.let_go(partition)
            self._ended(partition)
            return
        if epoch_before != partition.leader_epoch or before is not partition.leadership:
            self._appends.let_go(partition)
            self._appends.take_over(partition)
        leadership = partition.leadership
        if leadership is not None:
            if before is leadership and isr_before is not None:
                self._count(leadership, len(isr_before))
            self._isr_updates.leading[partition] = None
            self._isr_updates.look(partition)
            self._guards.look(partition, now_ms)
        if partition.subscribers:
            self._events.replica_changed(partition)
        if partition.waiting_acks and (partition.high_watermark > high_watermark or before is not leadership):
            wake_acks(partition)
        if not partition.error and self._told_leading.get(partition) != partition.leader_epoch:
            self._told_leading[partition] = partition.leader_epoch
            for hook in self.on_leading:
                hook(partition)

    def _count(self, leadership: Leadership, members_before: int) -> None:
        members = len(leadership.record.isr)
        self._isr_updates.shrinks += members < members_before
        self._isr_updates.expands += members > members_before

    def _follow(self, partition: Hosted, record: PartitionRecord) -> None:
        was_leading = partition.is_leading
        if was_leading:
            self._stop_leading(partition)
        if was_leading or partition.leader_epoch != record.leader_epoch:
            partition.follow(record)
            if partition.fault:
                partition.error = partition.fault  # clients shall know that it is here, and offline
            self._ended(partition)
        leader = self._image.brokers.get(record.leader)
        wanted = None if leader is None or partition.fault else (leader, record.leader_epoch)
        if wanted == self._following.get(partition):
            return
        if wanted is None:
            del self._following[partition]
            self.replicator.stop(partition)
        else:
            self._following[partition] = wanted
            self.replicator.follow(partition, *wanted)

    def _stop_leading(self, partition: Hosted) -> None:
        partition.stop_serving()
        self._isr_updates.leading.pop(partition, None)
        self._appends.let_go(partition)

    def _ended(self, partition: Hosted) -> None:
        """Whoever waits for this node as its leader hears of it."""
        self._isr_updates.leading.pop(partition, None)
        if partition in self._guards.open:
            self._guards.look(partition, self._clock.monotonic_ms())
        if partition.subscribers:
            self._events.replica_changed(partition)
        if partition.waiting_acks:
            wake_acks(partition)
        if self._commits.log_start_waits:
            self._commits.wake_log_start_waits(partition)
        self.ended(partition)

    def ended(self, partition: Hosted) -> None:
        """Clients are not served from it any more, for whatever reason. Also for one where they never were."""
        if self._told_leading.pop(partition, None) is not None:
            for hook in self.on_ended:
                hook(partition)

    def resign(self) -> None:
        """Before a stop: whoever still waits for other replicas is sent away, to ask the next leader."""
        self._appends.end_turn()
        for partition in list(self._isr_updates.leading):
            self._stop_leading(partition)
            self._ended(partition)

    # What comes by other ways than the watch.

    def _on_read(self, partition: Hosted, record: PartitionRecord) -> None:
        self._read[partition] = record
        self._due[partition.topic_id, partition.index] = None
        if not self._scheduled:
            self._take_slice()

    def _on_deposed(self, epoch: int) -> None:
        if self._current_epoch() == epoch:
            log.warning("this node's registration is gone, says the controller: it leads nothing until it has another")
            self._denied_epoch = epoch
            self._take_all()

    def step_down(self, topic_id: bytes, index: int, partition_epoch: int) -> ErrorCode:
        """Clients are not served from here on. Followers are, so that what waits for them may still be acknowledged."""
        partition = self._partitions.find(topic_id, index)
        if isinstance(partition, ErrorCode):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._appends.end_turn()
        refused = partition.step_down(partition_epoch, self._clock.monotonic_ms())
        if not refused:
            if partition.subscribers:
                self._events.replica_changed(partition)
            self._isr_updates.stepped_down(partition)
            self.ended(partition)
        return refused
