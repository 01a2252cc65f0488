"""A node that lost its disk: it copies what is not in the tier, is in sync again, and does not lead before its time.

Real processes, and a tier in a directory. T9-7, T1303-1, T1303-2, T1303-5.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.servers.cluster import HeadraceCluster, running_cluster

TOPIC = "t"
SEGMENT_BYTES = 128 << 10
REMOTE_SEGMENTS = 20
VALUE_BYTES = 4_000
EARLIEST_LOCAL, LATEST_TIERED = -4, -5
THRESHOLD = "leader.election.eligible.local.log.ms"
FOR_EVER_MS = str(1 << 50)


@pytest.fixture
def tiered(tmp_path: Path) -> Iterator[HeadraceCluster]:
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.storage.url": str(tmp_path / "tier"),
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "500",
        "follower.fetch.last.tiered.offset.enable": "true",
        "leader.imbalance.check.interval.seconds": "1",
        "leader.election.local.log.report.interval.ms": "200",
    }
    with running_cluster(tmp_path / "cluster", settings=settings) as cluster:
        yield cluster


def create(cluster: HeadraceCluster) -> tuple[int, int, int]:
    """The replicas of the one partition, in their order; the first of them leads."""
    settings = {
        "remote.storage.enable": "true",
        "segment.bytes": str(SEGMENT_BYTES),
        "local.retention.bytes": str(4 * SEGMENT_BYTES),
        THRESHOLD: FOR_EVER_MS,
        "min.insync.replicas": "1",
    }
    cluster.create_topic(TOPIC, 1, configs=settings)
    cluster.until_whole(TOPIC)
    first, second, third = cluster.seen(TOPIC)[0].replicas
    cluster.until(lambda: cluster.leader_of(TOPIC) == first, "the first replica leads")
    return first, second, third


def produce(cluster: HeadraceCluster, first: int, count: int) -> None:
    settings = {"acks": "all", "enable.idempotence": True, "batch.size": SEGMENT_BYTES // 8}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    failures = []
    for number in range(first, first + count):
        producer.produce(
            TOPIC,
            value_of(number),
            partition=0,
            on_delivery=lambda error, _: failures.append(error) if error is not None else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0 and failures == []


def value_of(number: int) -> bytes:
    return (b"%d " % number).ljust(VALUE_BYTES, b"%d" % (number % 10))


def consume_all(cluster: HeadraceCluster, count: int) -> None:
    """From offset 0 on, across the seam."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    try:
        for number in range(count):
            message = consumer.poll(60)
            assert message is not None, f"nothing more came after {number} records"
            assert message.error() is None, message.error()
            assert (message.offset(), message.value()) == (number, value_of(number))
    finally:
        consumer.close()


def offset_at(cluster: HeadraceCluster, node_id: int, timestamp: int) -> int:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])
    with cluster.call(node_id) as caller:
        return caller.ask(request, 11, ListOffsetsResponse).topics[0].partitions[0].offset


def segments_on_disk(cluster: HeadraceCluster, node_id: int) -> list[Path]:
    return sorted((cluster.nodes[node_id].partitions / f"{TOPIC}-0").glob("*.log"))


def until_tiered(cluster: HeadraceCluster, leader: int) -> int:
    """All but the active segment; returns the first offset that is not in the tier. Some of it is there alone."""

    def pending() -> int:
        return int(segments_on_disk(cluster, leader)[-1].stem)

    cluster.until(lambda: offset_at(cluster, leader, LATEST_TIERED) == pending() - 1, "all that is rolled is tiered")
    cluster.until(lambda: offset_at(cluster, leader, EARLIEST_LOCAL) > 0, "local retention has dropped something")
    return pending()


def wipe(cluster: HeadraceCluster, node_id: int) -> None:
    """The machine is another one: nothing of its disk is left."""
    cluster.nodes[node_id].kill()
    cluster.withdraw(node_id)
    shutil.rmtree(cluster.directory / f"n{node_id}")


def replicated_bytes(cluster: HeadraceCluster, node_id: int) -> int:
    name = "kafka_server_brokertopicmetrics_replicationbytesin_total "
    page = cluster.page(node_id, "/metrics").text
    return int(float(next(line for line in page.splitlines() if line.startswith(name)).split()[1]))


def remote_segments(tmp_path: Path) -> int:
    return len(list((tmp_path / "tier").rglob("*.segment")))


def remote_bytes(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "tier").rglob("*.segment"))


def test_t9_7_it_is_in_sync_again_with_the_tail_alone_and_leads_no_sooner_than_it_should(
    tiered: HeadraceCluster, tmp_path: Path
) -> None:
    cluster = tiered
    wiped, second, third = create(cluster)
    produce(cluster, 0, 24 * SEGMENT_BYTES // VALUE_BYTES)
    until_tiered(cluster, wiped)
    assert remote_segments(tmp_path) >= REMOTE_SEGMENTS
    wipe(cluster, wiped)
    cluster.until_led_by_another(wiped, TOPIC)
    leader = cluster.leader_of(TOPIC, by=second)
    pending = until_tiered(cluster, leader)
    count = offset_at(cluster, leader, -1)
    cluster.nodes[wiped].start()
    cluster.until_whole(TOPIC)
    copied = replicated_bytes(cluster, wiped)
    on_leader = segments_on_disk(cluster, leader)
    tail = b"".join(path.read_bytes() for path in on_leader if int(path.stem) >= pending)
    print(
        f"{copied} bytes replicated: {len(tail)} are not in the tier, {sum(path.stat().st_size for path in on_leader)} "
        f"are on the leader's disk, and {remote_bytes(tmp_path)} in {remote_segments(tmp_path)} remote segments"
    )
    assert copied == len(tail)
    assert b"".join(path.read_bytes() for path in segments_on_disk(cluster, wiped)) == tail
    consume_all(cluster, count)

    # It is thin: it is passed over, and does not get its leadership back.
    other = second if leader == third else third
    cluster.nodes[leader].kill()
    cluster.withdraw(leader)
    cluster.until(lambda: cluster.leader_of(TOPIC, by=other) == other, "the other one leads, and not the thin one")
    consume_all(cluster, count)
    cluster.nodes[leader].start()
    cluster.until_whole(TOPIC)
    assert cluster.leader_of(TOPIC, by=other) in (leader, other)

    # Once the threshold is met the rebalancer brings its leadership back.
    entry = ConfigEntry(THRESHOLD, "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    cluster.admin().incremental_alter_configs([resource])[resource].result(30)
    cluster.until(lambda: cluster.leader_of(TOPIC) == wiped, "it leads again")
    produce(cluster, count, 10)
    consume_all(cluster, count + 10)


def test_t1303_5_a_thin_replica_that_is_alone_leads_at_once(tiered: HeadraceCluster) -> None:
    cluster = tiered
    wiped, second, third = create(cluster)
    produce(cluster, 0, 10 * SEGMENT_BYTES // VALUE_BYTES)
    until_tiered(cluster, wiped)
    wipe(cluster, wiped)
    cluster.until_led_by_another(wiped, TOPIC)
    leader = cluster.leader_of(TOPIC, by=second)
    until_tiered(cluster, leader)
    count = offset_at(cluster, leader, -1)
    cluster.nodes[wiped].start()
    cluster.until_whole(TOPIC)
    for node_id in (second, third):
        cluster.nodes[node_id].kill()
        cluster.withdraw(node_id)
    cluster.until(lambda: cluster.leader_of(TOPIC, by=wiped) == wiped, "the only one that is left leads")
    consume_all(cluster, count)
    for node_id in (second, third):
        cluster.nodes[node_id].start()
    cluster.until_whole(TOPIC)
    produce(cluster, count, 10)
    consume_all(cluster, count + 10)
