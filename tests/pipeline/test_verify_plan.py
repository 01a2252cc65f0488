"""How replicas and segments are cut so that they can be compared, and what is told of them."""

import asyncio
from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import output, pipeline
from headrace.client.cluster import Cluster
from headrace.client.descriptions import PartitionDescription
from headrace.pipeline.replica_reading import LATEST, TIER, Piece, Segment, Topic
from headrace.pipeline.verify import tasks_of
from headrace.pipeline.verify_parts import Held, PartitionPlan, Plan, check_reach, cut
from headrace.pipeline.verify_plan import look_at
from headrace.pipeline.verify_report import Found, Report, Row
from headrace.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from headrace.wire.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.tier.rows import row


def plan(*held: tuple[int, int]) -> PartitionPlan:
    found = PartitionPlan(0, leader=1, leader_epoch=3, high_watermark=max(end for _, end in held))
    found.held = [Held(node, True, start, end) for node, (start, end) in enumerate(held, 1)]
    return found


def segments(*edges: int) -> list[Piece]:
    return [Piece(0, TIER, start, end) for start, end in pairwise(edges)]


class Waiting:
    """Nodes whose logs end at 7; how long each fetch of their ends may wait is noted."""

    def __init__(self) -> None:
        self.waits_ms: list[int] = []

    async def ask(self, request: FetchRequest | ListOffsetsRequest, *_: object) -> FetchResponse | ListOffsetsResponse:
        if isinstance(request, ListOffsetsRequest):
            is_end = request.topics[0].partitions[0].timestamp == LATEST
            answer = ListOffsetsPartitionResponse(partition_index=0, offset=7 if is_end else 0)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])])
        assert request.topics[0].partitions[0].fetch_offset == 7
        self.waits_ms.append(request.max_wait_ms)
        told = PartitionData(partition_index=0, high_watermark=7, log_start_offset=0, records=None)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[told])])


def test_a_plan_does_not_wait_for_records_behind_the_ends_of_logs() -> None:
    nodes = Waiting()
    topic = Topic("127.0.0.1:1", "t", bytes(16), is_compacted=False, timeout_ms=1_000)
    told = PartitionDescription(0, 1, 3, [1, 2, 3], [1, 2], [])
    found = asyncio.run(look_at(cast(Cluster, nodes), Plan(topic, [], []), told))
    assert found.held == [Held(1, True, 0, 7), Held(2, True, 0, 7), Held(3, False, 0, 7)]
    assert nodes.waits_ms == [0, 0, 0]


RANGES = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda both: (min(both), max(both)))


@given(
    st.lists(RANGES, min_size=1, max_size=3), st.lists(st.integers(0, 60), unique=True, max_size=4), st.integers(1, 20)
)
def test_the_pieces_of_a_replica_are_all_of_it_once_and_cut_where_others_are(
    held: list[tuple[int, int]], edges: list[int], pieces: int
) -> None:
    found = plan(*held)
    remote = segments(*sorted(edges))
    cut(found, remote, size=pieces * 10, piece_bytes=10)
    mine = {node: [p for p in found.pieces if p.node == node] for node in (1, 2, 3)}
    ends = [offset for both in held for offset in both]
    for node, (start, end) in enumerate(held, 1):
        covered = [offset for piece in mine[node] for offset in range(piece.start, piece.end)]
        assert covered == list(range(start, end))
        for piece in remote:
            is_whole_everywhere = not any(piece.start < offset < piece.end for offset in ends)
            if start <= piece.start and piece.end <= end and is_whole_everywhere:
                assert any((one.start, one.end) == (piece.start, piece.end) for one in mine[node])
    if len(held) > 1 and held[0] == held[1]:
        assert [p[2:] for p in mine[1]] == [p[2:] for p in mine[2]]


def test_small_segments_share_a_task_and_so_do_the_replicas_of_them() -> None:
    sizes = {(0, 10): 30, (10, 20): 30, (20, 30): 50, (30, 40): 100}
    remote = [
        Piece(0, TIER, start, end, Segment("", "", msgspec.structs.replace(row(start, start, end - 1), bytes=size)))
        for (start, end), size in sizes.items()
    ]
    replica = [Piece(0, 1, start, end) for start, end in [*sizes, (40, 50), (50, 60)]]
    tasks = tasks_of([*remote, *replica], bytes_max=100)
    assert [piece for some in tasks for piece in some] == [*remote, *replica]
    assert [len(some) for some in tasks] == [2, 1, 1, 2, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("edges", "local_start", "missing"),
    [((0, 10, 20), 10, []), ((0, 10, 20), 20, []), ((0, 10), 20, [10]), ((5, 10), 5, [0]), ((), 3, [0]), ((), 0, [])],
)
def test_what_is_neither_in_the_tier_nor_on_the_disk_is_found(
    edges: tuple[int, ...], local_start: int, missing: list[int]
) -> None:
    found = plan((local_start, 30))
    check_reach(found, {"log_start": 0, "local_log_start": local_start}, segments(*edges))
    assert [(node, one.kind, one.offset) for node, one in found.findings] == [(TIER, "missing", at) for at in missing]


def test_people_see_a_table_the_findings_and_a_summary(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    report = Report("t", False, seconds=1.5, high_watermarks={0: 10})
    report.rows = [Row(0, 1, "leader", 0, 9, 3, 10, 1_000), Row(0, TIER, "tier", 0, 4, 2, 5, 400, 60)]
    report.findings = [Found(0, TIER, "tier", at, "it is harmed") for at in range(60)]
    report.unread = [Found(0, 2, "unread", -1, "the node is away")]
    pipeline._show(report)
    output.flush()
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines[0].split() == ["partition", "replica", "offsets", "batches", "records", "bytes", "findings"]
    assert "node 1, leader" in lines[1] and "tier  " in lines[2] and ", tier" not in lines[2]
    assert lines[3:4] == ["t-0, tier, offset 0: it is harmed"]
    assert lines[-3:] == [
        "and 10 more: --report FILE has all of them",
        "t-0, node 2, was not read: the node is away",
        "5 batches, 1,400 bytes in 1.5 s: 60 findings, 1 not read",
    ]
    told: dict[str, Any] = report.to_json()
    assert not told["ok"] and len(told["findings"]) == 60 and "offset" not in told["unread"][0]
    assert [one["replica"] for one in told["partitions"][0]["replicas"]] == [1, "tier"]
