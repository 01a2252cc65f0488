"""How many bytes a record has on average: about, for who limits a batch by bytes, and so nothing waits long for it."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.cluster import Cluster, group_by_topic
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.spark.tier_view import Remote, RemoteViews
from headrace.wire.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse

SIZES_MS_MAX = 2_000
"""A leader may have died since it was asked for something else."""


class Local(NamedTuple):
    """What of a partition is on its leader's disk."""

    start: int
    end: int


class RecordSizes:
    """By what lies on the leaders' disks, and where nothing does by what is in the tier; where nobody tells it now, by
    what was told last."""

    def __init__(self, cluster: Cluster, remote: RemoteViews) -> None:
        self._cluster = cluster
        self._remote = remote
        self._known: dict[TopicPartition, float] = {}

    async def ask(self, partitions: Mapping[TopicPartition, Local]) -> dict[TopicPartition, float]:
        """Those of which nothing is known are left out."""
        told = await self._on_disks(partitions)
        self._known |= told
        unknown = {one: local.start for one, local in partitions.items() if one not in self._known}
        self._known |= await self._in_tier(unknown)
        return {one: self._known[one] for one in partitions if one in self._known}

    async def _on_disks(self, partitions: Mapping[TopicPartition, Local]) -> dict[TopicPartition, float]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for one in partitions:
            if (leader := self._cluster.leader(one)) is not None:
                by_leader.setdefault(leader.node_id, []).append(one)
        sizes: dict[TopicPartition, int] = {}
        for some in await asyncio.gather(*(self._on_disks_of(node_id, led) for node_id, led in by_leader.items())):
            sizes |= some
        counts = {one: local.end - local.start for one, local in partitions.items()}
        return {one: size / counts[one] for one, size in sizes.items() if size and counts.get(one, 0) > 0}

    async def _on_disks_of(self, node_id: int, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        question = DescribeLogDirsRequest(
            topics=[
                DescribableLogDirTopic(topic=topic, partitions=indexes)
                for topic, indexes in group_by_topic(partitions).items()
            ]
        )
        try:
            answer = await self._cluster.ask(question, DescribeLogDirsResponse, SIZES_MS_MAX, node_id)
        except KafkaError:
            return {}
        return {
            TopicPartition(topic.name, told.partition_index): told.partition_size
            for result in answer.results
            if result.error_code == ErrorCode.NONE
            for topic in result.topics
            for told in topic.partitions
        }

    async def _in_tier(self, local_starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        if not local_starts:
            return {}
        try:
            async with asyncio.timeout(SIZES_MS_MAX / 1000):
                remote = await self._remote.ask(local_starts)
        except (KafkaError, TimeoutError):
            return {}
        return {one: size for one, found in remote.items() if (size := _mean(found)) > 0}


def _mean(remote: Remote) -> float:
    rows = remote.log.rows
    count = sum(row.end_offset + 1 - row.base_offset for row in rows)
    return sum(row.bytes for row in rows) / count if count else 0.0
