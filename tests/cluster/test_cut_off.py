"""A leader that is cut off from the store, the controller and its followers, but not from a client that knows no other.

It lives in a network namespace of its own, whose link to the others is taken down; and once more behind sockets that
are blocked, which needs no rights."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import NewTopic

from headrace.errors import ErrorCode
from tests.interop.clients.confluent import Confluent
from tests.servers.blocked import BlockedSockets
from tests.servers.caller import Caller
from tests.servers.cluster import HeadraceCluster, headrace_node
from tests.servers.etcd import EtcdCluster
from tests.servers.namespace import Namespace, NoNamespaces

TOPIC = "t"
LEADER = 1
SETTINGS = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "1000"}


class CutOff(NamedTuple):
    """Nodes 2 and 3 and an etcd on one side, node 1 on the other, which is started last and decides nothing."""

    cluster: HeadraceCluster
    client: tuple[str, int]
    """Where node 1 is for a client that is on its side."""
    cut: Callable[[], None]
    heal: Callable[[], None]


def by_namespace(namespace: Namespace, etcd: EtcdCluster, directory: Path) -> CutOff:
    here, metadata = namespace.outside("cluster"), f"etcd://{etcd.addresses[0]}"
    cluster = HeadraceCluster(directory, metadata, SETTINGS)
    for node_id in (2, 3):
        cluster.nodes[node_id] = headrace_node(directory / f"n{node_id}", node_id, metadata, SETTINGS, here)
    leader = headrace_node(directory / "n1", LEADER, metadata, SETTINGS, "0.0.0.0")
    leader.host = namespace.inside("cluster")
    leader.command = namespace.command([*leader.command, "--advertise", leader.bootstrap])
    cluster.nodes[LEADER] = leader
    return CutOff(cluster, (namespace.inside("client"), leader.port), namespace.cut, namespace.heal)


def by_blocking(sockets: BlockedSockets, etcd: EtcdCluster, directory: Path) -> CutOff:
    """All that others want of node 1, and all that node 1 wants of others, goes through ways that can be cut."""
    cluster = HeadraceCluster(directory, f"etcd://{etcd.addresses[0]}", SETTINGS)
    store_port = sockets.way(int(etcd.addresses[0].rpartition(":")[2]))
    leader = headrace_node(directory / "n1", LEADER, f"etcd://127.0.0.1:{store_port}", SETTINGS)
    cluster.nodes[LEADER] = leader
    client = leader.host, leader.port
    leader.port = sockets.way(leader.port)
    leader.command += ["--advertise", leader.bootstrap]
    for node_id in (2, 3):
        node = cluster.nodes[node_id]
        node.command += ["--advertise", f"{node.host}:{sockets.way(node.port, lambda: leader.pid)}"]
    return CutOff(cluster, client, sockets.cut, sockets.heal)


@pytest.fixture(params=["network namespace", "blocked sockets"])
def cut_off(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CutOff]:
    by: Namespace | BlockedSockets
    try:
        by = Namespace() if request.param == "network namespace" else BlockedSockets()
    except NoNamespaces as error:
        pytest.skip(str(error))
    with by:
        host = by.outside("cluster") if isinstance(by, Namespace) else "127.0.0.1"
        etcd = EtcdCluster(tmp_path / "etcd", host=host)
        directory = tmp_path / "cluster"
        made = by_namespace(by, etcd, directory) if isinstance(by, Namespace) else by_blocking(by, etcd, directory)
        cluster = made.cluster
        try:
            for node_id in (2, 3):
                cluster.nodes[node_id].start()
            cluster.start(LEADER)
            yield made
        finally:
            cluster.kill()
            etcd.close()
    for node in cluster.nodes.values():
        assert "Traceback" not in node.log_text(), node.log_text()
    shutil.rmtree(cluster.directory)


def numbered(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix} {number}".encode() for number in range(count)]


def test_a_leader_that_is_cut_off_acknowledges_nothing_and_gives_up_what_only_it_has(
    cut_off: CutOff,
) -> None:
    cluster = cut_off.cluster
    led_by_it = [NewTopic(TOPIC, 1, replica_assignment=[[LEADER, 2, 3]])]
    cluster.admin().create_topics(led_by_it)[TOPIC].result(60)
    cluster.until_whole(TOPIC)
    assert cluster.leader_of(TOPIC) == LEADER
    with Caller(*cut_off.client, answer_s_max=30) as old_client:
        for value in numbered("before", 10):
            assert old_client.produce(TOPIC, value).error == 0
        assert old_client.latest(TOPIC, 1)[0] == (ErrorCode.NONE, 10)

        cut_off.cut()
        # It does not know yet: what asks for one copy is acknowledged, as anywhere, what asks for all copies is not.
        assert old_client.produce(TOPIC, b"never committed", acks=-1).error == ErrorCode.REQUEST_TIMED_OUT
        assert old_client.produce(TOPIC, b"of one copy only", acks=1).error == 0
        assert old_client.latest(TOPIC, 1)[0] in ((ErrorCode.NONE, 10), (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1))

        cluster.until(lambda: cluster.leader_of(TOPIC, by=2) in (2, 3), "another node leads")
        successor = cluster.leader_of(TOPIC, by=2)
        with cluster.call(successor) as new_client:
            cluster.until(lambda: new_client.produce(TOPIC, b"after 0").error == 0, "the new leader acknowledges")
            for value in numbered("after", 10)[1:]:
                assert new_client.produce(TOPIC, value).error == 0
            end = new_client.latest(TOPIC, 1)[0]
            assert end.error == 0 and end.offset >= 20
        assert old_client.latest(TOPIC, 1)[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert old_client.produce(TOPIC, b"never committed", acks=-1).error != 0

        cut_off.heal()
        cluster.until_whole(TOPIC)
        cluster.until_equal(TOPIC, 1)
        told = old_client.latest(TOPIC, 1)[0]
        assert told.error == ErrorCode.NOT_LEADER_OR_FOLLOWER or told.offset >= end.offset
    read = [record.value for record in Confluent(cluster.bootstrap).consume(TOPIC, 1, end.offset)]
    assert read[:10] == numbered("before", 10)
    assert [value for value in read[10:] if value != b"after 0"] == numbered("after", 10)[1:]
    log = b"".join(path.read_bytes() for path in (cluster.nodes[LEADER].partitions / f"{TOPIC}-0").glob("*.log"))
    assert b"never committed" not in log and b"of one copy only" not in log
