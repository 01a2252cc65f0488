"""What tasks do: one stretch of one replica, or of a segment in the tier, is read and checked.

A replica is read as somebody reads who debugs (replica id -2): from the very node, leader or not.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.outside import Outside
from headrace.core.tier_rows import SegmentRow
from headrace.errors import ErrorCode, KafkaError
from headrace.pipeline.batch_checks import BatchChecks, Stretch
from headrace.system import SystemRandom, ThreadOffload
from headrace.tier.opening import open_for_tools
from headrace.tier.store import ObjectStore, Refused, Source, StoreUnavailable
from headrace.tier.verify import verify_segment
from headrace.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

DEBUGS = -2
LATEST, EARLIEST_LOCAL = -1, -4
FETCH_BYTES = 4 << 20
WAIT_MS = 500
TIER = -1
"""In the place of a node's number."""

GONE = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
NEWS_MAX = 20
"""So often in a row nothing may come."""


class Segment(NamedTuple):
    """In the tier."""

    url: str
    key: str
    row: SegmentRow


class Topic(NamedTuple):
    bootstrap: str
    name: str
    topic_id: bytes
    is_compacted: bool
    timeout_ms: int


class Piece(NamedTuple):
    """The batches whose last offsets are from `start` to before `end`, as one replica has them."""

    partition: int
    node: int
    start: int
    end: int
    segment: Segment | None = None
    is_log: bool = True
    """False for what is in the tier and not of the leader's log: it is checked, and compared with nothing."""


def check(topic: Topic, piece: Piece) -> Stretch:
    return asyncio.run(_checked(topic, piece, keeps_headers=False)).finish()


def headers_of(topic: Topic, piece: Piece) -> list[tuple[int, bytes]]:
    """Base offsets and headers of all batches of the piece."""
    return asyncio.run(_checked(topic, piece, keeps_headers=True)).headers


async def _checked(topic: Topic, piece: Piece, keeps_headers: bool) -> BatchChecks:
    checks = BatchChecks(
        piece.start,
        piece.end,
        is_compacted=topic.is_compacted,
        checks_sums=piece.segment is None and not keeps_headers,
        keeps_headers=keeps_headers,
    )
    try:
        if piece.segment is None:
            await _read_replica(topic, piece, checks)
        else:
            await _read_segment(piece.segment, checks)
    except (KafkaError, StoreUnavailable, Refused) as error:
        checks.stretch.unread = str(error)
    return checks


# A replica.


async def _read_replica(topic: Topic, piece: Piece, checks: BatchChecks) -> None:
    cluster = Cluster(topic.bootstrap, "headrace-verify", Outside(), creates_topics=False)
    try:
        async for data in _fetched(cluster, topic, piece, checks):
            checks.feed(data)
            if checks.is_done:
                return
    finally:
        await cluster.close()


async def _fetched(cluster: Cluster, topic: Topic, piece: Piece, checks: BatchChecks) -> AsyncIterator[bytes]:
    """Until the consumer of it has enough."""
    stretch, at, in_vain = checks.stretch, piece.start, 0
    while at < piece.end and in_vain < NEWS_MAX:
        told = await fetch(cluster, topic, piece.node, piece.partition, at)
        code = told.error_code
        if code in GONE:
            begin, end = await ends(cluster, topic, piece.node, piece.partition)
            if at < begin:
                checks.cut()
                at = begin
                continue
            stretch.note("missing", at, f"the log of node {piece.node} ends at offset {end}")
            return
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            stretch.note("unreadable", at, f"node {piece.node} cannot read its log")
            return
        if code:
            raise KafkaError(code, f"node {piece.node} does not show partition {piece.partition}")
        data = bytes(told.records or b"")
        if not data:
            in_vain += 1
            continue
        in_vain = 0
        yield data
        if stretch.next_offset <= at:
            return  # no batch that goes on from here; what that means is seen when all stretches are joined
        at = stretch.next_offset
    if at < piece.end:
        stretch.note("missing", at, f"node {piece.node} shows nothing from offset {at} on")


async def fetch(
    cluster: Cluster, topic: Topic, node: int, partition: int, offset: int, wait_ms: int = WAIT_MS
) -> PartitionData:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        replica_id=DEBUGS,
        replica_state=ReplicaState(replica_id=DEBUGS),
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=[FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[asked])],
    )
    answer = await cluster.ask(request, FetchResponse, topic.timeout_ms, node)
    if answer.error_code or not answer.responses:
        raise KafkaError(answer.error_code, f"node {node} does not answer a fetch")
    return answer.responses[0].partitions[0]


async def ends(cluster: Cluster, topic: Topic, node: int, partition: int) -> tuple[int, int]:
    """Where the log begins on that node's disk, and where it ends."""
    first = await listed(cluster, topic, node, partition, EARLIEST_LOCAL)
    return first, await listed(cluster, topic, node, partition, LATEST)


async def listed(cluster: Cluster, topic: Topic, node: int, partition: int, timestamp_ms: int) -> int:
    """The first offset from that time on, as the node knows it; -1 if there is none."""
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp_ms)
    request = ListOffsetsRequest(replica_id=DEBUGS, topics=[ListOffsetsTopic(name=topic.name, partitions=[asked])])
    answer = await cluster.ask(request, ListOffsetsResponse, topic.timeout_ms, node)
    told = answer.topics[0].partitions[0]
    if told.error_code:
        raise KafkaError(told.error_code, f"node {node} does not tell the offsets of partition {partition}")
    return told.offset


# A segment in the tier.


async def _read_segment(segment: Segment, checks: BatchChecks) -> None:
    offload = ThreadOffload()
    store = open_for_tools(segment.url, offload, SystemRandom())
    try:
        overheard = _Overheard(store, segment.row, checks)
        for problem in await verify_segment(overheard, segment.key, segment.row):
            checks.stretch.note("tier", segment.row.base_offset, f"{problem.rstrip('.')} ({segment.key})")
            checks.stretch.was_cut = True  # what is harmed is told; that it differs, too, is no news
    finally:
        await store.close()
        offload.close()


class _Overheard:
    """The store, of which the segment's log goes to our checks too as it is read: the object is read once."""

    def __init__(self, store: ObjectStore, row: SegmentRow, checks: BatchChecks) -> None:
        self._store = store
        self._log = row.sections.log
        self._checks = checks
        self._rest = b""

    async def get(self, key: str, start: int, end: int) -> bytes:
        data = await self._store.get(key, start, end)
        if self._log[0] <= start < sum(self._log) and not self._checks.is_done:
            self._rest += data
            used = self._checks.feed(self._rest)
            self._rest = self._rest[used:]
        return data

    async def size(self, key: str) -> int:
        return await self._store.size(key)

    async def begin(self) -> None:
        await self._store.begin()

    async def put(self, key: str, parts: Sequence[Source]) -> None:  # noqa: ARG002  # of the port
        raise AssertionError("it is only read")

    async def delete(self, key: str) -> None:  # noqa: ARG002  # of the port
        raise AssertionError("it is only read")

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        return self._store.list(prefix)

    async def close(self) -> None: ...
