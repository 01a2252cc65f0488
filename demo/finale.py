"""The end of the play: the shop closes, Spark reads what is left, and everything is read back."""

from demo import idle, lake, reading, replica_failure
from demo.inspecting import verified_tier
from demo.plan import ORDERS
from demo.stage import Stage


def close(stage: Stage) -> None:
    assert stage.queries is not None
    stage.close_shop()
    stage.owners.end()
    stage.happened(f"The shop is closed: {len(stage.seen.acked)} orders were acknowledged")
    stage.queries.finish()
    stage.seen.batches = stage.queries.batches
    stage.happened("Spark has read all of them")


def read_back(stage: Stage) -> None:
    seen, cluster = stage.seen, stage.cluster
    seen.stored = reading.stored_orders(cluster.bootstrap)
    seen.sums = reading.stored_sums(cluster.bootstrap)
    seen.lake = lake.numbers_in(stage.directory)
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
