"""Exactly once, through Spark: the table and the topic of sums, each against what was acknowledged."""

from collections import Counter

from demo.evidence import Acked, Evidence, LakeRow
from demo.orders import note_of, order, sums, time_of
from demo.plan import ORDERS
from demo.proofs.promise import Promise, unless
from demo.proofs.stretches import counts, idle_in


def lake_equals_topic(seen: Evidence) -> Promise:
    rows, sent = Counter(row.number for row in seen.lake), {one.number: one for one in seen.acked}
    lost = [f"order {number} is not in the table" for number in sorted(sent.keys() - rows.keys())]
    doubled = [f"order {number} is in the table {count} times" for number, count in rows.items() if count > 1]
    strangers = [f"the table has an order {number} that nobody sent" for number in sorted(rows.keys() - sent.keys())]
    wrong = [
        f"the row of order {row.number} has {differing(row, row_of(sent[row.number]))}"
        for row in seen.lake
        if row.number in sent and row != row_of(sent[row.number])
    ]
    writes = counts(seen, seen.lake_written_s)
    return Promise(
        "Exactly once (headrace pipeline lake)",
        "The table has every order of the topic, once, with all columns as they were sent",
        {
            "orders": len(sent),
            "rows": len(seen.lake),
            "lost": len(lost),
            "doubled": len(doubled),
            "wrong": len(wrong),
            "micro-batches": _batches(seen, "lake"),
            **{f"writes {when}": count for when, count in writes.items()},
        },
        lost
        + doubled
        + strangers
        + wrong
        + unless(rows, "the table is empty")
        + idle_in("nothing was written to the table", writes),
    )


def row_of(one: Acked) -> LakeRow:
    """What the table must have of an order that was acknowledged."""
    sent = order(one.number)
    at, key = time_of(sent), sent.customer.encode()
    return LakeRow(*sent[:4], at, note_of(sent), at.date(), key, ORDERS, one.partition, one.offset)


def differing(row: LakeRow, expected: LakeRow) -> str:
    pairs = zip(LakeRow._fields, row, expected, strict=True)
    return ", ".join(f"{name} {found!r} instead of {sent!r}" for name, found, sent in pairs if found != sent)


def sums_are_right(seen: Evidence) -> Promise:
    """The window of the last order is still open: all others are over, and their sums are final."""
    expected = sums([one.number for one in seen.acked if one.number != seen.closing])
    times = Counter(one.window for one in seen.sums)
    found = {one.window: one.told for one in seen.sums}
    lost = [f"there is no sum for {window}" for window in expected if window not in times]
    doubled = [f"there are {count} sums for {window}" for window, count in times.items() if count > 1]
    wrong = [
        f"the sum for {window} is {told}, not {expected.get(window)}"
        for window, told in found.items()
        if expected.get(window) != told
    ]
    written = counts(seen, [one.at_s for one in seen.sums])
    return Promise(
        "Exactly once (format headrace)",
        "The sums that Spark wrote back into a topic are there once each, and right",
        {
            "sums": len(seen.sums),
            "orders in them": sum(one.told.orders for one in seen.sums),
            "lost": len(lost),
            "doubled": len(doubled),
            "wrong": len(wrong),
            "micro-batches": _batches(seen, "sums"),
            **{f"sums written {when}": count for when, count in written.items()},
            "written and not committed when the driver was killed": seen.sums_under_way,
            "records of attempts that were given up": seen.sums_given_up,
        },
        lost
        + doubled
        + wrong
        + unless(found, "the topic of sums is empty")
        + idle_in("no sum was written", written)
        + unless(seen.driver_killed_in >= 0, "the Spark driver was not killed in the middle of a micro-batch of sums"),
    )


def _batches(seen: Evidence, query: str) -> int:
    return len({one.batch_id for one in seen.batches if one.query == query})
