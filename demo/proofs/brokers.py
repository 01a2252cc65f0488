"""KIP-227, KIP-461, KIP-1023, KIP-1303 and the tier: what brokers did, by their own records."""

from demo.evidence import Evidence
from demo.plan import ELIGIBLE_MS, NODE_IDS, PARTITIONS
from demo.proofs.promise import Promise, unless

NOBODY = -1
IDLE_BYTES_MAX = 100
"""Of a request or an answer that says nothing: headers, and the client's name."""


def idle_fetches(seen: Evidence) -> Promise:
    measured = {one.node_id for one in seen.idle}
    findings = [f"no fetch from node {node_id} was measured" for node_id in NODE_IDS if node_id not in measured]
    for one in seen.idle:
        findings += unless(one.partitions, f"node {one.node_id} leads no quiet partition")
        for what, size in (("request", one.idle_request), ("answer", one.idle_answer)):
            findings += unless(size <= IDLE_BYTES_MAX, f"an idle {what} to node {one.node_id} takes {size} bytes")
        told = f"of one partition with news node {one.node_id} told in an answer that names {one.named}"
        findings += unless(one.named == 1, told)
    full = sum(one.full_request + one.full_answer for one in seen.idle)
    idle = sum(one.idle_request + one.idle_answer for one in seen.idle)
    return Promise(
        "KIP-227",
        "A fetch without news names no partition",
        {
            "partitions in the sessions": sum(one.partitions for one in seen.idle),
            "bytes of a full fetch": full,
            "bytes of an idle fetch": idle,
            "idle as a share of full": f"{idle / full:.1%}" if full else "-",
        },
        findings,
    )


def one_replica_fails_alone(seen: Evidence) -> Promise:
    failed = seen.failed_replica
    name = failed.name
    stuck = [one for one, before in failed.others_before.items() if failed.others_after.get(one, -1) <= before]
    findings = unless(failed.given_up == [name], f"node {failed.node_id} gave up {failed.given_up}, not {name} alone")
    findings += [f"node {failed.node_id} copied nothing of {one} any more" for one in stuck]
    findings += unless(failed.others_before, "there was no other partition to look at")
    unknown = [one for one, before in failed.others_before.items() if before < 0]
    findings += [f"how far node {failed.node_id} had copied {one} was not known" for one in unknown]
    findings += unless(
        len(failed.sent) > failed.sent_before > 0, f"nothing was written to {name} before it failed, or after it"
    )
    findings += unless(failed.left_in_sync, f"{name} never left the ISR")
    findings += unless(failed.back_in_epoch > failed.in_epoch, f"{name} did not wait for its next leader epoch")
    findings += unless(failed.back_in_sync, f"{name} is not in sync again")
    findings += unless(failed.sent and failed.stored == failed.sent, f"{name} has {failed.stored}, not {failed.sent}")
    findings += unless(failed.is_equal, f"the replicas of {name} are not equal")
    return Promise(
        "KIP-461",
        "A replica whose files fail is left alone, and no other partition of its node notices",
        {
            "partitions given up": len(failed.given_up),
            "reason": failed.reason,
            "others that were replicated on": len(failed.others_before) - len(stuck),
            "given up in leader epoch": failed.in_epoch,
            "replicated again in": failed.back_in_epoch,
            "records of it, lost": len(set(failed.sent) - set(failed.stored)),
        },
        findings,
    )


def begins_behind_the_tier(seen: Evidence) -> Promise:
    wiped = seen.wiped
    share = wiped.copied_records / wiped.log_records if wiped.log_records else 1.0
    findings = unless(wiped.in_sync_s >= 0, "the wiped node is not in sync again")
    findings += unless(wiped.copied_records, "the wiped node copied nothing")
    for partition in range(PARTITIONS):
        begin, tier_end = wiped.disk_starts.get(partition, -1), wiped.tier_ends.get(partition, -1)
        findings += unless(tier_end > 0, f"nothing of orders-{partition} was in the tier")
        findings += unless(
            begin >= tier_end,
            f"the wiped node copied orders-{partition} from {begin} on, and the tier had all before {tier_end}",
        )
    return Promise(
        "KIP-1023",
        "A node that lost its disk copies what the tier does not have, and is in sync again",
        {
            "records in the logs": wiped.log_records,
            "records copied": wiped.copied_records,
            "share copied": f"{share:.0%}",
            "of these in the tier before": sum(
                max(end - wiped.disk_starts.get(partition, end), 0) for partition, end in wiped.tier_ends.items()
            ),
            "bytes copied, of all topics": wiped.copied_bytes,
            "bytes that stayed in the tier": wiped.tier_bytes,
            "in sync after, in seconds": round(wiped.in_sync_s, 1),
        },
        findings,
    )


def thin_ones_come_last(seen: Evidence) -> Promise:
    wiped = seen.wiped
    thin = [look for look in wiped.looks if look.thin and look.can_lead and look.others_can_lead]
    findings = unless(thin, "the wiped node was never seen in sync and thin")
    others = [look for look in thin if look.leader not in (NOBODY, wiped.node_id)]
    findings += unless(others, "no other node was seen to lead while it was thin")
    findings += [
        f"at {look.at_s:.1f} s node {look.leader} led orders-{look.partition}, with little on its own disk"
        for look in thin
        if look.leader == wiped.node_id
    ]
    findings += unless(wiped.led_at_s >= 0, "the wiped node did not get its leadership back")
    covered_s = _covered_s(seen)
    findings += unless(covered_s * 1000 >= ELIGIBLE_MS, f"it led again when its own disk covered {covered_s:.1f} s")
    return Promise(
        "KIP-1303",
        "A replica with little on its own disk comes last in elections, until it has enough",
        {
            "looks while it was thin": len(thin),
            "led meanwhile": len([look for look in thin if look.leader == wiped.node_id]),
            "wanted on its own disk, in seconds": ELIGIBLE_MS / 1000,
            "covered when it led again, in seconds": round(covered_s, 1),
            "why": thin[-1].because if thin else "",
        },
        findings,
    )


def _covered_s(seen: Evidence) -> float:
    """From the first order on its own disk until anybody saw it lead again; -1 if that order is not known."""
    wiped = seen.wiped
    first = wiped.partition, wiped.disk_starts.get(wiped.partition, -1)
    sent_s = next((one.sent_s for one in seen.acked if (one.partition, one.offset) == first), None)
    led_s = [wiped.led_at_s] + [
        one.at_s
        for one in seen.led
        if (one.partition, one.leader) == (wiped.partition, wiped.node_id) and one.epoch > wiped.other_epoch
    ]
    return -1.0 if sent_s is None else min(led_s) - sent_s


def tier_is_whole(seen: Evidence) -> Promise:
    findings = seen.tier_problems + unless(seen.tier_segments, "nothing is in the tier")
    return Promise(
        "KIP-405 (TIER.md)",
        "What is in the tier is whole: every checksum, offset and epoch of every segment",
        {"segments": seen.tier_segments, "bytes": seen.tier_bytes, "problems": len(seen.tier_problems)},
        findings,
    )


def no_bugs(seen: Evidence) -> Promise:
    findings = list(seen.bugs)
    for node_id in NODE_IDS:
        kills = (seen.killed_leader, seen.wiped.node_id).count(node_id)
        told = seen.starts.get(node_id, 0)
        findings += unless(
            told == 1 + kills, f"node {node_id} was started {1 + kills} times, and its records tell of {told}"
        )
    return Promise(
        "The brokers' records",
        "No broker met a bug of its own, and each ended well when it was told to",
        {
            "brokers whose records were read": sum(map(bool, seen.starts.values())),
            "starts that they tell of": sum(seen.starts.values()),
            "bugs": len(seen.bugs),
        },
        findings,
    )
