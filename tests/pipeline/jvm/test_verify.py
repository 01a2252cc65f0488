"""`verify` under a real Spark, against three real nodes with a tier: what is well is clean, what is harmed is found."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from headrace.errors import KafkaError
from headrace.pipeline.verify import Report, VerifyOptions, run
from headrace.wire.batch import CRC_AT, crc_of, headers
from tests.cli.programs import headrace_process
from tests.cluster import tiered
from tests.servers.cluster import HeadraceCluster

PLAIN, COMPACTED = "plain", "compacted"


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, objects: Path) -> Iterator[HeadraceCluster]:
    """With a topic that is tiered, one that is not, and one that is compacted."""
    with tiered.tiered_cluster(tmp_path_factory.mktemp("three") / "nodes", str(objects)) as cluster:
        leader, *_ = tiered.create(cluster)
        tiered.produce(cluster, 0, tiered.records_of(8))
        for name, settings in ((PLAIN, {}), (COMPACTED, {"cleanup.policy": "compact"})):
            cluster.create_topic(name, 2, configs=settings)
            cluster.until_whole(name)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0})
        for number in range(400):
            for name in (PLAIN, COMPACTED):
                producer.produce(name, b"%06d" % number, key=b"%d" % (number % 7), partition=number % 2)
            if not number % 20:
                assert producer.flush(60) == 0
        assert producer.flush(60) == 0
        for name in (PLAIN, COMPACTED):
            cluster.until_equal(name, 2)
        tiered.until_tiered(cluster, leader)
        yield cluster


def verified(spark: SparkSession, cluster: HeadraceCluster, topic: str) -> Report:
    return run(VerifyOptions(topic, cluster.bootstrap, piece_bytes=1 << 16), spark=spark)


def found(report: Report) -> set[tuple[int, str]]:
    return {(one.node, one.kind) for one in report.findings}


def follower(cluster: HeadraceCluster, topic: str) -> int:
    seen = cluster.seen(topic)[0]
    return next(node for node in seen.replicas if node != seen.leader)


def log_of(cluster: HeadraceCluster, node: int, topic: str) -> Path:
    return sorted((cluster.nodes[node].partitions / f"{topic}-0").glob("*.log"))[0]


@contextmanager
def harmed(path: Path, content: bytes) -> Iterator[None]:
    """In place, as a disk would do it, and undone."""
    before = path.read_bytes()
    assert len(content) == len(before) and content != before
    with path.open("r+b") as file:
        file.write(content)
    try:
        yield
    finally:
        with path.open("r+b") as file:
            file.write(before)


@pytest.mark.parametrize(("topic", "partitions"), [(PLAIN, 2), (COMPACTED, 2), (tiered.TOPIC, 1)])
def test_a_topic_that_is_well_is_clean(
    spark: SparkSession, cluster: HeadraceCluster, topic: str, partitions: int
) -> None:
    report = verified(spark, cluster, topic)
    assert report.ok, report.to_json()
    local = [row for row in report.rows if row.role != "tier"]
    assert len(local) == 3 * partitions and all(row.batches for row in local)
    assert {row.role for row in local} == {"leader", "in sync"}
    if topic == PLAIN:
        assert all((row.first, row.last, row.records) == (0, 199, 200) for row in local), report.to_json()
    if topic == tiered.TOPIC:
        (remote,) = [row for row in report.rows if row.role == "tier"]
        assert remote.first == 0 and remote.last >= min(row.first for row in local) and remote.records > 0


def test_a_flipped_byte_is_found_in_the_replica_that_has_it(spark: SparkSession, cluster: HeadraceCluster) -> None:
    node = follower(cluster, PLAIN)
    path = log_of(cluster, node, PLAIN)
    content = bytearray(path.read_bytes())
    position, header = list(headers(content))[3]
    content[position + header.size - 1] ^= 0x10
    with harmed(path, bytes(content)):
        report = verified(spark, cluster, PLAIN)
    assert found(report) == {(node, "checksum")}, report.to_json()
    assert report.findings[0].offset == header.base_offset
    assert verified(spark, cluster, PLAIN).ok


def test_a_batch_that_differs_is_found_though_it_is_well_in_itself(
    spark: SparkSession, cluster: HeadraceCluster, tmp_path: Path
) -> None:
    """By the command, as people run it."""
    node = follower(cluster, PLAIN)
    path = log_of(cluster, node, PLAIN)
    content = bytearray(path.read_bytes())
    position, header = list(headers(content))[5]
    content[position + header.size - 2] ^= 0x01
    content[position + CRC_AT : position + CRC_AT + 4] = crc_of(content, position, header.size).to_bytes(4, "big")
    with harmed(path, bytes(content)):
        report = verified(spark, cluster, PLAIN)
        written = tmp_path / "report.json"
        told = ("--bootstrap", cluster.bootstrap, "--json", "--report", str(written), "--master", "local[2]")
        done = headrace_process("pipeline", "verify", PLAIN, *told, within_s=280.0)
    assert found(report) == {(node, "difference")}, report.to_json()
    assert report.findings[0].offset == header.base_offset
    assert done.returncode == 1 and done.stderr.decode().endswith("headrace: not all of plain is as it should be\n")
    document = json.loads(done.stdout)
    assert document == json.loads(written.read_text()) and not document["ok"]
    (finding,) = document["findings"]
    assert (finding["kind"], finding["replica"], finding["offset"]) == ("difference", node, header.base_offset)


def test_an_object_that_is_missing_in_the_tier_is_found(
    spark: SparkSession, cluster: HeadraceCluster, objects: Path
) -> None:
    first = min(objects.rglob("*.segment"), key=lambda path: path.name)
    kept = first.read_bytes()
    first.unlink()
    try:
        report = verified(spark, cluster, tiered.TOPIC)
    finally:
        first.write_bytes(kept)
    assert found(report) == {(-1, "tier")}, report.to_json()
    assert "missing" in report.findings[0].text and first.name in report.findings[0].text
    assert report.findings[0].offset == 0
    assert verified(spark, cluster, tiered.TOPIC).ok


def test_a_replica_that_is_away_is_told_and_so_is_a_topic_that_is_not_there(
    spark: SparkSession, cluster: HeadraceCluster
) -> None:
    with pytest.raises(KafkaError, match="nowhere"):
        verified(spark, cluster, "nowhere")
    node = follower(cluster, PLAIN)
    cluster.nodes[node].kill()
    cluster.withdraw(node)
    try:
        report = verified(spark, cluster, PLAIN)
    finally:
        cluster.start(node)
        cluster.until_whole(PLAIN)
    assert not report.ok and not report.findings
    assert {one.node for one in report.unread} == {node}, report.to_json()
