"""What real processes tell of the ends of partitions while leaders die and are paused."""

import time

from headrace.errors import ErrorCode
from tests.servers.caller import Told
from tests.servers.cluster import HeadraceCluster, Seen

TOPIC = "t"
PARTITIONS = 6
MANY = 1_000
OLD_VERSION, NEW_VERSION = 4, 5
LONGER_THAN_A_LEASE_S = 4.0


def one_whose_last_replica_is_not_the_controller(cluster: HeadraceCluster) -> tuple[int, Seen]:
    controller = cluster.controller_id()
    seen = cluster.seen(TOPIC)
    return next((at, one) for at, one in seen.items() if one.replicas[-1] != controller)


def told_by(cluster: HeadraceCluster, node_id: int, partition: int, version: int = NEW_VERSION) -> Told:
    with cluster.call(node_id) as caller:
        return caller.latest(TOPIC, PARTITIONS, version)[partition]


def test_a_new_leader_tells_no_end_before_it_knows_what_the_old_one_may_have_told(
    patient_cluster: HeadraceCluster,
) -> None:
    """T207-1. A follower that is paused holds the high watermark back, below records that the next leader has."""
    cluster = patient_cluster
    cluster.create_topic(TOPIC, PARTITIONS)
    cluster.until_whole(TOPIC)
    partition, seen = one_whose_last_replica_is_not_the_controller(cluster)
    leader, successor, slow = seen.replicas
    assert seen.leader == leader
    with cluster.call(leader) as caller:
        assert caller.produce(TOPIC, b"committed", partition).error == 0
        before = caller.latest(TOPIC, PARTITIONS)[partition]
        cluster.pause(slow)
        for _ in range(3):
            assert caller.produce(TOPIC, b"not yet committed", partition, acks=1).error == 0
    until_copied(cluster, successor, partition, 4)
    cluster.nodes[leader].kill()
    cluster.withdraw(leader)
    cluster.until(lambda: cluster.leader_of(TOPIC, partition, successor) == successor, "the successor leads")
    assert told_by(cluster, successor, partition, NEW_VERSION).error == ErrorCode.OFFSET_NOT_AVAILABLE
    assert told_by(cluster, successor, partition, OLD_VERSION).error == ErrorCode.LEADER_NOT_AVAILABLE
    cluster.resume(slow)
    cluster.until(lambda: told_by(cluster, successor, partition).error == 0, "the end is told again")
    after = told_by(cluster, successor, partition)
    assert (before.error, before.offset, after.offset) == (0, 1, 4)


def until_copied(cluster: HeadraceCluster, node_id: int, partition: int, end_offset: int) -> None:
    def copied() -> bool:
        found = [one for one in cluster.replicas(TOPIC, PARTITIONS) if one.node_id == node_id]
        return found[partition].end_offset == end_offset

    cluster.until(copied, f"node {node_id} has {end_offset} records")


def test_questions_that_waited_for_a_paused_leader_are_not_answered_by_it(cluster: HeadraceCluster) -> None:
    """T207-9, with a session of 3 s instead of a pause of 30 s."""
    cluster.create_topic(TOPIC, 1)
    cluster.until_whole(TOPIC)
    leader = cluster.leader_of(TOPIC)
    with cluster.call(leader, answer_s_max=60) as caller:
        assert caller.latest(TOPIC, 1)[0] == Told(ErrorCode.NONE, 0)
        cluster.pause(leader)
        caller.many_latest(TOPIC, MANY)
        successor = cluster.until_led_by_another(leader, TOPIC)
        with cluster.call(successor) as other:
            assert other.produce(TOPIC, b"of the next leader", acks=1).error == 0
        cluster.resume(leader)
        assert caller.latest_answers(MANY) == {ErrorCode.NOT_LEADER_OR_FOLLOWER: MANY}


def test_a_paused_leader_answers_nothing_even_if_nobody_took_its_place(cluster: HeadraceCluster) -> None:
    """T207-9: its lease is over, and so it cannot know."""
    cluster.create_topic(TOPIC, 1, copies=1)
    leader = cluster.leader_of(TOPIC)
    with cluster.call(leader, answer_s_max=60) as caller:
        cluster.pause(leader)
        caller.many_latest(TOPIC, MANY)
        time.sleep(LONGER_THAN_A_LEASE_S)
        cluster.resume(leader)
        assert caller.latest_answers(MANY) == {ErrorCode.NOT_LEADER_OR_FOLLOWER: MANY}
    cluster.until(lambda: told_single(cluster, leader) == Told(ErrorCode.NONE, 0), "the end is told again")


def told_single(cluster: HeadraceCluster, node_id: int) -> Told:
    with cluster.call(node_id) as caller:
        return caller.latest(TOPIC, 1)[0]
