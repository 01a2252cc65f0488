"""A topic whose older segments are in a tier: how it is made, filled, and looked at."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaError, Message, Producer

from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.servers.cluster import HeadraceCluster, running_cluster
from tests.servers.s3 import S3Server
from tests.servers.s3_proxy import S3Proxy

TOPIC = "t"
SEGMENT_BYTES = 128 << 10
VALUE_BYTES = 4_000
LATEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -4, -5
METRIC = "kafka_server_brokertopicmetrics_"
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "500",
    "follower.fetch.last.tiered.offset.enable": "true",
    "leader.imbalance.check.interval.seconds": "1",
    "leader.election.local.log.report.interval.ms": "200",
}
TOPIC_SETTINGS = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": str(4 * SEGMENT_BYTES),
    "min.insync.replicas": "1",
}


class SetsEnvironment(Protocol):
    """pytest.MonkeyPatch."""

    def setenv(self, name: str, value: str) -> None: ...


@contextmanager
def s3_store(directory: Path, environment: SetsEnvironment) -> Iterator[tuple[S3Server, S3Proxy, str]]:
    """A real S3 server, what stands before it, and the URL that nodes are told."""
    directory.mkdir(parents=True)
    server = S3Server(directory)
    try:
        for name, value in server.environment.items():
            environment.setenv(name, value)
        port = int(server.endpoint.rpartition(":")[2])
        with S3Proxy(port) as proxy:
            yield server, proxy, server.url("tier").replace(f"%3A{port}", f"%3A{proxy.port}")
    finally:
        server.kill()


@contextmanager
def tiered_cluster(
    directory: Path, url: str, size: int = 3, settings: dict[str, str] | None = None
) -> Iterator[HeadraceCluster]:
    given = {**SETTINGS, "remote.storage.url": url, **(settings or {})}
    with running_cluster(directory, settings=given, size=size) as cluster:
        yield cluster


def create(cluster: HeadraceCluster, **settings: str) -> tuple[int, ...]:
    """The replicas of the one partition, in their order; the first of them leads. Dots are underscores here."""
    configs = {**TOPIC_SETTINGS, **{key.replace("_", "."): value for key, value in settings.items()}}
    cluster.create_topic(TOPIC, 1, copies=len(cluster.nodes), configs=configs)
    cluster.until_whole(TOPIC)
    replicas = cluster.seen(TOPIC)[0].replicas
    cluster.until(lambda: cluster.leader_of(TOPIC) == replicas[0], "the first replica leads")
    return replicas


def value_of(number: int) -> bytes:
    """The record at that offset."""
    return (b"%d " % number).ljust(VALUE_BYTES, b"%d" % (number % 10))


def produce(cluster: HeadraceCluster, first: int, count: int) -> None:
    """All of them are acknowledged by all replicas in sync."""
    settings = {"acks": "all", "enable.idempotence": True, "batch.size": SEGMENT_BYTES // 8}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 2, **settings})
    failures = []

    def answered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for number in range(first, first + count):
        producer.produce(TOPIC, value_of(number), partition=0, on_delivery=answered)
        producer.poll(0)
    assert producer.flush(60) == 0 and failures == []


def records_of(segments: int) -> int:
    """So many fill that many segments, and begin the next one."""
    return segments * SEGMENT_BYTES // VALUE_BYTES + 1


# What it looks like.


def offset_at(cluster: HeadraceCluster, node_id: int, timestamp: int) -> int:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])
    with cluster.call(node_id) as caller:
        return caller.ask(request, 11, ListOffsetsResponse).topics[0].partitions[0].offset


def segments_on_disk(cluster: HeadraceCluster, node_id: int) -> list[Path]:
    return sorted((cluster.nodes[node_id].partitions / f"{TOPIC}-0").glob("*.log"))


def metric(cluster: HeadraceCluster, node_id: int, name: str) -> int:
    """Of all topics."""
    page = cluster.page(node_id, "/metrics").text
    found = next(line for line in page.splitlines() if line.startswith(f"{METRIC}{name} "))
    return int(float(found.split()[1]))


def until_tiered(cluster: HeadraceCluster, leader: int) -> int:
    """All but the active segment; returns the first offset that is not in the tier. Some of it is there alone."""

    def pending() -> int:
        return int(segments_on_disk(cluster, leader)[-1].stem)

    cluster.until(lambda: offset_at(cluster, leader, LATEST_TIERED) == pending() - 1, "all that is rolled is tiered")
    cluster.until(lambda: offset_at(cluster, leader, EARLIEST_LOCAL) > 0, "local retention has dropped something")
    return pending()
