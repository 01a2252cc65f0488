"""What is to be read: of every replica what is committed, and what the tier has, cut into pieces for tasks.

Only what lies below the leader's high watermark: it never changes again, so that it can be read at leisure and has to
be the same everywhere. Behind it followers are cut back in the course of things.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from headrace.client import Admin
from headrace.client.cluster import Cluster
from headrace.client.descriptions import PartitionDescription, Resource, ResourceType
from headrace.client.outside import Outside
from headrace.core.tier_rows import SegmentRow
from headrace.errors import KafkaError
from headrace.pipeline.batch_checks import Finding
from headrace.pipeline.replica_reading import TIER, Piece, Segment, Topic, ends, fetch
from headrace.system import SystemRandom, ThreadOffload
from headrace.tier.manifest import CorruptManifest, load
from headrace.tier.opening import open_for_tools
from headrace.tier.store import ObjectMissing, Refused, StoreUnavailable

Document = dict[str, Any]
FINISHED, INSIDE = "copy_finished", "inside"
MANIFEST_TRIES = 10
PIECES_MAX = 4_096
"""Of one replica of a partition."""


class Held(NamedTuple):
    """What one replica has, of that which is committed."""

    node: int
    is_in_sync: bool
    start: int
    end: int


class Unread(NamedTuple):
    partition: int
    node: int
    reason: str


@dataclass
class PartitionPlan:
    partition: int
    leader: int
    leader_epoch: int
    high_watermark: int = -1
    log_start: int = 0
    held: list[Held] = field(default_factory=list)
    tier: tuple[int, int] | None = None
    """The first offset, and that behind the last."""
    pieces: list[Piece] = field(default_factory=list)
    findings: list[tuple[int, Finding]] = field(default_factory=list)
    """By node."""


@dataclass
class Plan:
    topic: Topic
    partitions: list[PartitionPlan]
    unread: list[Unread]

    @property
    def pieces(self) -> list[Piece]:
        return [piece for partition in self.partitions for piece in partition.pieces]


async def make_plan(bootstrap: str, name: str, store: str | None, piece_bytes: int, timeout_ms: int) -> Plan:
    """KafkaError if there is no such topic."""
    async with Admin(bootstrap, timeout_ms=timeout_ms) as admin:
        await admin.reach(timeout_ms)
        (described,) = await admin.describe_topics([name])
        settings = await _settings(admin, name)
        is_compacted = "compact" in (settings.get("cleanup.policy") or "")
        topic = Topic(bootstrap, name, described.topic_id, is_compacted, timeout_ms)
        plan = Plan(topic, [], [])
        sizes = await _sizes(admin, name)
        cluster = Cluster(bootstrap, "headrace-verify", Outside(), creates_topics=False)
        try:
            tiered: dict[int, Document] = {}
            if settings.get("remote.storage.enable") == "true":
                tiered = await tier_documents(admin, name)
            for one in described.partitions:
                plan.partitions.append(await _partition(cluster, plan, one))
            for partition in plan.partitions:
                segments = []
                if settings.get("remote.storage.enable") == "true":
                    segments = await _segments(admin, plan, partition, tiered.get(partition.partition), store)
                _cut(partition, segments, sizes.get(partition.partition, 0), piece_bytes)
        finally:
            await cluster.close()
        return plan


async def _settings(admin: Admin, name: str) -> dict[str, str | None]:
    resource = Resource(ResourceType.TOPIC, name)
    return {entry.name: entry.value for entry in (await admin.describe_configs([resource]))[resource]}


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


async def _partition(cluster: Cluster, plan: Plan, told: PartitionDescription) -> PartitionPlan:
    topic, index = plan.topic, told.partition
    found = PartitionPlan(index, -1 if told.leader is None else told.leader, told.leader_epoch)
    if told.leader is None:
        plan.unread += [Unread(index, node, "nobody leads the partition") for node in told.replicas]
        return found
    try:
        begin, end = await ends(cluster, topic, told.leader, index)
        # Asked before followers are: they have all that was committed then.
        watermark = await fetch(cluster, topic, told.leader, index, end)
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
    known = await fetch(cluster, topic, node, partition.partition, end)
    if known.error_code:
        raise KafkaError(known.error_code, f"node {node} does not show its replica")
    committed = partition.high_watermark
    if is_in_sync and end < committed:
        text = f"node {node} is in sync and ends at offset {end}, {committed} was committed"
        partition.findings.append((node, Finding("missing", end, text)))
    # Who is not in sync may have records that are not in its leader's log, behind what it knows to be committed.
    return Held(node, is_in_sync, begin, min(committed, end if is_in_sync else min(end, known.high_watermark)))


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
        _check_reach(partition, told, pieces)
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


def _check_reach(partition: PartitionPlan, told: Document, pieces: Sequence[Piece]) -> None:
    at = told["log_start"]
    inside = [piece for piece in pieces if piece.is_log]
    for piece in [*inside, Piece(partition.partition, TIER, told["local_log_start"], told["local_log_start"])]:
        if piece.start > at:
            text = f"offsets {at} to {piece.start - 1} are neither in the tier nor on its leader's disk"
            partition.findings.append((TIER, Finding("missing", at, text)))
        at = max(at, piece.end)
    if inside:
        partition.tier = (inside[0].start, max(piece.end for piece in inside))


# Cutting.


def _cut(partition: PartitionPlan, segments: Sequence[Piece], size: int, piece_bytes: int) -> None:
    """All replicas at the same offsets, so that pieces can be compared: where one begins or ends, where a segment of
    the tier does, and between them so that a piece has about so many bytes."""
    partition.pieces += segments
    inside = {(piece.start, piece.end) for piece in segments if piece.is_log}
    edges = {offset for held in partition.held for offset in (held.start, held.end)}
    edges |= {offset for both in inside for offset in both}
    span = max((held.end - held.start for held in partition.held), default=0)
    step = max(1, span // max(1, min(PIECES_MAX, size // piece_bytes)))
    for held in partition.held:
        cuts = sorted({held.start, held.end, *(edge for edge in edges if held.start < edge < held.end)})
        for start, end in pairwise(cuts):
            length = end - start if (start, end) in inside else step
            partition.pieces += [
                Piece(partition.partition, held.node, at, min(end, at + length)) for at in range(start, end, length)
            ]
