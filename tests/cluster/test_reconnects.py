"""Connections between nodes, and to clients, that break again and again."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.sim.checkers import check
from headrace.sim.history import Acked, GivenUp, History
from tests.cluster.load import RdLoad, read_everything
from tests.servers.cluster import SHORT_LEASE, HeadraceCluster, headrace_node
from tests.servers.proxy import Proxy

TOPIC = "t"
PARTITIONS = 3
BREAKS = 20
BREAK_EVERY_S = 0.5
SETTINGS = {**SHORT_LEASE, "replica.lag.time.max.ms": "4000"}
"""A follower that does not count as caught up is out of the ISR within 6 s, while connections break for 10 s."""


@pytest.fixture
def proxies() -> Iterator[list[Proxy]]:
    made: list[Proxy] = []
    yield made
    for proxy in made:
        proxy.close()


@pytest.fixture
def cluster(tmp_path: Path, proxies: list[Proxy]) -> Iterator[HeadraceCluster]:
    """Whoever wants to talk to a node goes through its proxy."""
    directory = tmp_path / "cluster"
    cluster = HeadraceCluster(directory, f"sqlite:{directory / 'metadata.db'}", SETTINGS)
    for node_id in cluster.nodes:
        node = headrace_node(directory / f"n{node_id}", node_id, cluster.metadata, SETTINGS)
        proxies.append(Proxy(node.port))
        node.command += ["--advertise", f"127.0.0.1:{proxies[-1].port}"]
        cluster.nodes[node_id] = node
    with ExitStack() as at_the_end:
        at_the_end.callback(cluster.kill)
        cluster.start()
        yield cluster


def shrinks(cluster: HeadraceCluster) -> float:
    """How often a leader took a member out of an ISR."""
    lines = [line for node_id in cluster.nodes for line in cluster.page(node_id, "/metrics").text.splitlines()]
    found = [line for line in lines if line.startswith("kafka_server_replicamanager_isrshrinks_total ")]
    assert len(found) == len(cluster.nodes)
    return sum(float(line.split()[-1]) for line in found)


def test_a_follower_whose_connections_break_all_the_time_never_leaves_the_isr(
    cluster: HeadraceCluster, proxies: list[Proxy]
) -> None:
    """T227-21, for seconds instead of minutes, with a shorter time to lag."""
    cluster.create_topic(TOPIC, PARTITIONS)
    cluster.until_whole(TOPIC)
    before = shrinks(cluster)
    history = History(time.monotonic)
    load = RdLoad(cluster.bootstrap, TOPIC, PARTITIONS, history)
    try:
        for _ in range(BREAKS):
            time.sleep(BREAK_EVERY_S)
            for proxy in proxies:
                proxy.break_connections()
    finally:
        load.finish()
    assert shrinks(cluster) == before
    assert all(proxy.broken >= BREAKS for proxy in proxies), [proxy.broken for proxy in proxies]
    read_everything(cluster.bootstrap, TOPIC, PARTITIONS, history)
    cluster.until_equal(TOPIC, PARTITIONS)
    history.events += cluster.replicas(TOPIC, PARTITIONS)
    assert not [event for event in history.events if isinstance(event, GivenUp)]
    assert not (violations := check(history.events)), "\n".join(map(str, violations[:10]))
    acked = sum(isinstance(event, Acked) for event in history.events)
    print(f"{acked} records acknowledged while {sum(proxy.broken for proxy in proxies)} connections broke")
