"""Nodes that die and come back, with their data or without all of it; and two processes that claim one number."""

import shutil
import subprocess
import time
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer

from tests.cluster.mischief import chosen_seed
from tests.interop.clients.confluent import Confluent
from tests.servers.cluster import HeadraceCluster, headrace_node

TOPIC = "t"


def produce(cluster: HeadraceCluster, values: list[bytes]) -> None:
    """To partition 0 with acks=all; returns when all are acknowledged."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 2})
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(60) == 0


def consume(cluster: HeadraceCluster, count: int) -> list[bytes]:
    return [record.value for record in Confluent(cluster.bootstrap).consume(TOPIC, 1, count)]


def numbered(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix} {number}".encode() for number in range(count)]


def leader_epoch(cluster: HeadraceCluster, node_id: int) -> int:
    with cluster.call(node_id) as caller:
        return caller.leader_epoch(TOPIC)


def shrinks(cluster: HeadraceCluster, node_id: int) -> float:
    """How often that leader took a member out of an ISR."""
    lines = cluster.page(node_id, "/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("kafka_server_replicamanager_isrshrinks_total")]
    assert found, "\n".join(lines)
    return sum(float(line.split()[-1]) for line in found)


@pytest.mark.parametrize("copies", [1, 3])
def test_a_leader_that_is_killed_and_started_at_once_serves_long_before_its_session_ends(
    patient_cluster: HeadraceCluster, copies: int
) -> None:
    """T6-6."""
    cluster = patient_cluster
    cluster.create_topic(TOPIC, 1, copies)
    produce(cluster, numbered("before", 10))
    leader = cluster.leader_of(TOPIC)
    before = leader_epoch(cluster, leader)
    cluster.nodes[leader].kill()
    began = time.monotonic()
    cluster.nodes[leader].start()
    produce(cluster, numbered("after", 10))
    took_s = time.monotonic() - began
    print(f"killed, started and written to again in {took_s:.2f} s")
    assert leader_epoch(cluster, leader) > before
    assert consume(cluster, 20) == numbered("before", 10) + numbered("after", 10)


def test_a_second_process_with_the_number_of_a_node_ends_and_the_first_never_notices(
    cluster: HeadraceCluster, tmp_path: Path
) -> None:
    """T6-7."""
    cluster.create_topic(TOPIC, 1)
    produce(cluster, numbered("before", 10))
    leader = cluster.leader_of(TOPIC)
    epoch, log = leader_epoch(cluster, leader), cluster.nodes[leader].log_text()
    own = cluster.directory / f"n{leader}"
    shutil.copytree(own, tmp_path / "copied", ignore=shutil.ignore_patterns(".lock"))
    intruders = {}
    for name, data in (("its own", own), ("an empty", tmp_path / "empty"), ("a copied", tmp_path / "copied")):
        intruder = headrace_node(data, leader, cluster.metadata, {"broker.session.timeout.ms": "3000"})
        intruder.log_path = tmp_path / f"{name}.log"
        intruder.launch()
        intruders[name] = intruder
    for name, intruder in intruders.items():
        assert intruder.wait() == 1, f"{name} directory: {intruder.log_tail()}"
        assert "Traceback" not in intruder.log_text(), intruder.log_text()
        print(f"{name} directory: {intruder.log_tail()}")
    produce(cluster, numbered("after", 10))
    assert leader_epoch(cluster, leader) == epoch
    assert cluster.nodes[leader].log_text() == log
    assert cluster.page(leader, "/readyz").status == 200


def pair(cluster: HeadraceCluster) -> tuple[int, int, int]:
    """A topic on two nodes: its leader, its follower, and the third node, which decides about elections."""
    for attempt in range(20):
        if attempt:
            cluster.admin().delete_topics([TOPIC])[TOPIC].result(60)
        cluster.create_topic(TOPIC, 1, 2)
        seen = cluster.seen(TOPIC)[0]
        controller = cluster.controller_id()
        if controller not in seen.replicas:
            leader, follower = seen.leader, next(one for one in seen.replicas if one != seen.leader)
            return leader, follower, controller
    raise AssertionError("the controller holds a replica of every topic")


def test_a_killed_follower_that_is_back_inside_its_session_stays_in_the_isr_and_can_lead(
    patient_cluster: HeadraceCluster,
) -> None:
    """T6-22, also with kills in the middle of its start.

    Whoever dies between giving its old registration back and having the new one has none while it is away: its leader
    goes on without it then, as it does when a death is certain. But nobody takes it for one that lost records."""
    cluster = patient_cluster
    random = Random(chosen_seed())
    leader, follower, controller = pair(cluster)
    produce(cluster, numbered("before", 100))
    for _ in range(4):
        cluster.nodes[follower].kill()
        cluster.nodes[follower].launch()
        time.sleep(random.uniform(0.05, 0.8))
    cluster.nodes[follower].kill()
    cluster.nodes[follower].start()
    produce(cluster, numbered("between", 100))
    cluster.until(lambda: sorted(cluster.seen(TOPIC)[0].isr) == sorted((leader, follower)), "the ISR is whole")
    assert "dropped election" not in cluster.nodes[controller].log_text()
    print(f"its leader went on without it {shrinks(cluster, leader):.0f} times")
    cluster.nodes[leader].kill()
    cluster.withdraw(leader)
    cluster.until(lambda: cluster.leader_of(TOPIC, by=follower) == follower, "the follower leads")
    produce(cluster, numbered("after", 100))
    assert consume(cluster, 300) == [*numbered("before", 100), *numbered("between", 100), *numbered("after", 100)]


def test_a_follower_whose_machine_was_started_anew_has_to_earn_its_place_in_the_isr(
    patient_cluster: HeadraceCluster,
) -> None:
    """T6-22 with another boot of the machine: what was in memory only is lost, and the ISR knows."""
    cluster = patient_cluster
    leader, follower, controller = pair(cluster)
    produce(cluster, numbered("before", 100))
    cluster.nodes[follower].kill()
    meta = cluster.directory / f"n{follower}" / "meta.properties"
    lines = meta.read_text().splitlines()
    assert any(line.startswith("headrace.boot.id=") for line in lines), lines
    meta.write_text(
        "".join("headrace.boot.id=0\n" if line.startswith("headrace.boot.id=") else f"{line}\n" for line in lines)
    )
    cluster.nodes[leader].kill()
    cluster.withdraw(leader)
    cluster.nodes[follower].start()
    # Nobody leads: the one that is there may lack records, the one that has them is away.
    cluster.until(lambda: cluster.seen(TOPIC, controller)[0].isr == (leader,), "the follower is dropped")
    assert cluster.leader_of(TOPIC, by=controller) == -1
    cluster.nodes[leader].start()
    produce(cluster, numbered("after", 100))
    cluster.until(lambda: sorted(cluster.seen(TOPIC)[0].isr) == sorted((leader, follower)), "the ISR is whole")
    assert consume(cluster, 200) == numbered("before", 100) + numbered("after", 100)


def test_a_directory_that_was_put_back_from_a_copy_is_not_trusted(cluster: HeadraceCluster) -> None:
    """T6-24."""
    leader, follower, controller = pair(cluster)
    produce(cluster, numbered("before", 10))
    assert cluster.nodes[follower].stop() == 0
    data, copy = cluster.directory / f"n{follower}", cluster.directory / "copy"
    subprocess.run(["cp", "-a", data, copy], check=True)
    cluster.nodes[follower].start()
    cluster.until(lambda: sorted(cluster.seen(TOPIC)[0].isr) == sorted((leader, follower)), "the ISR is whole")
    produce(cluster, numbered("after", 10))
    cluster.nodes[follower].kill()
    shutil.rmtree(data)
    copy.rename(data)
    cluster.nodes[leader].kill()
    cluster.withdraw(leader)
    # The registration of the process that died is not this directory's: it has to end by itself.
    cluster.nodes[follower].start()
    cluster.until(lambda: cluster.seen(TOPIC, controller)[0].isr == (leader,), "the follower is dropped")
    assert cluster.leader_of(TOPIC, by=controller) == -1
    cluster.nodes[leader].start()
    cluster.until(lambda: sorted(cluster.seen(TOPIC)[0].isr) == sorted((leader, follower)), "the ISR is whole")
    assert consume(cluster, 20) == numbered("before", 10) + numbered("after", 10)


def test_a_death_that_is_certain_is_acted_on_long_before_the_session_ends(patient_cluster: HeadraceCluster) -> None:
    """T6-17, for a leader, and for one that is the controller besides."""
    cluster = patient_cluster
    cluster.create_topic(TOPIC, 1)
    cluster.until_whole(TOPIC)
    for victim in (cluster.leader_of(TOPIC), cluster.controller_id()):
        produce(cluster, numbered("before", 10))
        cluster.nodes[victim].kill()
        began = time.monotonic()
        cluster.withdraw(victim)
        produce(cluster, numbered("after", 10))
        print(f"withdrawn, elected and written to in {time.monotonic() - began:.2f} s")
        cluster.nodes[victim].start()
        cluster.until_whole(TOPIC)


def test_the_notice_of_a_death_that_comes_after_the_restart_changes_nothing(patient_cluster: HeadraceCluster) -> None:
    """T6-17."""
    cluster = patient_cluster
    cluster.create_topic(TOPIC, 1)
    leader = cluster.leader_of(TOPIC)
    cluster.nodes[leader].kill()
    cluster.nodes[leader].start()
    produce(cluster, numbered("before", 10))
    cluster.until_whole(TOPIC)
    epoch = leader_epoch(cluster, leader)
    with pytest.raises(subprocess.CalledProcessError):
        cluster.withdraw(leader)
    produce(cluster, numbered("after", 10))
    assert leader_epoch(cluster, leader) == epoch
    assert cluster.page(leader, "/readyz").status == 200
