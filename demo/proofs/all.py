"""Every promise that the demo puts to the test."""

from demo.evidence import Evidence
from demo.proofs import brokers, offsets, orders, owner, play, spark
from demo.proofs.promise import Promise


def prove(seen: Evidence) -> list[Promise]:
    return [
        play.played_to_the_end(seen),
        orders.acknowledged(seen),
        orders.once_and_in_order(seen),
        spark.lake_equals_topic(seen),
        spark.sums_are_right(seen),
        offsets.never_back(seen),
        brokers.idle_fetches(seen),
        brokers.one_replica_fails_alone(seen),
        brokers.begins_behind_the_tier(seen),
        brokers.thin_ones_come_last(seen),
        brokers.tier_is_whole(seen),
        owner.old_owner_is_fenced(seen),
        orders.nothing_is_amiss(seen),
        orders.replicas_are_equal(seen),
        brokers.no_bugs(seen),
    ]
