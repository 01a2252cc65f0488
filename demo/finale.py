"""The end of the play: the shop closes, Spark reads what is left, and everything is read back."""

from demo import idle, lake, reading, replica_failure
from demo.evidence import Verified
from demo.inspecting import Document, verified_tier
from demo.plan import ORDERS
from demo.stage import Stage

TIER = "tier"


def close(stage: Stage) -> None:
    assert stage.queries is not None
    stage.close_shop()
    stage.owners.end()
    stage.happened(f"The shop is closed: {len(stage.seen.acked)} orders were acknowledged")
    stage.cluster.until_whole(ORDERS)
    stage.queries.finish()
    stage.seen.batches, stage.seen.verified = stage.queries.batches, verified(stage.queries.verified)
    stage.happened("Spark has read all of them")


def verified(told: Document) -> Verified:
    if not told:
        return Verified()
    replicas = [one for partition in told["partitions"] for one in partition["replicas"]]
    problems = [f"orders-{one['partition']}, {one['replica']}: {one['text']}" for one in told["findings"]]
    problems += [f"orders-{one['partition']}, {one['replica']} was not read: {one['text']}" for one in told["unread"]]
    logs = [one for one in replicas if one["replica"] != TIER]
    return Verified(len(logs), len(replicas) - len(logs), told["batches"], told["records"], told["bytes"], problems)


def read_back(stage: Stage) -> None:
    seen, cluster = stage.seen, stage.cluster
    seen.stored = reading.stored_orders(cluster.bootstrap)
    seen.sums = reading.stored_sums(cluster.bootstrap)
    seen.lake = lake.rows_in(stage.directory)
    stage.owners.read_back()
    replica_failure.read_back(stage)
    seen.idle = idle.measure_all(cluster)
    checked = verified_tier(cluster)
    seen.tier_segments, seen.tier_bytes = checked.segments, checked.bytes
    seen.tier_problems = [f"{one['object']}: {one['problem']}" for one in checked.problems]
    seen.tier_problems += [f"{one['topic']}-{one['partition']}: {one['reason']}" for one in checked.left_out]
    cluster.until_whole(ORDERS)
    cluster.stop()
    replica_failure.check_replicas(stage)
    seen.replicas = reading.replicas_on_disk(cluster)
    seen.bugs = reading.bugs_of(cluster)
    stage.happened("Table, topics, tier, disks and records of the brokers are read back")
