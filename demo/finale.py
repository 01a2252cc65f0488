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
    ends = {one["partition"]: one["high_watermark"] for one in told["partitions"]}
    tiers = len(replicas) - len(logs)
    return Verified(len(logs), tiers, told["batches"], told["records"], told["bytes"], problems, ends)


def read_back(stage: Stage) -> None:
    """Each for itself: what cannot be read is told, and keeps nobody from judging the rest."""
    seen, cluster = stage.seen, stage.cluster

    def topics() -> None:
        seen.stored = reading.stored_orders(cluster.bootstrap)
        seen.sums, seen.sums_given_up = reading.stored_sums(cluster.bootstrap, stage.s_of)

    def table() -> None:
        seen.lake = lake.rows_in(stage.directory)
        seen.lake_written_s = list(map(stage.s_of, lake.written_ms(stage.directory)))

    def sessions() -> None:
        seen.idle = idle.measure_all(cluster)

    def disks() -> None:
        seen.bugs += reading.bad_ends(cluster)
        replica_failure.check_replicas(stage)
        seen.replicas = reading.replicas_on_disk(cluster)
        seen.bugs += reading.bugs_of(cluster)
        seen.starts = reading.starts_of(cluster)

    stage.attempt("The topics are read back", topics)
    stage.attempt("The table is read back", table)
    stage.attempt("The ledger is read back", stage.owners.read_back)
    stage.attempt("The parcels are read back", lambda: replica_failure.read_back(stage))
    stage.attempt("Idle fetches are measured", sessions)
    stage.attempt("The tier is verified", lambda: _check_tier(stage))
    stage.attempt("All replicas are in sync", lambda: cluster.until_whole(ORDERS))
    stage.attempt("The disks are read", disks)
    if not seen.failures:
        stage.happened("Table, topics, tier, disks and records of the brokers are read back")


def _check_tier(stage: Stage) -> None:
    seen, checked = stage.seen, verified_tier(stage.cluster)
    seen.tier_segments, seen.tier_bytes = checked.segments, checked.bytes
    seen.tier_problems = [f"{one['object']}: {one['problem']}" for one in checked.problems]
    seen.tier_problems += [f"{one['topic']}-{one['partition']}: {one['reason']}" for one in checked.left_out]
