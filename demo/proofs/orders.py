"""Acknowledged orders are in the topic: each once, at its offset, in order."""

from collections import Counter

from demo.evidence import Evidence
from demo.plan import NODE_IDS, PARTITIONS
from demo.proofs.promise import Promise, unless
from demo.proofs.stretches import through


def acknowledged(seen: Evidence) -> Promise:
    there = {(one.partition, one.offset): one.number for one in seen.stored}
    lost = [
        f"order {one.number} was acknowledged at {one.partition}:{one.offset}, where there is "
        f"{there.get((one.partition, one.offset), 'nothing')}"
        for one in seen.acked
        if there and there.get((one.partition, one.offset)) != one.number
    ]
    findings = lost + unless(seen.acked, "no order was acknowledged") + unless(there, "the topic was not read back")
    for partition, fault, at_s in ((0, "killed", seen.killed_s), (seen.wiped.partition, "wiped", seen.wiped.killed_s)):
        times_s = [one.at_s for one in seen.acked if one.partition == partition and one.number != seen.closing]
        findings += through(
            f"no order of orders-{partition} was acknowledged", times_s, f"its leader was {fault}", at_s
        )
    figures = {"acknowledged": len(seen.acked), "read back": len(seen.stored), "lost": len(lost)}
    return Promise(
        "acks=all (PROMISES.md)", "What was acknowledged is there, at the offset that was told", dict(figures), findings
    )


def once_and_in_order(seen: Evidence) -> Promise:
    times = Counter(one.number for one in seen.stored)
    doubled = [f"order {number} is there {count} times" for number, count in times.items() if count > 1]
    sent = {one.number for one in seen.acked}
    strangers = [
        f"nobody sent what is at {one.partition}:{one.offset}" for one in seen.stored if one.number not in sent
    ]
    last: dict[int, tuple[int, int]] = {}
    backwards, gaps = [], []
    for one in sorted(seen.stored):
        offset, number = last.get(one.partition, (-1, -1))
        if one.offset != offset + 1:
            gaps.append(f"partition {one.partition} goes from offset {offset} to {one.offset}")
        if one.number <= number:
            backwards.append(f"partition {one.partition} has order {one.number} after {number}")
        last[one.partition] = one.offset, one.number
    under_way = sum(one.partition == 0 and one.sent_s <= seen.killed_s < one.at_s for one in seen.acked)
    figures = {
        "under way to the leader when it was killed": under_way,
        "doubled": len(doubled),
        "out of order": len(backwards),
        "gaps in offsets": len(gaps),
        "not sent by anybody": len(strangers),
    }
    return Promise(
        "Idempotent producers (PROMISES.md)",
        "Each order is stored once, and in the order in which it was sent",
        dict(figures),
        doubled
        + strangers
        + backwards
        + gaps
        + unless(seen.stored, "there is nothing in the topic")
        + unless(
            under_way, "no order was under way to the leader when it was killed, so that none had to be sent again"
        ),
    )


def nothing_is_amiss(seen: Evidence) -> Promise:
    """By the brokers' own records, which know of producers, sequences and epochs."""
    found = seen.verified
    expected = len(NODE_IDS) * PARTITIONS
    findings = list(found.problems)
    findings += unless(found.replicas == expected, f"{found.replicas} of {expected} replicas were read")
    findings += unless(found.tiers == PARTITIONS, f"the tier of {found.tiers} of {PARTITIONS} partitions was read")
    beyond = sum(one.offset >= found.ends.get(one.partition, 0) for one in seen.acked)
    findings += unless(not beyond, f"{beyond} acknowledged orders lie behind what was read")
    read = f"{found.records} records were read, and {len(seen.acked)} orders were acknowledged"
    findings += unless(found.records >= len(seen.acked), read)
    return Promise(
        "Replication (headrace pipeline verify)",
        "Every replica and the tier agree: checksums, offsets, leader epochs, no producer's sequence twice",
        {
            "replicas": found.replicas,
            "partitions in the tier": found.tiers,
            "batches": found.batches,
            "records": found.records,
            "bytes": found.bytes,
            "findings": len(found.problems),
        },
        findings,
    )


def replicas_are_equal(seen: Evidence) -> Promise:
    """Below where each of them begins on its own disk there is the tier, which is verified by itself."""
    findings = unless(seen.wiped.killed_s >= 0, "no broker was wiped")
    compared, unequal = 0, 0
    for partition in range(PARTITIONS):
        logs = [one for one in seen.replicas if one.partition == partition]
        findings += unless(len(logs) == len(NODE_IDS), f"{len(logs)} replicas of partition {partition} were read")
        start = max((min(one.batches, default=0) for one in logs), default=0)
        tails = [{at: crc for at, crc in one.batches.items() if at >= start} for one in logs]
        findings += unless(any(tails), f"no replica of partition {partition} has anything on its disk")
        compared += sum(map(len, tails))
        differ = [
            f"partition {partition} of nodes {logs[0].node_id} and {log.node_id} differ"
            for log, tail in zip(logs[1:], tails[1:], strict=True)
            if tail != tails[0]
        ]
        unequal += len(differ)
        findings += differ
    return Promise(
        "Replication (PROMISES.md)",
        "All replicas of the orders are equal, byte by byte, those of the wiped broker too",
        {"replicas": len(seen.replicas), "batches compared": compared, "replicas that differ": unequal},
        findings,
    )
