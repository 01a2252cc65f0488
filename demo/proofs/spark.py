"""Exactly once, through Spark: the table and the topic of sums, each against what was acknowledged."""

from collections import Counter

from demo.evidence import Acked, Evidence, LakeRow
from demo.orders import note_of, order, sums, time_of
from demo.plan import ORDERS
from demo.proofs.promise import Promise, unless


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
            "kills of the Spark driver": seen.driver_kills,
        },
        lost
        + doubled
        + strangers
        + wrong
        + unless(rows, "the table is empty")
        + unless(seen.driver_kills, "the Spark driver was never killed"),
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
    times = Counter(window for window, _ in seen.sums)
    found = dict(seen.sums)
    lost = [f"there is no sum for {window}" for window in expected if window not in times]
    doubled = [f"there are {count} sums for {window}" for window, count in times.items() if count > 1]
    wrong = [
        f"the sum for {window} is {told}, not {expected.get(window)}"
        for window, told in found.items()
        if expected.get(window) != told
    ]
    return Promise(
        "Exactly once (format headrace)",
        "The sums that Spark wrote back into a topic are there once each, and right",
        {
            "sums": len(seen.sums),
            "orders in them": sum(told.orders for _, told in seen.sums),
            "lost": len(lost),
            "doubled": len(doubled),
            "wrong": len(wrong),
            "micro-batches": _batches(seen, "sums"),
        },
        lost + doubled + wrong + unless(found, "the topic of sums is empty"),
    )


def _batches(seen: Evidence, query: str) -> int:
    return len({one.batch_id for one in seen.batches if one.query == query})
