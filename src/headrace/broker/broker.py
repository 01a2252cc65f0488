"""One broker: the things that handlers ask for, wired together. What it does lies in the files beside this one."""

import asyncio
import logging
from dataclasses import dataclass

from headrace.broker.appends import Appends
from headrace.broker.disk import DiskFaults, wake_acks
from headrace.broker.metrics import Metrics
from headrace.broker.parking import FetchEvents
from headrace.broker.partitions import Hosted, Partitions
from headrace.config import BrokerConfig
from headrace.controller.controller import Controller
from headrace.core.acl import CLUSTER, Allowed, Operation, topic
from headrace.core.cluster import NO_LEADER, ClusterImage, Diff, Topic
from headrace.core.partition import Appended
from headrace.errors import CorruptLog, ErrorCode
from headrace.runtime import Clock, Offload, Random

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class Broker:
    node_id: int
    loop: asyncio.AbstractEventLoop
    clock: Clock
    random: Random
    offload: Offload
    image: ClusterImage
    controller: Controller
    partitions: Partitions
    appends: Appends
    faults: DiskFaults
    fetch_events: FetchEvents
    metrics: Metrics
    is_allowed: Allowed

    @property
    def config(self) -> BrokerConfig:
        return self.image.broker_config

    def allowed(self, principal: str, operation: Operation, topic_name: str) -> bool:
        return self.is_allowed(principal, operation, topic(topic_name))

    def allowed_on_cluster(self, principal: str, operation: Operation) -> bool:
        return self.is_allowed(principal, operation, CLUSTER)

    def may_be_node(self, principal: str, replica_id: int) -> bool:
        """Whether to believe a caller that names itself in a request which carries no broker epoch."""
        return replica_id in self.image.brokers and self.allowed_on_cluster(principal, Operation.CLUSTER_ACTION)

    def is_registered(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a request that only nodes may send comes from a node, and from its current incarnation."""
        registered = self.image.brokers.get(broker_id)
        return registered is not None and registered.epoch == broker_epoch

    def leader_and_offline(self, topic: Topic, index: int) -> tuple[int, list[int]]:
        """Who serves a partition (NO_LEADER: nobody), and its replicas that cannot, because of a node or of a disk."""
        record = topic.partitions[index]
        leader, offline = self.image.leader_of(record), self.image.offline_replicas(record)
        here = self.partitions.find(topic.id, index)
        if isinstance(here, Hosted) and here.error is ErrorCode.KAFKA_STORAGE_ERROR:
            offline.append(self.node_id)
            leader = NO_LEADER if leader == self.node_id else leader
        return leader, offline

    def admit(self, partition: Hosted, records: memoryview, now_ms: int) -> Appended | ErrorCode:
        try:
            return partition.admit(records, now_ms)
        except (OSError, CorruptLog) as failure:
            self.faults.failed(partition, "opening the log", failure)
            return ErrorCode.KAFKA_STORAGE_ERROR

    def log_start_moved(self, partition: Hosted, offset: int) -> None:
        partition.log_start_moved(offset)
        if partition.subscribers:
            self.fetch_events.log_start_moved(partition)

    def apply(self, diff: Diff) -> None:
        """Makes this node do what the metadata says: host, drop and configure partitions."""
        for created in diff.topics_created:
            self.partitions.host(created, range(len(created.partitions)))
            self._announce(created.id, range(len(created.partitions)))
        for grown, index in diff.partitions_created:
            self.partitions.host(grown, (index,))
            self._announce(grown.id, (index,))
        for deleted in diff.topics_deleted:
            for dropped in self.partitions.drop(deleted.id):
                self.fetch_events.replica_removed(dropped)
                wake_acks(dropped)
        for configured in diff.topics_configured:
            self.partitions.configure(configured)
        for changed, index in diff.partitions_changed:
            partition = self.partitions.lead(changed, index)
            if partition is not None:
                self.fetch_events.replica_changed(partition)

    def _announce(self, topic_id: bytes, indexes: "range | tuple[int, ...]") -> None:
        """Fetches that asked for these partitions too early are waiting for them."""
        if not self.fetch_events.anybody_waits_for_partitions:
            return
        for index in indexes:
            partition = self.partitions.find(topic_id, index)
            if isinstance(partition, Hosted):
                self.fetch_events.replica_hosted(partition)
