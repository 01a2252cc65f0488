"""Nodes are stopped, and topics deleted, under the load of clients that must not notice, or must find their way."""

import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Producer

from headrace.sim.checkers import check
from headrace.sim.history import Acked, GivenUp, History
from tests.cluster.load import AioLoad, RdLoad, read_everything
from tests.interop.clients.confluent import Confluent
from tests.servers.cluster import HeadraceCluster, running_cluster

TOPIC = "t"
PARTITIONS = 3
ACKS_BETWEEN = 200


def acknowledged(history: History) -> Counter[str]:
    return Counter(event.client for event in list(history.events) if isinstance(event, Acked))


def until_served(cluster: HeadraceCluster, history: History, clients: list[str]) -> None:
    before = acknowledged(history)

    def served() -> bool:
        now = acknowledged(history)
        return all(now[client] >= before[client] + ACKS_BETWEEN for client in clients)

    cluster.until(served, "every producer goes on")


def test_no_producer_sees_an_error_when_one_node_after_the_other_is_stopped(cluster: HeadraceCluster) -> None:
    """Tsm-1."""
    cluster.create_topic(TOPIC, PARTITIONS, configs={"min.insync.replicas": "2"})
    cluster.until_whole(TOPIC)
    history = History(time.monotonic)
    loads = [load(cluster.bootstrap, TOPIC, PARTITIONS, history) for load in (RdLoad, AioLoad)]
    clients = [load.name for load in loads]
    try:
        until_served(cluster, history, clients)
        for node in cluster.nodes.values():
            assert node.stop() == 0
            until_served(cluster, history, clients)
            node.start()
            cluster.until_whole(TOPIC)
    finally:
        for load in loads:
            load.finish()
    read_everything(cluster.bootstrap, TOPIC, PARTITIONS, history)
    cluster.until_equal(TOPIC, PARTITIONS)
    history.events += cluster.replicas(TOPIC, PARTITIONS)
    assert not (given_up := [event for event in history.events if isinstance(event, GivenUp)]), given_up[:3]
    assert not (violations := check(history.events)), "\n".join(map(str, violations[:10]))
    print(f"{dict(acknowledged(history))} records acknowledged while {len(cluster.nodes)} nodes were stopped in turn")


def test_a_topic_that_is_deleted_and_made_again_under_traffic_is_another_one(tmp_path: Path) -> None:
    """Tsm-4."""
    with running_cluster(tmp_path / "cluster", settings={"auto.create.topics.enable": "false"}) as cluster:
        delete_and_make_again(cluster)


def delete_and_make_again(cluster: HeadraceCluster) -> None:
    cluster.create_topic(TOPIC, PARTITIONS)
    quiet: dict[str, object] = {"bootstrap.servers": cluster.bootstrap, "log_level": 2}
    history = History(time.monotonic)
    load = RdLoad(cluster.bootstrap, TOPIC, PARTITIONS, history, is_broken_off=True)
    aio = AioLoad(cluster.bootstrap, TOPIC, PARTITIONS, history, is_broken_off=True)
    try:
        for _ in range(2):
            until_served(cluster, history, [load.name, aio.name])
            cluster.admin().delete_topics([TOPIC])[TOPIC].result(60)
            cluster.create_topic(TOPIC, PARTITIONS)
    finally:
        load.finish()
        aio.finish()
    cluster.until_whole(TOPIC)
    cluster.until_equal(TOPIC, PARTITIONS)
    before = ends(cluster)
    producer = Producer({**quiet, "enable.idempotence": True})
    for number in range(30):
        producer.produce(TOPIC, b"new %d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    read = Confluent(cluster.bootstrap).consume(TOPIC, PARTITIONS, sum(before) + 30)
    assert sum(record.value.startswith(b"new ") for record in read) == 30
    cluster.until_equal(TOPIC, PARTITIONS)
    for node in cluster.nodes.values():
        live = [path for path in Path(node.partitions).glob(f"{TOPIC}-?") if path.is_dir()]
        assert len(live) == PARTITIONS


def ends(cluster: HeadraceCluster) -> list[int]:
    return [replica.end_offset for replica in cluster.replicas(TOPIC, PARTITIONS) if replica.node_id == 1]
