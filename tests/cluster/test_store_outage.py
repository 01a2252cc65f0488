"""The metadata store is away for longer than any lease: what needs no change of metadata is served all the same."""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from headrace.sim.checkers import check
from headrace.sim.history import Acked, GivenUp, History
from tests.cluster.load import AioLoad, RdLoad, read_everything
from tests.servers.cluster import HeadraceCluster, Page, running_cluster
from tests.servers.etcd import EtcdCluster

TOPIC = "t"
PARTITIONS = 3
AWAY_S = 20.0
ON_ETCD = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "1000"}


def acknowledged(history: History) -> int:
    return sum(isinstance(event, Acked) for event in list(history.events))


def until_more(cluster: HeadraceCluster, history: History, count: int) -> None:
    goal = acknowledged(history) + count
    cluster.until(lambda: acknowledged(history) >= goal, "records are acknowledged")


def ready(cluster: HeadraceCluster) -> list[Page]:
    return [cluster.page(node_id, "/readyz") for node_id in cluster.nodes]


def go_through_an_outage(
    cluster: HeadraceCluster, begin: Callable[[], object], end: Callable[[], object], away_s: float
) -> None:
    cluster.create_topic(TOPIC, PARTITIONS, configs={"min.insync.replicas": "2"})
    cluster.until_whole(TOPIC)
    history = History(time.monotonic)
    loads = [load(cluster.bootstrap, TOPIC, PARTITIONS, history) for load in (RdLoad, AioLoad)]
    try:
        until_more(cluster, history, 500)
        before = cluster.seen(TOPIC)
        begin()
        began = time.monotonic()
        cluster.until(
            lambda: all(page.status == 503 for page in ready(cluster)), "every node says that it is not ready"
        )
        assert all("metadata store" in page.text for page in ready(cluster)), ready(cluster)
        until_more(cluster, history, 600)
        assert all(cluster.page(node_id, "/healthz").status == 200 for node_id in cluster.nodes)
        time.sleep(max(0.0, began + away_s - time.monotonic()))
        assert cluster.seen(TOPIC) == before
        end()
        cluster.until(lambda: all(page.status == 200 for page in ready(cluster)), "every node is ready again")
        until_more(cluster, history, 500)
    finally:
        end()
        for load in loads:
            load.finish()
    cluster.create_topic("made-afterwards", 1)
    cluster.until_whole(TOPIC)
    cluster.until_equal(TOPIC, PARTITIONS)
    read_everything(cluster.bootstrap, TOPIC, PARTITIONS, history)
    history.events += cluster.replicas(TOPIC, PARTITIONS)
    assert not (given_up := [event for event in history.events if isinstance(event, GivenUp)]), given_up[:3]
    assert not (violations := check(history.events)), "\n".join(map(str, violations[:10]))


def test_an_etcd_that_hangs_stops_no_producer(tmp_path: Path) -> None:
    """T6-9."""
    etcd = EtcdCluster(tmp_path / "etcd", 1)
    try:
        with running_cluster(tmp_path / "cluster", f"etcd://{etcd.addresses[0]}", ON_ETCD) as cluster:
            go_through_an_outage(cluster, etcd.members[0].pause, etcd.members[0].resume, AWAY_S)
    finally:
        etcd.close()


def test_a_metadata_file_that_somebody_locks_stops_no_producer(tmp_path: Path) -> None:
    """T6-9 on SQLite, for longer than the sessions of 3 s."""
    with running_cluster(tmp_path / "cluster") as cluster:
        path = cluster.metadata.removeprefix("sqlite:")
        intruder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        go_through_an_outage(cluster, lambda: intruder.execute("BEGIN IMMEDIATE"), intruder.rollback, AWAY_S / 2)
        intruder.close()
