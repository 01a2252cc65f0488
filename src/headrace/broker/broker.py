"""One broker: the things that handlers ask for, wired together. What it does lies in the files beside this one."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.broker.absences import Absences
from headrace.broker.appends import Appends
from headrace.broker.cleaner_stats import CleanerStats
from headrace.broker.commits import Commits
from headrace.broker.coverage_reports import CoverageReports
from headrace.broker.disk import DiskFaults
from headrace.broker.isr_updates import IsrUpdates
from headrace.broker.list_guards import ListGuards
from headrace.broker.metrics import Metrics
from headrace.broker.parking import FetchEvents
from headrace.broker.partitions import Hosted, Partitions
from headrace.broker.peers import Peers
from headrace.broker.roles import Roles
from headrace.broker.store_health import StoreHealth
from headrace.broker.tier import Tier
from headrace.broker.tier_lookups import TierLookups
from headrace.broker.tier_reads import TierReads
from headrace.broker.verification import Verification
from headrace.config import BrokerConfig
from headrace.controller.controller import Controller
from headrace.core.acl import CLUSTER, Allowed, Operation, topic
from headrace.core.cluster import NO_LEADER, ClusterImage, Diff, Topic
from headrace.core.partition import Appended
from headrace.core.verified import Verified, VerifyFirst
from headrace.errors import CorruptLog, ErrorCode
from headrace.net.connection import Connection
from headrace.runtime import Clock, Offload, Random

if TYPE_CHECKING:
    from headrace.broker.coordinators.groups import Groups
    from headrace.broker.coordinators.internal_topics import InternalTopics
    from headrace.broker.coordinators.transactions import Transactions
    from headrace.broker.ownership import Ownership
    from headrace.broker.ownership_grants import Grants
    from headrace.broker.ownership_requests import OwnRequests

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
    peers: Peers
    commits: Commits
    guards: ListGuards
    isr_updates: IsrUpdates
    roles: Roles
    store_health: StoreHealth
    metrics: Metrics
    is_allowed: Allowed
    absences: Absences = field(init=False)
    cleaner_stats: CleanerStats = field(default_factory=CleanerStats)
    verification: Verification = field(init=False)
    internal_topics: "InternalTopics" = field(init=False)
    groups: "Groups" = field(init=False)
    transactions: "Transactions" = field(init=False)
    ownership: "Ownership" = field(init=False)
    own_grants: "Grants" = field(init=False)
    own_requests: "OwnRequests" = field(init=False)
    coverage_reports: CoverageReports = field(init=False)
    tier: Tier | None = None
    """None on a node without object store: remote.log.storage.system.enable is false."""
    tier_reads: TierReads | None = None
    tier_lookups: TierLookups | None = None
    on_connection_closed: list[Callable[[Connection], None]] = field(default_factory=list)
    """Called in this order, once for each connection, whoever closed it: what waits for it waits for nobody."""
    _announcements: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.absences = Absences(self.image, self.clock)
        self.verification = Verification(self)
        self.coverage_reports = CoverageReports(
            clock=self.clock,
            image=self.image,
            partitions=self.partitions,
            isr_updates=self.isr_updates,
            replicator=self.roles.replicator,
        )

    def connection_closed(self, connection: Connection) -> None:
        for told in self.on_connection_closed:
            told(connection)

    @property
    def config(self) -> BrokerConfig:
        return self.image.broker_config

    @property
    def controller_epoch(self) -> int:
        """Of the newest controller that this node knows of."""
        return 0 if self.image.controller is None else self.image.controller.epoch

    @property
    def controller_id(self) -> int:
        """-1 when nobody is, or when it is not registered any more."""
        controller = self.image.controller
        return controller.id if controller is not None and controller.id in self.image.brokers else -1

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
        leader, image = self.image.leader_of(record), self.image
        offline = [replica for replica in record.replicas if not image.is_reachable(replica, topic.id, index)]
        here = self.partitions.find(topic.id, index)
        if isinstance(here, Hosted) and here.fault is ErrorCode.KAFKA_STORAGE_ERROR:
            if self.node_id not in offline:  # it may not have been announced yet
                offline.append(self.node_id)
            leader = NO_LEADER if leader == self.node_id else leader
        return leader, offline

    def admit(
        self, partition: Hosted, records: memoryview, now_ms: int, verified: Verified | None = None
    ) -> Appended | ErrorCode | VerifyFirst:
        try:
            return partition.admit(records, now_ms, verified)
        except (OSError, CorruptLog) as failure:
            self.faults.failed(partition, "opening the log", failure)
            return ErrorCode.KAFKA_STORAGE_ERROR

    def log_start_moved(self, partition: Hosted, offset: int) -> None:
        partition.log_start_moved(offset)
        if partition.subscribers:
            self.fetch_events.log_start_moved(partition)

    def announce_offline(self, replicas: frozenset[tuple[bytes, int]]) -> None:
        """Others may lead what this node has lost the disk of."""
        task = self.loop.create_task(self.controller.announce_offline(replicas))
        self._announcements.add(task)
        task.add_done_callback(self._announcements.discard)

    def apply(self, diff: Diff) -> None:
        """Makes this node do what the metadata says: host, lead, follow, drop and configure partitions."""
        if diff.brokers_changed:
            self.absences.nodes_changed(diff.brokers_changed)
        self.roles.apply(diff)
        if self.tier is not None and (diff.topics_configured or diff.tier_changed):
            self.tier.configured(diff.topics_configured, self.partitions)
            self.tier.applied(diff.tier_changed, self.partitions)
        if self.tier is not None and diff.topics_deleted:
            self.tier.topics_deleted(diff.topics_deleted)
        if diff.topics_deleted:
            self.groups.topics_deleted([topic.name for topic in diff.topics_deleted])
