"""Promises that were broken are told to be, each by its own proof."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from demo.evidence import Acked, Evidence, IdleFetch, Led, Stored, Thin, ToldEnd, Written
from demo.orders import Sum, encode, number_of, order
from demo.plan import ELIGIBLE_MS
from demo.proofs.all import prove
from demo.reading import errors_in
from tests.demo.sound import CLOSED_S, DRIVER_KILLED_S, KILLED_S, WIPED_S, sound


def broken(seen: Evidence) -> list[str]:
    return [one.claim for one in prove(seen) if not one.ok]


def findings(seen: Evidence) -> str:
    return "; ".join(finding for one in prove(seen) for finding in one.findings)


def test_where_all_went_well_every_promise_is_kept() -> None:
    assert findings(sound()) == ""
    assert broken(sound()) == []


def test_what_was_never_seen_proves_nothing() -> None:
    assert [one.claim for one in prove(Evidence()) if one.ok] == []


def lost_order(seen: Evidence) -> None:
    seen.stored.remove(Stored(1, 500, 1_501))


def no_order_before_the_leader_died(seen: Evidence) -> None:
    seen.acked = [one for one in seen.acked if one.partition or one.at_s > KILLED_S]


def no_order_after_the_leader_died(seen: Evidence) -> None:
    seen.acked = [one for one in seen.acked if one.partition or one.at_s <= KILLED_S]


def no_order_before_the_wiping(seen: Evidence) -> None:
    seen.acked = [one for one in seen.acked if one.partition != 1 or one.at_s > WIPED_S]


def no_order_after_the_wiping(seen: Evidence) -> None:
    """But the last one, which is sent when all is over."""
    seen.acked = [one for one in seen.acked if one.partition != 1 or one.at_s <= WIPED_S or one.number == seen.closing]


def no_order_under_way_when_the_leader_died(seen: Evidence) -> None:
    seen.acked = [one._replace(at_s=one.sent_s) if one.sent_s <= KILLED_S < one.at_s else one for one in seen.acked]


def order_elsewhere(seen: Evidence) -> None:
    seen.acked[7] = Acked(0.1, 7, 1, 4)


def doubled_order(seen: Evidence) -> None:
    seen.stored.append(Stored(0, 1_334, 3_996))


def order_that_nobody_sent(seen: Evidence) -> None:
    seen.stored.append(Stored(1, 1_334, 77_777_777))


def orders_out_of_order(seen: Evidence) -> None:
    for offset, number in ((5, 18), (6, 15)):
        seen.stored[3 * offset] = Stored(0, offset, number)
        seen.acked[number] = seen.acked[number]._replace(offset=offset)


def row_lost(seen: Evidence) -> None:
    del seen.lake[1_234]


def row_doubled(seen: Evidence) -> None:
    seen.lake.append(seen.lake[1_234])


def row_of_nobody(seen: Evidence) -> None:
    seen.lake.append(seen.lake[1_234]._replace(number=-3))


def row_with_other_cents(seen: Evidence) -> None:
    seen.lake[5] = seen.lake[5]._replace(cents=seen.lake[5].cents + 1)


def row_of_another_time(seen: Evidence) -> None:
    seen.lake[5] = seen.lake[5]._replace(at=seen.lake[5].at + timedelta(hours=1))


def row_of_another_region(seen: Evidence) -> None:
    seen.lake[5] = seen.lake[5]._replace(region="nowhere")


def row_of_another_offset(seen: Evidence) -> None:
    seen.lake[5] = seen.lake[5]._replace(offset=6)


def driver_never_killed(seen: Evidence) -> None:
    seen.driver_killed_s = -1.0


def table_not_written_before_the_leader_died(seen: Evidence) -> None:
    seen.lake_written_s = [at_s for at_s in seen.lake_written_s if at_s > KILLED_S]


def table_not_written_until_the_driver_died(seen: Evidence) -> None:
    seen.lake_written_s = [at_s for at_s in seen.lake_written_s if not KILLED_S < at_s <= DRIVER_KILLED_S]


def table_not_written_until_the_shop_closed(seen: Evidence) -> None:
    seen.lake_written_s = [at_s for at_s in seen.lake_written_s if not DRIVER_KILLED_S < at_s <= CLOSED_S]


def no_sum_between(seen: Evidence, from_s: float, to_s: float) -> None:
    """They are there all the same, from another time."""
    seen.sums = [one._replace(at_s=CLOSED_S + 1) if from_s < one.at_s <= to_s else one for one in seen.sums]


def no_sum_before_the_leader_died(seen: Evidence) -> None:
    no_sum_between(seen, 0.0, KILLED_S)


def no_sum_until_the_driver_died(seen: Evidence) -> None:
    no_sum_between(seen, KILLED_S, DRIVER_KILLED_S)


def no_sum_until_the_shop_closed(seen: Evidence) -> None:
    no_sum_between(seen, DRIVER_KILLED_S, CLOSED_S)


def driver_killed_between_batches(seen: Evidence) -> None:
    seen.driver_killed_in = -1


def sum_lost(seen: Evidence) -> None:
    del seen.sums[1]


def sum_doubled(seen: Evidence) -> None:
    seen.sums.append(seen.sums[1])


def sum_wrong(seen: Evidence) -> None:
    one = seen.sums[1]
    seen.sums[1] = one._replace(told=Sum(one.told.orders + 1, one.told.cents))


def offset_went_back(seen: Evidence) -> None:
    seen.ends.append(ToldEnd(8.5, 8.6, 2, 0, 0, 1_599))


def offset_before_an_acknowledged_order(seen: Evidence) -> None:
    seen.ends.append(ToldEnd(0.5, 0.6, 2, 0, 0, 10))


def offsets_of_one_partition_never_told(seen: Evidence) -> None:
    seen.ends = [one for one in seen.ends if one.partition != 2]


def offset_never_told_again(seen: Evidence) -> None:
    seen.ends = [one for one in seen.ends if one.at_s < KILLED_S]


def offsets_never_told_after_an_order(seen: Evidence) -> None:
    first_s = min(one.at_s for one in seen.acked if one.partition == 2)
    seen.ends = [one for one in seen.ends if one.partition != 2 or one.asked_s < first_s]


def leader_told_on_after_its_death(seen: Evidence) -> None:
    seen.ends = [one if one.error else one._replace(node_id=1) for one in seen.ends]


def no_leader_was_killed(seen: Evidence) -> None:
    seen.killed_leader = -1


def node_never_asked(seen: Evidence) -> None:
    seen.ends = [one for one in seen.ends if one.node_id != 3]


def asker_met_an_error(seen: Evidence) -> None:
    seen.ask_failures.append("at 3.00 s node 2 gave no answer: ValueError()")


def idle_fetch_names_partitions(seen: Evidence) -> None:
    seen.idle[1] = IdleFetch(2, 30, 1_200, 1_500, 40, 1_500, named=1)


def idle_session_knows_no_partition(seen: Evidence) -> None:
    seen.idle[1] = seen.idle[1]._replace(named=0)


def idle_fetch_not_measured(seen: Evidence) -> None:
    del seen.idle[1]


def two_partitions_given_up(seen: Evidence) -> None:
    seen.failed_replica.given_up.append("orders-1")


def others_stand_still(seen: Evidence) -> None:
    seen.failed_replica.others_after = dict(seen.failed_replica.others_before)


def tried_again_too_soon(seen: Evidence) -> None:
    seen.failed_replica.back_in_epoch = seen.failed_replica.in_epoch


def parcel_lost(seen: Evidence) -> None:
    seen.failed_replica.stored.remove(1)


def no_parcel_after_the_failure(seen: Evidence) -> None:
    seen.failed_replica.sent_before = len(seen.failed_replica.sent)


def no_parcel_before_the_failure(seen: Evidence) -> None:
    seen.failed_replica.sent_before = 0


def how_far_others_were_is_not_known(seen: Evidence) -> None:
    seen.failed_replica.others_before["orders-1"] = -1


def copied_what_the_tier_has(seen: Evidence) -> None:
    seen.wiped.disk_starts[2] = seen.wiped.tier_ends[2] - 1


def wiped_node_copied_nothing(seen: Evidence) -> None:
    seen.wiped.copied_records = 0


def nothing_was_in_the_tier(seen: Evidence) -> None:
    seen.wiped.tier_ends[2] = 0


def thin_one_leads(seen: Evidence) -> None:
    seen.wiped.looks.append(Thin(15.0, 1, 3, True, True, True, "it leads"))


def nobody_led_meanwhile(seen: Evidence) -> None:
    seen.wiped.looks = [look._replace(leader=-1) if look.thin else look for look in seen.wiped.looks]


def leads_too_soon(seen: Evidence) -> None:
    first = next(one for one in seen.acked if (one.partition, one.offset) == (1, seen.wiped.disk_starts[1]))
    seen.wiped.led_at_s = first.sent_s + ELIGIBLE_MS / 1000 - 0.1


def led_between_two_looks(seen: Evidence) -> None:
    seen.led[-1:] = [Led(13.0, 1, 3, 2, "it is the first replica"), Led(14.0, 1, 2, 3, ""), Led(25.0, 1, 3, 4, "")]


def tier_harmed(seen: Evidence) -> None:
    seen.tier_problems.append("an object: its checksum is wrong")


def written_behind_the_fence(seen: Evidence) -> None:
    seen.takeover.log.append(Written(4, "anna", 2))


def fence_behind_the_new_one(seen: Evidence) -> None:
    seen.takeover.fence = 4
    seen.takeover.log.append(Written(4, "ben", 2))


def old_one_writes_before_a_wrong_fence(seen: Evidence) -> None:
    seen.takeover.fence = 1_000
    seen.takeover.log.append(Written(4, "anna", 2))


def new_owner_was_told_nothing(seen: Evidence) -> None:
    seen.takeover.new_acked.clear()


def new_owner_fell_silent_when_the_old_one_came_back(seen: Evidence) -> None:
    seen.takeover.new_acked_before_return = len(seen.takeover.new_acked)


def new_owner_silent_until_the_old_one_came_back(seen: Evidence) -> None:
    seen.takeover.new_acked_before_return = 0


def raw_write_let_in(seen: Evidence) -> None:
    seen.takeover.raw_refusal = ""


def raw_write_timed_out(seen: Evidence) -> None:
    seen.takeover.raw_refusal, seen.takeover.raw_refusal_code = "not delivered in 5 s", 7


def ledger_record_lost(seen: Evidence) -> None:
    seen.takeover.old_acked.append(2)


def replicas_differ(seen: Evidence) -> None:
    seen.replicas[1].batches[15] = 1


def no_broker_was_wiped(seen: Evidence) -> None:
    seen.wiped.killed_s = -1.0


def replica_is_short(seen: Evidence) -> None:
    del seen.replicas[2].batches[19]


def sequence_twice(seen: Evidence) -> None:
    seen.verified.problems.append("orders-0, 2: sequence 5 of producer 1 is there twice")


def replica_not_read(seen: Evidence) -> None:
    seen.verified.replicas = 8


def replica_has_nothing(seen: Evidence) -> None:
    seen.replicas[4].batches.clear()


def partition_without_replicas(seen: Evidence) -> None:
    seen.replicas = [one for one in seen.replicas if one.partition != 1]


def verified_too_little(seen: Evidence) -> None:
    seen.verified.ends[2] = 900


def records_not_verified(seen: Evidence) -> None:
    seen.verified.records = 0


def records_not_read(seen: Evidence) -> None:
    del seen.starts[2]


def killed_leader_was_not_started_again(seen: Evidence) -> None:
    seen.starts[1] = 1


def wiped_node_was_not_started_again(seen: Evidence) -> None:
    seen.starts[3] = 1


def broker_met_a_bug(seen: Evidence) -> None:
    seen.bugs.append("Node 1: KeyError")


def act_failed(seen: Evidence) -> None:
    seen.failures.append("The leader is killed: not in 120 s: another node leads")


HARMS: dict[Callable[[Evidence], None], str] = {
    act_failed: "Every act came to its end",
    lost_order: "What was acknowledged is there",
    order_elsewhere: "What was acknowledged is there",
    no_order_before_the_leader_died: "What was acknowledged is there",
    no_order_after_the_leader_died: "What was acknowledged is there",
    no_order_before_the_wiping: "What was acknowledged is there",
    no_order_after_the_wiping: "What was acknowledged is there",
    no_order_under_way_when_the_leader_died: "Each order is stored once",
    doubled_order: "Each order is stored once",
    order_that_nobody_sent: "Each order is stored once",
    orders_out_of_order: "Each order is stored once",
    row_lost: "The table has every order",
    row_doubled: "The table has every order",
    row_of_nobody: "The table has every order",
    row_with_other_cents: "The table has every order",
    row_of_another_time: "The table has every order",
    row_of_another_region: "The table has every order",
    row_of_another_offset: "The table has every order",
    driver_never_killed: "The table has every order",
    table_not_written_before_the_leader_died: "The table has every order",
    table_not_written_until_the_driver_died: "The table has every order",
    table_not_written_until_the_shop_closed: "The table has every order",
    no_sum_before_the_leader_died: "The sums that Spark wrote",
    no_sum_until_the_driver_died: "The sums that Spark wrote",
    no_sum_until_the_shop_closed: "The sums that Spark wrote",
    driver_killed_between_batches: "The sums that Spark wrote",
    sum_lost: "The sums that Spark wrote",
    sum_doubled: "The sums that Spark wrote",
    sum_wrong: "The sums that Spark wrote",
    offset_went_back: "Latest offsets never go back",
    offset_before_an_acknowledged_order: "Latest offsets never go back",
    offsets_of_one_partition_never_told: "Latest offsets never go back",
    offset_never_told_again: "Latest offsets never go back",
    offsets_never_told_after_an_order: "Latest offsets never go back",
    leader_told_on_after_its_death: "Latest offsets never go back",
    no_leader_was_killed: "Latest offsets never go back",
    node_never_asked: "Latest offsets never go back",
    asker_met_an_error: "Latest offsets never go back",
    idle_fetch_names_partitions: "A fetch without news",
    idle_session_knows_no_partition: "A fetch without news",
    idle_fetch_not_measured: "A fetch without news",
    two_partitions_given_up: "A replica whose files fail",
    others_stand_still: "A replica whose files fail",
    tried_again_too_soon: "A replica whose files fail",
    no_parcel_before_the_failure: "A replica whose files fail",
    no_parcel_after_the_failure: "A replica whose files fail",
    parcel_lost: "A replica whose files fail",
    how_far_others_were_is_not_known: "A replica whose files fail",
    copied_what_the_tier_has: "A node that lost its disk",
    wiped_node_copied_nothing: "A node that lost its disk",
    nothing_was_in_the_tier: "A node that lost its disk",
    led_between_two_looks: "A replica with little on its own disk",
    thin_one_leads: "A replica with little on its own disk",
    nobody_led_meanwhile: "A replica with little on its own disk",
    leads_too_soon: "A replica with little on its own disk",
    tier_harmed: "What is in the tier is whole",
    written_behind_the_fence: "An owner that was paused",
    fence_behind_the_new_one: "An owner that was paused",
    old_one_writes_before_a_wrong_fence: "An owner that was paused",
    new_owner_was_told_nothing: "An owner that was paused",
    new_owner_fell_silent_when_the_old_one_came_back: "An owner that was paused",
    new_owner_silent_until_the_old_one_came_back: "An owner that was paused",
    raw_write_timed_out: "An owner that was paused",
    raw_write_let_in: "An owner that was paused",
    ledger_record_lost: "An owner that was paused",
    replicas_differ: "All replicas of the orders",
    sequence_twice: "Every replica and the tier agree",
    replica_not_read: "Every replica and the tier agree",
    no_broker_was_wiped: "All replicas of the orders",
    replica_is_short: "All replicas of the orders",
    replica_has_nothing: "All replicas of the orders",
    partition_without_replicas: "All replicas of the orders",
    verified_too_little: "Every replica and the tier agree",
    records_not_verified: "Every replica and the tier agree",
    killed_leader_was_not_started_again: "No broker met a bug",
    wiped_node_was_not_started_again: "No broker met a bug",
    records_not_read: "No broker met a bug",
    broker_met_a_bug: "No broker met a bug",
}


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_a_broken_promise_is_found(harm: Callable[[Evidence], None]) -> None:
    seen = sound()
    harm(seen)
    assert any(claim.startswith(HARMS[harm]) for claim in broken(seen)), broken(seen)


@pytest.mark.parametrize("harm", [row_lost, sum_doubled, offset_went_back, tier_harmed], ids=lambda harm: harm.__name__)
def test_and_no_other_one_is_said_to_be(harm: Callable[[Evidence], None]) -> None:
    seen = sound()
    harm(seen)
    assert len(broken(seen)) == 1


def test_an_answer_that_was_under_way_when_a_higher_one_came_did_not_go_back() -> None:
    seen = sound()
    seen.ends.append(ToldEnd(7.95, 8.3, 2, 0, 0, 1_400))
    assert broken(seen) == []


def test_only_offsets_that_went_back_are_counted_as_such() -> None:
    seen = sound()
    asker_met_an_error(seen)
    offset_never_told_again(seen)
    (told,) = [one for one in prove(seen) if one.document == "KIP-207"]
    assert told.figures["went back"] == 0 and len(told.findings) > 1
    seen = sound()
    offset_went_back(seen)
    (told,) = [one for one in prove(seen) if one.document == "KIP-207"]
    assert told.figures["went back"] == 1


def test_an_order_is_known_by_all_of_its_bytes() -> None:
    assert number_of(encode(order(5))) == 5
    with pytest.raises(ValueError, match="this is not order 5"):
        number_of(encode(order(5)).replace(b"c195", b"c196"))


def test_of_a_traceback_the_error_is_told() -> None:
    log = (
        "INFO begins\nERROR a task failed\nTraceback (most recent call last):\n"
        '  File "a.py", line 1, in b\n    c()\nKeyError: 7\nINFO goes on\n'
    )
    assert errors_in(log + log) == ["KeyError: 7"] * 2
    assert errors_in("INFO all is well\n") == []
    assert errors_in("Traceback (most recent call last):\n  File") == ["it is cut off"]
