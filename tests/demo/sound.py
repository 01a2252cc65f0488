"""What a demo sees in which everything went well, small enough to be harmed by hand."""

from demo.evidence import (
    Acked,
    Evidence,
    FailedReplica,
    Happening,
    IdleFetch,
    Led,
    QueryBatch,
    Replica,
    Stored,
    Summed,
    Takeover,
    Thin,
    ToldEnd,
    Verified,
    Wiped,
    Written,
)
from demo.orders import CLOSING_STEP, FIRST_DAY_S, sums
from demo.plan import NODE_IDS, PARTITIONS, WINDOW_S
from demo.proofs.spark import row_of

ORDERS = 4_000
KILLED_S = 5.0
DRIVER_KILLED_S = 7.0
WIPED_S = 8.5
CLOSED_S = 10.0


def sound() -> Evidence:
    numbers = [*range(ORDERS), ORDERS + CLOSING_STEP]
    acked = [
        Acked(number / 400 + 0.05, number, at % PARTITIONS, at // PARTITIONS, number / 400)
        for at, number in enumerate(numbers)
    ]
    seen = Evidence(acked=acked, closing=numbers[-1], killed_leader=1, killed_s=KILLED_S, closed_s=CLOSED_S)
    seen.driver_killed_s, seen.driver_killed_in, seen.sums_under_way, seen.sums_given_up = DRIVER_KILLED_S, 2, 4, 4
    seen.played = ["Orders are sold", "The leader is killed"]
    seen.stored = [Stored(one.partition, one.offset, one.number) for one in acked]
    seen.lake = [row_of(one) for one in acked]
    seen.lake_written_s = [1.5, 4.5, 6.5, 9.5, 11.0]
    seen.sums = [
        Summed((window.from_s + WINDOW_S - FIRST_DAY_S) / 400, window, told)
        for window, told in sums(numbers[:-1]).items()
    ]
    seen.ends = [
        ToldEnd(second, second + 0.1, 1 if second < KILLED_S else 2, partition, 0, 200 * second)
        for second in range(10)
        for partition in range(PARTITIONS)
    ]
    seen.ends += [ToldEnd(5.2, 5.3, 2, 0, 78, -1), ToldEnd(6.0, 6.1, 3, 0, 6, -1)]
    seen.led = [Led(0.5, 0, 1, 0, "it is the first replica"), Led(5.4, 0, 2, 1, "1 cannot lead")]
    seen.happenings = [Happening(KILLED_S, "kill -9 node 1"), Happening(WIPED_S, "The disk is wiped")]
    seen.batches = [QueryBatch(float(at), query, at, 100 * (at + 1)) for at in range(3) for query in ("lake", "sums")]
    seen.idle = [IdleFetch(node, 30, 1_200, 1_500, 40, 30, named=1) for node in NODE_IDS]
    seen.failed_replica = FailedReplica(
        node_id=3,
        name="parcels-0",
        reason="append failed",
        given_up=["parcels-0"],
        others_before={"orders-1": 10},
        others_after={"orders-1": 20},
        in_epoch=0,
        back_in_epoch=1,
        left_in_sync=True,
        sent_before=1,
        back_in_sync=True,
        sent=[0, 1, 2],
        stored=[0, 1, 2],
        is_equal=True,
    )
    thin = [Thin(12.0, 1, 2, True, True, True, "3 is passed over"), Thin(25.0, 1, 3, False, True, True, "it is first")]
    seen.led += [Led(11.0, 1, 2, 1, "3 cannot lead"), Led(25.0, 1, 3, 2, "it is the first replica")]
    seen.wiped = Wiped(3, WIPED_S, 2.0, 1_000, 300, 5_000, 2_000, looks=thin, partition=1, other_epoch=1, led_at_s=25.0)
    seen.wiped.tier_ends = dict.fromkeys(range(PARTITIONS), 490)
    seen.wiped.disk_starts = dict.fromkeys(range(PARTITIONS), 500)
    log = [Written(0, "anna", 0), Written(1, "anna", 1), Written(2, "ben", 0), Written(3, "ben", 1)]
    seen.takeover = Takeover("anna", "ben", 1, 2, 2, [0, 1], [0, 1], 1, "another one has it", "refused", 90, log)
    seen.replicas = [
        Replica(partition, node, {at: at * 31 for at in range(node, 20)})
        for partition in range(PARTITIONS)
        for node in NODE_IDS
    ]
    seen.verified = Verified(replicas=9, tiers=3, batches=500, records=12_000, bytes=1_000_000)
    seen.verified.ends = dict.fromkeys(range(PARTITIONS), 1_334)
    seen.starts = {1: 2, 2: 1, 3: 2}
    seen.tier_segments, seen.tier_bytes = 20, 5_000
    return seen
