"""Partitions that this node follows: each is replicated from its leader by one of the fetchers for that node.

Roles say whom to follow. A partition that fails is left alone until its next leader epoch, and the others never notice.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.disk import DiskFaults, is_sync_failure
from headrace.broker.local_coverage import Coverages
from headrace.broker.partitions import Hosted
from headrace.broker.replicator_asking import Leaders
from headrace.broker.replicator_fetcher import Fetcher, Surroundings
from headrace.broker.replicator_logs import FollowerLogs
from headrace.broker.replicator_tier import RemoteParts
from headrace.config import BrokerConfig
from headrace.core.cluster import RegisteredBroker
from headrace.core.following import FailedPartitions
from headrace.core.murmur2 import murmur2
from headrace.errors import CorruptLog
from headrace.runtime import Clock, Offload
from headrace.storage.log_dir import LogDir

log = logging.getLogger(__name__)


class _Home(NamedTuple):
    fetcher: Fetcher
    leader_epoch: int


class Replicator:
    def __init__(
        self,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        clock: Clock,
        offload: Offload,
        leaders: Leaders,
        faults: DiskFaults,
        config: Callable[[], BrokerConfig],
        coverages: Coverages | None = None,
    ) -> None:
        """`broker_epoch` tells this node's registration, 0 without one. `leaders` are broker.peers."""
        self.failed: FailedPartitions[Hosted] = FailedPartitions()
        self.logs = FollowerLogs(clock, offload)
        self.fetchers: dict[tuple[int, int, int], Fetcher] = {}
        """By node, its registration, and number."""
        self.on_lost: Callable[[int], None] = lambda _: None
        """A node that leads has stopped answering."""
        self._clock = clock
        self._config = config
        self._faults = faults
        self._homes: dict[Hosted, _Home] = {}
        self._closing = False
        self._around = Surroundings(
            node_id=node_id,
            broker_epoch=broker_epoch,
            clock=clock,
            config=config,
            leaders=leaders,
            logs=self.logs,
            faults=faults,
            failed=self.failed,
            on_failed=self._on_failed,
            on_fenced=self._on_fenced,
            on_lost=lambda leader_id: self.on_lost(leader_id),
            coverages=Coverages() if coverages is None else coverages,
        )
        faults.followers = self

    @property
    def coverages(self) -> Coverages:
        """What this node tells leaders of its own disk."""
        return self._around.coverages

    @property
    def tier(self) -> RemoteParts | None:
        """Where followers begin whose leaders have older records there alone; None on a node without a tier."""
        return self._around.tier

    @tier.setter
    def tier(self, tier: RemoteParts | None) -> None:
        self._around.tier = tier

    def list_again(self, partition: Hosted) -> None:
        """Its leader is to hear of it with the next fetch."""
        home = self._homes.get(partition)
        if home is not None:
            home.fetcher.list_again(partition)

    def follow(self, partition: Hosted, leader: RegisteredBroker, leader_epoch: int) -> None:
        """Never raises. Nothing happens if the epoch is no news, or if the partition has failed in it."""
        if self._closing or self.failed.bars(partition, leader_epoch):
            return
        home = self._homes.get(partition)
        if home is not None and leader_epoch <= home.leader_epoch:
            return
        if partition.fault:
            self.stop(partition)  # its disk is gone until the process starts again
            return
        fetcher = self._fetcher_for(leader, partition)
        if home is not None and home.fetcher is not fetcher:
            home.fetcher.remove(partition)  # before the log's end is read: nothing more is appended by that one
        self.failed.discard(partition)
        self._faults.given_up.pop(partition, None)
        self._homes[partition] = _Home(fetcher, leader_epoch)
        fetcher.add(partition, leader_epoch)

    def stop(self, partition: Hosted) -> None:
        """This node leads it, or holds it no longer, or nobody leads it."""
        home = self._homes.pop(partition, None)
        if home is not None:
            home.fetcher.remove(partition)
        self.failed.discard(partition)
        self._faults.given_up.pop(partition, None)

    def lag(self, partition: Hosted) -> int | None:
        """How far it is behind the leader's high watermark; None if it is not replicated."""
        home = self._homes.get(partition)
        return None if home is None else home.fetcher.partitions.lag(partition)

    async def close(self) -> None:
        self._closing = True
        await asyncio.gather(*(fetcher.close() for fetcher in list(self.fetchers.values())))
        self.fetchers.clear()
        self._homes.clear()

    def _fetcher_for(self, leader: RegisteredBroker, partition: Hosted) -> Fetcher:
        index = (murmur2(partition.topic.encode()) + partition.index) % self._config().num_replica_fetchers
        key = leader.id, leader.epoch, index
        fetcher = self.fetchers.get(key)
        if fetcher is None:

            def ended(_: Fetcher) -> None:
                del self.fetchers[key]

            fetcher = self.fetchers[key] = Fetcher(leader, index, self._around, ended)
        return fetcher

    # Failures.

    def _on_failed(self, partition: Hosted, reason: str, leader_epoch: int) -> None:
        self._homes.pop(partition, None)
        log.error("%s is not replicated before its next leader epoch, after %d: %s", partition, leader_epoch, reason)

    def _on_fenced(self, partition: Hosted) -> None:
        """Its next leader epoch is on its way."""
        self._homes.pop(partition, None)

    def partition_failed(self, partition: Hosted, doing: str, error: OSError | CorruptLog) -> None:
        """Its own disk trouble. Nobody touches the files before the next leader epoch."""
        if partition in self._faults.given_up:
            return
        self._faults.give_up(partition, is_doubted=is_sync_failure(doing, error))
        home = self._homes.get(partition)
        if home is not None:
            home.fetcher.remove(partition)
        leader_epoch = partition.leader_epoch if home is None else home.leader_epoch
        reason = f"{doing} failed: {error}"
        self.failed.add(partition, reason, self._clock.monotonic_ms(), leader_epoch)
        self._on_failed(partition, reason, leader_epoch)

    def directory_failed(self, directory: LogDir) -> None:
        for partition in [known for known in self._homes if known.directory is directory]:
            self.stop(partition)
        for partition in [known for known, _ in self.failed.items() if known.directory is directory]:
            self.stop(partition)
