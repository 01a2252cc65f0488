"""What replicas and the tier seem to lack is a finding only if it is so, too, when somebody looks again."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from headrace.client import Producer
from headrace.pipeline import verify, verify_again
from headrace.pipeline.replica_reading import TIER, Piece, Segment, Topic
from headrace.pipeline.verify import Report, VerifyOptions
from headrace.pipeline.verify_again import still_open, without_expired
from headrace.pipeline.verify_parts import Held, PartitionPlan, Plan, Unread, doubts
from headrace.pipeline.verify_report import Found
from headrace.spark.door import door
from headrace.system import SystemClock
from tests.servers.cluster import HeadraceCluster, running_cluster
from tests.tier.rows import row

TOPIC = Topic("127.0.0.1:1", "t", bytes(16), is_compacted=False, timeout_ms=1_000)
HOUR_MS = 3_600_000


def partition(*held: Held, log_start: int = 0) -> PartitionPlan:
    """Led by node 1, which has all of 100 offsets."""
    found = PartitionPlan(0, leader=1, leader_epoch=3, high_watermark=100, log_start=log_start)
    found.held = [Held(1, True, log_start, 100), *held]
    return found


def document(*segments: tuple[int, int], **changed: object) -> dict[str, Any]:
    told = [
        {
            "base_offset": first,
            "end_offset": end - 1,
            "state": "copy_finished",
            "verdict": "inside",
            "object": f"{first}",
        }
        for first, end in segments
    ]
    return {"partition": 0, "log_start": 0, "segments": told, **changed}


# At first sight.


@pytest.mark.parametrize(("start", "is_doubted"), [(0, False), (5, False), (10, False), (11, True), (100, True)])
@pytest.mark.parametrize("is_in_sync", [True, False])
def test_a_replica_that_begins_later_than_its_leaders_log_is_doubted(
    start: int, is_doubted: bool, is_in_sync: bool
) -> None:
    found = doubts(partition(Held(2, is_in_sync, start, 100), log_start=10), tiered=None)
    assert [(one.node, one.edge, one.finding.offset) for one in found] == ([(2, "beginning", 10)] if is_doubted else [])


@pytest.mark.parametrize(
    ("segments", "start", "missing_from"),
    [
        ([(0, 40), (40, 60)], 60, None),
        ([(0, 40), (20, 60)], 60, None),
        ([(0, 40), (40, 60)], 61, 60),
        ([(0, 40), (50, 60)], 60, 40),
        ([], 1, 0),
    ],
)
def test_below_its_beginning_a_tiered_replica_needs_the_tier_to_have_everything(
    segments: list[tuple[int, int]], start: int, missing_from: int | None
) -> None:
    found = doubts(partition(Held(2, True, start, 100)), {0: document(*segments)})
    assert [one.finding.offset for one in found] == ([] if missing_from is None else [missing_from])


def test_where_nobody_says_what_the_tier_has_no_beginning_is_doubted() -> None:
    thin = partition(Held(2, True, 60, 100))
    assert doubts(thin, {}) == [] == doubts(thin, {0: {"partition": 0, "failure": "its manifest is not read yet"}})


def test_who_is_in_sync_and_ends_too_early_is_doubted_and_who_is_behind_is_not() -> None:
    found = doubts(partition(Held(2, True, 0, 90), Held(3, False, 0, 80)), tiered=None)
    assert [(one.node, one.edge, one.finding.offset) for one in found] == [(2, "end", 90)]


# At the second look.


def fresh(*held: Held, unread: tuple[Unread, ...] = ()) -> Plan:
    found = partition(*held)
    found.doubts = doubts(found, tiered=None)
    return Plan(TOPIC, [found], list(unread))


def test_a_replica_that_has_left_the_isr_or_caught_up_is_doubted_no_more() -> None:
    doubted = {(0, 2, "end"): Found(0, 2, "missing", 90, "it ends too early")}
    assert still_open(doubted, fresh(Held(2, False, 0, 90))) == ({}, [])
    assert still_open(doubted, fresh(Held(2, True, 0, 100))) == ({}, [])
    assert still_open(doubted, fresh(Held(2, True, 0, 95))) == (doubted, [])
    assert still_open(doubted, fresh(Held(2, True, 50, 100))) == ({}, [])


def test_a_replica_that_does_not_answer_again_is_neither_well_nor_harmed() -> None:
    doubted = {(0, 2, "end"): Found(0, 2, "missing", 90, "it ends too early")}
    left, unread = still_open(doubted, fresh(unread=(Unread(0, 2, "the node is away"),)))
    assert left == {} and [(one.node, one.kind) for one in unread] == [(2, "unread")]
    assert "the node is away" in unread[0].text


def harmed_tier() -> tuple[Plan, Found]:
    found = partition()
    found.pieces = [Piece(0, TIER, 0, 10, Segment("", "prefix/0", row(0, 0, 9)))]
    return Plan(TOPIC, [found], []), Found(0, TIER, "tier", 0, "The object is missing (prefix/0)")


def test_an_object_that_expired_meanwhile_is_no_loss() -> None:
    plan, lost = harmed_tier()
    told = document()
    assert without_expired(plan, [lost], {0: told}) == []
    told["segments"] = [{"object": "prefix/0"}]
    assert without_expired(plan, [lost], {0: told}) == [lost]


def test_an_object_is_lost_also_where_its_leader_does_not_answer_in_the_end() -> None:
    plan, lost = harmed_tier()
    assert without_expired(plan, [lost], {}) == [lost]
    assert without_expired(plan, [lost], {0: {"partition": 0, "failure": "its manifest is not read yet"}}) == [lost]
    assert without_expired(plan, [lost], {1: document()}) == [lost]


# With real nodes; what Spark would do is done here.


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceCluster]:
    with running_cluster(tmp_path_factory.mktemp("three") / "nodes") as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_spread", lambda _spark, items, work, _progress: [work(one) for one in items])
    monkeypatch.setattr(verify_again, "PAUSE_S", 0.1)


class NoSpark:
    """Stands where nothing is asked of Spark."""

    def newSession(self) -> "NoSpark":
        return self


def verified(cluster: HeadraceCluster, topic: str) -> Report:
    return verify.run(VerifyOptions(topic, cluster.bootstrap), spark=cast(SparkSession, NoSpark()))


def fill(cluster: HeadraceCluster, topic: str, at_ms: int) -> None:
    async def send() -> None:
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            for _ in range(200):
                await producer.send(topic, bytes(500), partition=0, timestamp_ms=at_ms)

    door().run(send())
    cluster.until_equal(topic, 1)


def lose_the_beginning(cluster: HeadraceCluster, topic: str) -> tuple[int, int]:
    """On a follower, while it is stopped: its number, and where its log begins now."""
    seen = cluster.seen(topic)[0]
    node = next(node for node in seen.replicas if node != seen.leader)
    cluster.nodes[node].stop()
    first, second, *_ = sorted((cluster.nodes[node].partitions / f"{topic}-0").glob("*.log"))
    for path in first.parent.glob(f"{first.stem}.*"):
        path.unlink()
    cluster.start(node)
    cluster.until_whole(topic)
    return node, int(second.stem)


def create(cluster: HeadraceCluster, topic: str, **settings: str) -> None:
    given = {"segment.bytes": "20000", **{name.replace("_", "."): value for name, value in settings.items()}}
    cluster.create_topic(topic, 1, configs=given)
    cluster.until_whole(topic)


def test_a_replica_that_lost_the_beginning_of_its_log_is_found_and_its_node_says_so(cluster: HeadraceCluster) -> None:
    create(cluster, "lost")
    fill(cluster, "lost", SystemClock().wall_ms())
    assert verified(cluster, "lost").ok
    node, start = lose_the_beginning(cluster, "lost")
    report = verified(cluster, "lost")
    assert [(one.node, one.kind, one.offset) for one in report.findings] == [(node, "missing", 0)], report.to_json()
    assert f"offsets 0 to {start - 1} are not on node {node}" in report.findings[0].text
    assert [row.findings for row in report.rows if row.node == node] == [1]
    told = (
        f"lost-0 has lost its beginning: offsets 0 to {start - 1} were not deleted, and are not on this disk any more"
    )
    assert told in cluster.nodes[node].log_text()


@pytest.mark.parametrize(
    ("settings", "age_ms"), [({"retention_ms": str(HOUR_MS)}, 2 * HOUR_MS), ({"retention_bytes": "40000"}, 0)]
)
def test_a_replica_that_deleted_what_may_go_before_its_leader_did_is_well(
    cluster: HeadraceCluster, settings: dict[str, str], age_ms: int
) -> None:
    """Nodes look every five minutes, each at its own time."""
    topic = next(iter(settings))
    create(cluster, topic, **settings)
    fill(cluster, topic, SystemClock().wall_ms() - age_ms)
    node, start = lose_the_beginning(cluster, topic)
    report = verified(cluster, topic)
    assert report.ok, report.to_json()
    assert {row.node: row.first for row in report.rows}[node] == start > 0
