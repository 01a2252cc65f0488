"""What is to be read: of every replica what is committed, and what the tier has, cut into pieces for tasks.

Only what lies below the leader's high watermark: it never changes again, so that it can be read at leisure and has to
be the same everywhere. Behind it followers are cut back in the course of things.
"""

import asyncio

from headrace.client import Admin
from headrace.client.cluster import Cluster
from headrace.client.descriptions import PartitionDescription, Resource, ResourceType
from headrace.client.outside import Outside
from headrace.core.tier_rows import SegmentRow
from headrace.errors import KafkaError
from headrace.pipeline.batch_checks import Finding
from headrace.pipeline.replica_reading import TIER, Piece, Segment, Topic, ends, fetch
from headrace.pipeline.verify_parts import (
    FINISHED,
    INSIDE,
    Document,
    Held,
    PartitionPlan,
    Plan,
    Unread,
    check_reach,
    cut,
    doubts,
)
from headrace.system import SystemRandom, ThreadOffload
from headrace.tier.manifest import CorruptManifest, load
from headrace.tier.opening import open_for_tools
from headrace.tier.store import ObjectMissing, Refused, StoreUnavailable

Settings = dict[str, str | None]
MANIFEST_TRIES = 10
AT_ONCE = 0
"""Milliseconds. Behind the end of a log there is nothing to wait for, and there may be thousands of them."""


async def make_plan(bootstrap: str, name: str, store: str | None, piece_bytes: int, timeout_ms: int) -> Plan:
    """KafkaError if there is no such topic."""
    async with Admin(bootstrap, timeout_ms=timeout_ms) as admin:
        await admin.reach(timeout_ms)
        (described,) = await admin.describe_topics([name])
        settings = await settings_of(admin, name)
        is_compacted = "compact" in (settings.get("cleanup.policy") or "")
        topic = Topic(bootstrap, name, described.topic_id, is_compacted, timeout_ms)
        plan = Plan(topic, [], [])
        sizes = await _sizes(admin, name)
        cluster = Cluster(bootstrap, "headrace-verify", Outside(), creates_topics=False)
        try:
            tiered = await tier_documents(admin, name) if is_tiered(settings) else None
            for one in described.partitions:
                plan.partitions.append(await look_at(cluster, plan, one))
            for partition in plan.partitions:
                segments = []
                if tiered is not None:
                    segments = await _segments(admin, plan, partition, tiered.get(partition.partition), store)
                partition.doubts = doubts(partition, tiered)
                cut(partition, segments, sizes.get(partition.partition, 0), piece_bytes)
        finally:
            await cluster.close()
        return plan


async def settings_of(admin: Admin, name: str) -> Settings:
    resource = Resource(ResourceType.TOPIC, name)
    return {entry.name: entry.value for entry in (await admin.describe_configs([resource]))[resource]}


def is_tiered(settings: Settings) -> bool:
    return settings.get("remote.storage.enable") == "true"


async def _sizes(admin: Admin, name: str) -> dict[int, int]:
    """The largest copy of each partition, in bytes."""
    found: dict[int, int] = {}
    try:
        for directory in await admin.describe_log_dirs():
            for one in directory.partitions:
                if one.topic == name:
                    found[one.partition] = max(found.get(one.partition, 0), one.size_bytes)
    except KafkaError:
        return found  # a node that is away; it is only for cutting
    return found


async def look_at(cluster: Cluster, plan: Plan, told: PartitionDescription) -> PartitionPlan:
    """What each replica has; the plan hears of those that do not say."""
    topic, index = plan.topic, told.partition
    found = PartitionPlan(index, -1 if told.leader is None else told.leader, told.leader_epoch)
    if told.leader is None:
        plan.unread += [Unread(index, node, "nobody leads the partition") for node in told.replicas]
        return found
    try:
        begin, end = await ends(cluster, topic, told.leader, index)
        # Asked before followers are: they have all that was committed then.
        watermark = await fetch(cluster, topic, told.leader, index, end, AT_ONCE)
        if watermark.error_code:
            raise KafkaError(watermark.error_code, f"node {told.leader} does not show the partition that it leads")
    except KafkaError as error:
        plan.unread += [Unread(index, node, f"its leader is not read: {error}") for node in told.replicas]
        return found
    found.high_watermark, found.log_start = watermark.high_watermark, watermark.log_start_offset
    found.held.append(Held(told.leader, True, begin, found.high_watermark))
    for node in told.replicas:
        if node == told.leader:
            continue
        if node in told.offline:
            plan.unread.append(Unread(index, node, "the node is away"))
            continue
        try:
            found.held.append(await _follower(cluster, topic, found, node, node in told.isr))
        except KafkaError as error:
            plan.unread.append(Unread(index, node, str(error)))
    return found


async def _follower(cluster: Cluster, topic: Topic, partition: PartitionPlan, node: int, is_in_sync: bool) -> Held:
    begin, end = await ends(cluster, topic, node, partition.partition)
    known = await fetch(cluster, topic, node, partition.partition, end, AT_ONCE)
    if known.error_code:
        raise KafkaError(known.error_code, f"node {node} does not show its replica")
    # Who is not in sync may have records that are not in its leader's log, behind what it knows to be committed.
    has_all = is_in_sync and end >= partition.high_watermark
    shown = partition.high_watermark if has_all else min(end, known.high_watermark, partition.high_watermark)
    return Held(node, is_in_sync, begin, max(begin, shown))


# The tier.


async def tier_documents(admin: Admin, name: str) -> dict[int, Document]:
    """Of each partition what its leader says of the tier; of two that think they lead, the newer one."""
    nodes = (await admin.describe_cluster()).brokers

    async def ask(node: int) -> list[Document]:
        try:
            found: list[Document] = (await admin.inspect("tier", node, [name], timeout_ms=10_000))["tier"]
            return found
        except KafkaError:
            return []

    newest: dict[int, Document] = {}
    for told in await asyncio.gather(*(ask(node.node_id) for node in nodes)):
        for one in told:
            known = newest.get(one["partition"])
            if known is None or known["leader_epoch"] < one["leader_epoch"]:
                newest[one["partition"]] = one
    return newest


async def _segments(
    admin: Admin, plan: Plan, partition: PartitionPlan, told: Document | None, store: str | None
) -> list[Piece]:
    """All finished ones; and, if they do not reach from the start of the log to its leader's disk, a finding."""
    for _ in range(MANIFEST_TRIES):
        if told is None or "segments" not in told:
            reason = "no node tells of it" if told is None else told["failure"] or "its manifest is not read yet"
            plan.unread.append(Unread(partition.partition, TIER, reason))
            return []
        try:
            rows = await _rows(store or told["url"], told["manifest"])
        except ObjectMissing:  # its leader puts another one in its place whenever something is copied, or deleted
            newer = (await tier_documents(admin, plan.topic.name)).get(partition.partition)
            if newer is not None and newer.get("manifest") == told["manifest"]:
                missing = Finding("tier", partition.log_start, f"the manifest is missing ({told['manifest']})")
                partition.findings.append((TIER, missing))
                return []
            told = newer
            continue
        except CorruptManifest as error:
            text = f"{str(error).rstrip('.')} ({told['manifest']})"
            partition.findings.append((TIER, Finding("tier", partition.log_start, text)))
            return []
        except (StoreUnavailable, Refused) as error:
            plan.unread.append(Unread(partition.partition, TIER, str(error)))
            return []
        pieces = _pieces(partition, told, rows, store)
        check_reach(partition, told, pieces)
        return pieces
    plan.unread.append(Unread(partition.partition, TIER, "its manifest changed each time before it could be read"))
    return []


async def _rows(url: str, key: str | None) -> dict[str, SegmentRow]:
    if key is None:
        return {}
    offload = ThreadOffload()
    store = open_for_tools(url, offload, SystemRandom())
    try:
        return {row.id: row for row in (await load(store, key)).rows}
    finally:
        await store.close()
        offload.close()


def _pieces(partition: PartitionPlan, told: Document, rows: dict[str, SegmentRow], store: str | None) -> list[Piece]:
    pieces = []
    for one in told["segments"]:
        if one["state"] != FINISHED:
            continue
        row = rows.get(one["id"])
        if row is None:
            finding = Finding("tier", one["base_offset"], f"the manifest does not name it ({one['object']})")
            partition.findings.append((TIER, finding))
            continue
        segment = Segment(store or told["url"], one["object"], row)
        is_log = one["verdict"] == INSIDE
        pieces.append(Piece(partition.partition, TIER, row.base_offset, row.end_offset + 1, segment, is_log))
    return sorted(pieces, key=lambda piece: (piece.start, piece.end))
