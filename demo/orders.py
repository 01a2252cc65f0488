"""Orders of a shop. What is in an order follows from its number, so that anybody can say what must be in a table."""

import json
from datetime import UTC, datetime
from typing import NamedTuple

from demo.plan import WINDOW_S

FIRST_DAY_S = 1_767_225_600
"""2026-01-01, midnight, UTC: the shop's own time, in which each order is a second after the one before."""

CUSTOMERS = 200
REGIONS = ("east", "north", "south", "west")
NOTES = ("please ring twice. ", "leave it with the neighbours, they know. ", "a present: no bill inside. ")
NOTE_TIMES = 12
CLOSING_STEP = 200_000
"""The last order is more than two days after the one before: every window of those before is over then."""


class Order(NamedTuple):
    number: int
    customer: str
    region: str
    cents: int
    at_s: int


class Window(NamedTuple):
    """Orders of one region in some minutes of the shop's time."""

    from_s: int
    region: str


class Sum(NamedTuple):
    orders: int
    cents: int


def order(number: int) -> Order:
    customer = number * 7_919 % CUSTOMERS
    cents = 100 + number * 104_729 % 9_900
    return Order(number, f"c{customer:03d}", REGIONS[customer % len(REGIONS)], cents, FIRST_DAY_S + number)


def time_of(one: Order) -> datetime:
    return datetime.fromtimestamp(one.at_s, UTC)


def note_of(one: Order) -> str:
    return NOTES[one.number % len(NOTES)] * NOTE_TIMES


def encode(one: Order) -> bytes:
    at = time_of(one).strftime("%Y-%m-%dT%H:%M:%SZ")
    told: dict[str, object] = {
        "number": one.number,
        "customer": one.customer,
        "region": one.region,
        "cents": one.cents,
        "at": at,
    }
    told["note"] = note_of(one)
    return json.dumps(told).encode()


def number_of(value: bytes) -> int:
    """Raises ValueError for what is not an order, or is not the order of its number."""
    number = int(json.loads(value)["number"])
    if encode(order(number)) != value:
        raise ValueError(f"this is not order {number}: {value!r}")
    return number


def window_of(one: Order) -> Window:
    return Window(one.at_s - one.at_s % WINDOW_S, one.region)


def sums(numbers: list[int]) -> dict[Window, Sum]:
    """What the windows of these orders must add up to."""
    found: dict[Window, Sum] = {}
    for one in map(order, numbers):
        window = window_of(one)
        before = found.get(window, Sum(0, 0))
        found[window] = Sum(before.orders + 1, before.cents + one.cents)
    return found
