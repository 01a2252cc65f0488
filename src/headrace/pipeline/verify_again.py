"""A second look, when all is read: what was only on its way at the first one is no finding.

Replicas join and leave the ISR, each node deletes old segments at its own time, and objects of the tier expire, while
the others are read.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from headrace.client import Admin
from headrace.client.cluster import Cluster
from headrace.client.outside import Outside
from headrace.errors import KafkaError
from headrace.pipeline.replica_reading import Topic, listed
from headrace.pipeline.verify_parts import BEGINNING, Document, Doubt, PartitionPlan, Plan, Unread, doubts
from headrace.pipeline.verify_plan import Settings, is_tiered, look_at, settings_of, tier_documents
from headrace.pipeline.verify_report import Found

LOOKS, PAUSE_S = 3, 1.0
"""Nodes hear of another ISR, and of another log start, within a moment."""

Doubted = tuple[int, int, str]
"""Partition, node, and which end of its log."""


class SecondLook(NamedTuple):
    findings: list[Found]
    unread: list[Found]
    """What was in doubt, and could not be looked at again."""


def found_of(partition: PartitionPlan, doubt: Doubt) -> Found:
    return Found(partition.partition, doubt.node, *doubt.finding)


async def look_again(plan: Plan, found: Sequence[Found]) -> SecondLook:
    """Of all that was found, what is so still."""
    topic = plan.topic
    open_doubts = {
        (partition.partition, doubt.node, doubt.edge): found_of(partition, doubt)
        for partition in plan.partitions
        for doubt in partition.doubts
    }
    if not open_doubts and not any(one.kind == "tier" for one in found):
        return SecondLook(list(found), [])
    certain = [one for one in found if one not in open_doubts.values()]
    unread: list[Found] = []
    async with Admin(topic.bootstrap, timeout_ms=topic.timeout_ms) as admin:
        kept = without_expired(plan, certain, await _named(admin, topic))
        for look in range(LOOKS):
            await asyncio.sleep(PAUSE_S if look and open_doubts else 0)
            open_doubts, silent = still_open(open_doubts, await _look(admin, topic, open_doubts))
            unread += silent
    return SecondLook([*kept, *open_doubts.values()], unread)


# Objects of the tier.


def without_expired(plan: Plan, found: Sequence[Found], told: Mapping[int, Document]) -> list[Found]:
    """An object that its partition's leader names no more is no loss. A leader that does not answer excuses nothing."""
    keys = {
        (piece.partition, piece.segment.key)
        for piece in plan.pieces
        if piece.segment is not None and "segments" in told.get(piece.partition, {})
    }
    named = {(number, segment["object"]) for number, one in told.items() for segment in one.get("segments", ())}
    expired = keys - named
    return [
        one
        for one in found
        if one.kind != "tier" or not any(one.partition == number and key in one.text for number, key in expired)
    ]


async def _named(admin: Admin, topic: Topic) -> dict[int, Document]:
    try:
        return await tier_documents(admin, topic.name)
    except KafkaError:
        return {}


# Replicas that seemed to lack something.


def still_open(open_doubts: Mapping[Doubted, Found], fresh: Plan) -> tuple[dict[Doubted, Found], list[Found]]:
    """Those that the fresh look has too; and of those whose replica does not answer, why."""
    reasons = {(one.partition, one.node): one.reason for one in fresh.unread}
    now = {(one.partition, doubt.node, doubt.edge) for one in fresh.partitions for doubt in one.doubts}
    silent = [
        Found(number, node, "unread", found.offset, f"{found.text}; now it does not answer: {reasons[number, node]}")
        for (number, node, _), found in open_doubts.items()
        if (number, node) in reasons
    ]
    return {one: found for one, found in open_doubts.items() if one in now and one[:2] not in reasons}, silent


async def _look(admin: Admin, topic: Topic, doubted: Collection[Doubted]) -> Plan:
    """At the partitions of these replicas alone."""
    numbers = {number for number, _, _ in doubted}
    fresh = Plan(topic, [], [])
    if not numbers:
        return fresh
    cluster = Cluster(topic.bootstrap, "headrace-verify", Outside(), creates_topics=False)
    try:
        (described,) = await admin.describe_topics([topic.name])
        for one in described.partitions:
            if one.partition in numbers:
                fresh.partitions.append(await look_at(cluster, fresh, one))
        await _doubt(admin, cluster, fresh)
    except KafkaError as error:
        fresh.unread += [Unread(number, node, str(error)) for number, node, _ in doubted]
    finally:
        await cluster.close()
    return fresh


async def _doubt(admin: Admin, cluster: Cluster, fresh: Plan) -> None:
    """What nobody would delete by now. The tier is asked after the replicas: it has what they deleted for its sake."""
    topic = fresh.topic
    settings = await settings_of(admin, topic.name)
    tiered = await tier_documents(admin, topic.name) if is_tiered(settings) else None
    sizes = await _sizes(admin, topic.name)
    for partition in fresh.partitions:
        deleted_to = await _deleted_to(cluster, topic, partition, settings) if partition.held else 0
        for doubt in doubts(partition, tiered):
            size = sizes.get((doubt.node, partition.partition), 0)
            if doubt.edge != BEGINNING or not _may_be_gone(partition, doubt.node, deleted_to, size, settings):
                partition.doubts.append(doubt)


def _may_be_gone(partition: PartitionPlan, node: int, deleted_to: int, size: int, settings: Settings) -> bool:
    """Each node deletes by itself, by whole segments, which others may have cut elsewhere: for long, one may begin
    later than another. All that it has deleted has expired by time, or it still has as much as it is to keep."""
    start = next(held.start for held in partition.held if held.node == node)
    kept_bytes = int(settings.get("retention.bytes") or -1)
    return deletes(settings) and (start <= deleted_to or 0 <= kept_bytes <= size)


async def _deleted_to(cluster: Cluster, topic: Topic, partition: PartitionPlan, settings: Settings) -> int:
    """Everything below it is older than records have to be kept."""
    kept_ms = int(settings.get("retention.ms") or -1)
    if kept_ms < 0 or not deletes(settings):
        return partition.log_start
    oldest_ms = max(0, Outside().clock.wall_ms() - kept_ms)
    try:
        first = await listed(cluster, topic, partition.leader, partition.partition, oldest_ms)
    except KafkaError:  # nobody knows, and so nothing is excused
        return partition.log_start
    return partition.high_watermark if first < 0 else first


def deletes(settings: Settings) -> bool:
    return "delete" in (settings.get("cleanup.policy") or "")


async def _sizes(admin: Admin, name: str) -> dict[tuple[int, int], int]:
    """Of each node's copy of each partition, in bytes."""
    try:
        return {
            (directory.node_id, one.partition): one.size_bytes
            for directory in await admin.describe_log_dirs()
            for one in directory.partitions
            if one.topic == name
        }
    except KafkaError:
        return {}
