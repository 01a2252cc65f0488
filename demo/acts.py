"""What happens to the brokers, one act after the other; each notes what it saw."""

import shutil
import time
from collections.abc import Callable
from typing import NamedTuple

from demo.evidence import Thin, Wiped
from demo.inspecting import tier_status, why, why_patiently
from demo.plan import ORDERS, PARTITIONS
from demo.replica_failure import fail_a_replica, until_back
from demo.stage import Stage
from demo.uncommitted import until_under_way
from headrace.errors import KafkaError

REMOTE_SEGMENTS_MIN = 12
LOOK_S = 0.2
CALM_S = 3.0
"""So that it can be seen that the shop goes on."""


class Act(NamedTuple):
    title: str
    play: Callable[[Stage], None]


def sell(stage: Stage) -> None:
    """Until both queries have written something, and the tier has much of it."""
    assert stage.queries is not None
    stage.owners.begin()
    stage.queries.until_running(since_s=0.0)
    stage.cluster.until(lambda: stage.remote_segments() >= REMOTE_SEGMENTS_MIN, "the tier has some segments")
    stage.happened(f"Both Spark queries run; {stage.remote_segments()} segments are in the tier")


def kill_the_leader(stage: Stage) -> None:
    """Nobody tells the others: its lease runs out. The owner of the ledger is paused, and another takes over."""
    cluster = stage.cluster
    leader = cluster.leader_of(ORDERS, 0)
    stage.owners.pause_the_owner()
    hold_orders(stage, leader)
    cluster.nodes[leader].kill()
    stage.seen.killed_leader, stage.seen.killed_s = leader, stage.now_s()
    stage.happened(f"kill -9 node {leader}, which leads {ORDERS}-0; the owner of the ledger is paused")
    successor = cluster.until_led_by_another(leader, ORDERS)
    stage.happened(f"Node {successor} leads {ORDERS}-0")
    stage.owners.take_over()
    stage.happened("Ben owns the ledger")
    until_back(stage)
    cluster.nodes[leader].start()
    stage.owners.resume_the_old_one()
    stage.happened("The old owner is back, and is refused")
    cluster.until_whole(ORDERS)
    stage.happened(f"Node {leader} is back in sync")


def hold_orders(stage: Stage, leader: int) -> None:
    """Until some are under way to it: between two batches of the shop there may be none, and none would have to be sent
    again when it dies."""
    assert stage.shop is not None
    shop, cluster = stage.shop, stage.cluster
    cluster.pause(leader)
    since = shop.sent  # of those before, some may be acknowledged, and the shop has not heard of it yet
    cluster.until(lambda: shop.under_way(0, since) or shop.failure, f"orders are under way to node {leader}")


def kill_the_driver(stage: Stage) -> None:
    """With -9, when sums are written and not committed: the next one, which is not waited for, has to do it again."""
    assert stage.queries is not None
    seen = stage.seen
    stage.queries.until_running(since_s=stage.now_s())
    seen.sums_under_way = until_under_way(stage.cluster)
    stage.queries.kill()
    seen.driver_killed_s, seen.driver_killed_in = stage.now_s(), stage.queries.unfinished_batch()
    stage.happened(f"kill -9 the Spark driver, with {seen.sums_under_way} sums not committed; another one starts")
    stage.queries.restart()
    time.sleep(CALM_S)


def wipe_a_node(stage: Stage) -> None:
    """Killed, and its disk is empty when it comes back. It leads again when its own disk covers enough."""
    cluster = stage.cluster
    replicas = {at: one.replicas for at, one in cluster.seen(ORDERS).items()}
    partition = next(at for at, nodes in replicas.items() if nodes[0] != stage.seen.killed_leader)
    node_id = replicas[partition][0]
    cluster.until(lambda: cluster.leader_of(ORDERS, partition) == node_id, "the first replica leads")
    note = stage.seen.wiped = Wiped(node_id, partition=partition)
    cluster.nodes[node_id].kill()
    note.killed_s = stage.now_s()
    stage.happened(f"Node {node_id} is killed, and its disk is wiped")
    cluster.withdraw(node_id)
    shutil.rmtree(cluster.directory / f"n{node_id}")
    successor = cluster.until_led_by_another(node_id, ORDERS, partition)
    with cluster.call(successor) as caller:
        note.other_epoch = caller.leader_epoch(ORDERS, partition)
    _note_tier(stage, note)
    began_s = stage.now_s()
    cluster.nodes[node_id].start()
    cluster.until_whole(ORDERS)
    note.in_sync_s = stage.now_s() - began_s
    _note_copied(stage, note)
    stage.happened(f"Node {node_id} is in sync, with {note.copied_records} of {note.log_records} records on its disk")
    cluster.until(lambda: _led_again(stage, note, partition), "the wiped node leads again")
    note.led_at_s = stage.now_s()
    stage.happened(f"Node {node_id} leads {ORDERS}-{partition} again")
    time.sleep(CALM_S)


def _note_tier(stage: Stage, note: Wiped) -> None:
    """What nobody has to copy. The tier of a partition is known a moment after somebody leads it."""

    def is_known() -> bool:
        told = tier_status(stage.cluster)
        note.tier_ends = {one["partition"]: one["highest_remote"] + 1 for one in told if "highest_remote" in one}
        return len(note.tier_ends) == PARTITIONS

    stage.cluster.until(is_known, f"the leaders of {ORDERS} tell what is in the tier")


def _note_copied(stage: Stage, note: Wiped) -> None:
    note.copied_bytes = stage.metric(note.node_id, "replicationbytesin_total")
    for told in tier_status(stage.cluster):
        replicas = why_patiently(stage.cluster, told["partition"])["replicas"]
        local = next(one for one in replicas if one["id"] == note.node_id)
        begin = note.disk_starts[told["partition"]] = int(local.get("local_log_start", 0))
        note.log_records += told["log_end"] - told["log_start"]
        note.copied_records += told["log_end"] - begin
        note.tier_bytes += told["remote_bytes"]


def _led_again(stage: Stage, note: Wiped, partition: int) -> bool:
    time.sleep(LOOK_S)
    try:
        told = why(stage.cluster, partition)
    except (KafkaError, LookupError):  # nobody decides at this moment
        return False
    mine = next(one for one in told["replicas"] if one["id"] == note.node_id)
    others = any(one["can_lead"] for one in told["replicas"] if one["id"] != note.node_id)
    look = Thin(stage.now_s(), partition, told["leader"], mine["thin"], mine["can_lead"], others, told["because"])
    note.looks.append(look)
    return bool(told["leader"] == note.node_id)


def go_on(stage: Stage) -> None:
    """The driver that came after the killed one first does that one's last micro-batches again, and then new ones."""
    assert stage.queries is not None
    stage.queries.until_running(since_s=stage.seen.driver_killed_s)
    stage.queries.until_running(since_s=stage.now_s())
    stage.happened("The new Spark driver has written to the table and to the topic of sums")


ACTS = [
    Act("Orders are sold, copied to the tier, and read by Spark", sell),
    Act("One replica loses its files (KIP-461)", fail_a_replica),
    Act("The leader is killed with -9, an owner is paused (KIP-207, own)", kill_the_leader),
    Act("The Spark driver is killed with -9 (exactly once)", kill_the_driver),
    Act("A broker is wiped and comes back (KIP-1023, KIP-1303)", wipe_a_node),
    Act("Spark goes on", go_on),
]
