"""Three processes are killed, paused and stopped under the load of three client libraries: every promise holds."""

import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from headrace.sim.checkers import check
from headrace.sim.history import Acked, GivenUp, History, Read
from tests.cluster.asker import Asker
from tests.cluster.load import AioLoad, JavaLoad, RdLoad, read_everything
from tests.cluster.mischief import Mischief, chosen_seed
from tests.servers.cluster import HeadraceCluster, running_cluster
from tests.servers.etcd import EtcdCluster

TOPIC = "chaos"
PARTITIONS = 3
SECONDS = 60.0
ETCD_SECONDS = 30.0
ETCD_SESSION = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "1000"}
"""No shorter: etcd's own elections take a second or two, in which no lease is kept alive."""


def play(cluster: HeadraceCluster, mischief: Mischief, seconds: float, scratch: Path) -> None:
    """Load, mischief, and the verdict."""
    cluster.create_topic(TOPIC, PARTITIONS, configs={"min.insync.replicas": "2", "segment.bytes": "65536"})
    cluster.until_whole(TOPIC)
    history = History(time.monotonic)
    bootstrap = cluster.bootstrap
    askers = [Asker(node, TOPIC, PARTITIONS, history) for node in cluster.nodes.values()]
    loads: list[JavaLoad | RdLoad | AioLoad] = [
        JavaLoad(bootstrap, TOPIC, PARTITIONS, history, scratch),
        RdLoad(bootstrap, TOPIC, PARTITIONS, history),
        AioLoad(bootstrap, TOPIC, PARTITIONS, history),
    ]
    try:
        mischief.run(seconds)
    finally:
        mischief.heal()
        for node in cluster.nodes.values():
            node.wait_ready()
        for load in loads:
            load.finish()
        for asker in askers:
            asker.finish()
    cluster.until_whole(TOPIC)
    cluster.until_equal(TOPIC, PARTITIONS)
    read_everything(bootstrap, TOPIC, PARTITIONS, history)
    history.events += cluster.replicas(TOPIC, PARTITIONS)
    acked = Counter(event.client for event in history.events if isinstance(event, Acked))
    read = Counter(event.client for event in history.events if isinstance(event, Read))
    given_up = [event for event in history.events if isinstance(event, GivenUp)]
    told, refused = sum(asker.answers for asker in askers), sum(asker.refusals for asker in askers)
    print(f"{dict(mischief.done)}; acknowledged {dict(acked)}, read {dict(read)}, given up {len(given_up)}; ", end="")
    print(f"asked for ends: {told} answers, {refused} refusals")
    violations = check(history.events)
    assert not violations, "\n".join(map(str, violations[:10]))
    assert not given_up, given_up[:3]
    assert set(acked) == set(read) == {load.name for load in loads}
    assert told > 0


class MischiefWithEtcd(Mischief):
    """A member of the etcd cluster besides, which stays away for a while."""

    def __init__(self, cluster: HeadraceCluster, etcd: EtcdCluster, random: Random) -> None:
        super().__init__(cluster, random)
        self.etcd = etcd

    def run(self, seconds: float) -> None:
        super().run(seconds / 3)
        victim = self.random.choice((self.etcd.leader(), self.etcd.members[0]))
        victim.kill()
        self.done["etcd killed"] += 1
        super().run(seconds / 3)
        self.etcd.restart(victim)
        super().run(seconds / 3)


@pytest.mark.timeout(600)
def test_kills_pauses_and_restarts_break_no_promise(tmp_path: Path) -> None:
    seed = chosen_seed()
    with running_cluster(tmp_path / "cluster") as cluster:
        play(cluster, Mischief(cluster, Random(seed)), SECONDS, tmp_path)


@pytest.mark.timeout(600)
def test_nor_do_they_on_etcd_one_of_whose_members_is_killed_too(tmp_path: Path) -> None:
    seed = chosen_seed()
    etcd = EtcdCluster(tmp_path / "etcd", 3)
    try:
        metadata = f"etcd://{','.join(etcd.addresses)}"
        with running_cluster(tmp_path / "cluster", metadata, ETCD_SESSION) as cluster:
            play(cluster, MischiefWithEtcd(cluster, etcd, Random(seed)), ETCD_SECONDS, tmp_path)
            logs = "".join(node.log_text() for node in cluster.nodes.values())
            assert "too_many_pings" not in logs, "etcd closed connections on which nodes pinged too often"
    finally:
        etcd.close()
