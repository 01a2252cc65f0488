"""What replicas of tiered partitions have on their own disks, told on: by followers to leaders, by leaders to the
controller.

Only edges are told: another local log start, local retention reached, a threshold of bytes crossed, other settings. A
report that goes to the controller changes no record, and takes no turn of the ISR.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import TypeAlias

from headrace.broker.isr_updates import PROPOSALS_MAX, IsrUpdates
from headrace.broker.partitions import Hosted, Partitions
from headrace.broker.roles import Replicator
from headrace.core.cluster import ClusterImage
from headrace.core.coverage import Edge
from headrace.errors import ErrorCode
from headrace.runtime import Clock, tell_bug

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0

Edges: TypeAlias = tuple[int, dict[int, Edge]]
"""With the leader epoch: a new leader does not know what the one before has told."""


class CoverageReports:
    def __init__(
        self,
        *,
        clock: Clock,
        image: ClusterImage,
        partitions: Partitions,
        isr_updates: IsrUpdates,
        replicator: Replicator,
    ) -> None:
        self.sent = 0
        """Partitions of which this node has told the controller."""
        self._clock = clock
        self._image = image
        self._partitions = partitions
        self._isr_updates = isr_updates
        self._replicator = replicator
        self._reported: dict[Hosted, Edges] = {}
        self._asked_ms: dict[Hosted, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.look()
            except Exception as bug:  # in one round: elections need the reports for the rest of the node's life
                tell_bug("what replicas have on disk could not be told, and is looked at again", bug)

    async def look(self) -> None:
        """At all tiered partitions of this node; others cost nothing."""
        hosted = list(self._tiered())
        coverages = self._isr_updates.coverages
        due: dict[Hosted, Edges] = {}
        for partition in hosted:
            if partition.leadership is None:
                self._reported.pop(partition, None)
                if coverages.has_news(partition):
                    self._replicator.list_again(partition)
                continue
            edges = self._edges(partition)
            if edges[1] and self._reported.get(partition) != edges and not self._was_just_sent(partition):
                due[partition] = edges
        self._forget_all_but(hosted)
        if due:
            await self._send(dict(list(due.items())[:PROPOSALS_MAX]))

    def _tiered(self) -> Iterator[Hosted]:
        for topic in self._image.topics.values():
            if topic.config.remote_storage_enable:
                for index in range(len(topic.partitions)):
                    found = self._partitions.find(topic.id, index)
                    if isinstance(found, Hosted):
                        yield found
        for topic_id, index in self._image.tier:  # the tier is given up
            found = self._partitions.find(topic_id, index)
            if isinstance(found, Hosted) and not found.config.remote_storage_enable:
                yield found

    def _edges(self, partition: Hosted) -> Edges:
        leadership, coverages = partition.leadership, self._isr_updates.coverages
        assert leadership is not None
        record = leadership.record
        told = coverages.of_members(partition, () if record.recovering else record.isr)
        return record.leader_epoch, {n: coverages.edge(partition, local) for n, local in told.items()}

    def _was_just_sent(self, partition: Hosted) -> bool:
        asked_ms = self._asked_ms.get(partition)
        gap_ms = self._image.broker_config.leader_election_local_log_report_interval_ms
        return asked_ms is not None and self._clock.monotonic_ms() - asked_ms < gap_ms

    def _forget_all_but(self, hosted: list[Hosted]) -> None:
        known = frozenset(hosted)
        for of in (self._reported, self._asked_ms):
            for gone in [partition for partition in of if partition not in known]:
                del of[gone]
        self._isr_updates.coverages.forget_all_but(known)

    async def _send(self, due: dict[Hosted, Edges]) -> None:
        now_ms = self._clock.monotonic_ms()
        self._asked_ms.update(dict.fromkeys(due, now_ms))
        outcome = await self._isr_updates.inform(list(due))
        for n, (partition, edges) in enumerate(due.items()):
            error = outcome if isinstance(outcome, ErrorCode) else outcome[n]
            if error:
                log.debug("%s: what its replicas have on disk is told later: %s", partition, error.name)
                self._asked_ms.pop(partition, None)
            else:
                self._reported[partition] = edges
                self.sent += 1
