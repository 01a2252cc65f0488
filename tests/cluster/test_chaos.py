"""Three processes are killed, paused and stopped under the load of three client libraries: every promise holds."""

from pathlib import Path
from random import Random

import pytest

from tests.cluster.chaos import play
from tests.cluster.mischief import Mischief, chosen_seed
from tests.servers.cluster import HeadraceCluster, running_cluster
from tests.servers.etcd import EtcdCluster

SECONDS = 60.0
ETCD_SESSION = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "1000"}
"""No shorter: etcd's own elections take a second or two, in which no lease is kept alive."""


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
            play(cluster, MischiefWithEtcd(cluster, etcd, Random(seed)), SECONDS, tmp_path)
            logs = "".join(node.log_text() for node in cluster.nodes.values())
            assert "too_many_pings" not in logs, "etcd closed connections on which nodes pinged too often"
    finally:
        etcd.close()
