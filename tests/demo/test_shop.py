"""The shop waits for its oldest order, so that none comes too late for the sums."""

import asyncio
import time

import pytest

from demo import shop
from demo.orders import CLOSING_STEP, number_of, order
from demo.plan import AHEAD_MAX, LATE_S, ORDERS_PER_S, PARTITIONS
from demo.shop import Shop
from headrace.client import RecordMetadata
from headrace.core.murmur2 import partition_for

HELD_BACK = 30
AHEAD = 50
LOOKS_AT_THE_CLOCK = 100
WAIT_S_MAX = 60.0


class Producer:
    """Acknowledges every order at once but one, and that one when all are waited for."""

    def __init__(self, sent: list[int]) -> None:
        self._sent = sent
        self._held_back: list[asyncio.Future[RecordMetadata]] = []

    async def __aenter__(self) -> "Producer":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def send(self, topic: str, value: bytes, _key: bytes) -> "asyncio.Future[RecordMetadata]":
        number = number_of(value)
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        if number == HELD_BACK:
            self._held_back.append(future)
        else:
            future.set_result(RecordMetadata(topic, 0, number, 0))
        self._sent.append(number)
        return future

    async def flush(self) -> None:
        while self._held_back:
            self._held_back.pop().set_result(RecordMetadata("orders", 0, HELD_BACK, 0))
        await asyncio.sleep(0)


def test_the_shop_is_never_too_far_ahead_of_an_order_that_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    looks: list[float] = []

    def now_s() -> float:
        looks.append(time.monotonic())
        return looks[-1]

    monkeypatch.setattr(shop, "Producer", lambda *_, **__: Producer(sent))
    monkeypatch.setattr(shop, "ORDERS_PER_S", 100_000)
    monkeypatch.setattr(shop, "AHEAD_MAX", AHEAD)
    opened, deadline = Shop("nowhere", now_s), time.monotonic() + WAIT_S_MAX
    while len(sent) < HELD_BACK + AHEAD or len(looks) < len(sent) * 2 + LOOKS_AT_THE_CLOCK:
        assert time.monotonic() < deadline, sent
        time.sleep(0.01)
    where = partition_for(order(HELD_BACK).customer.encode(), PARTITIONS)
    assert [opened.under_way(at, HELD_BACK) for at in range(PARTITIONS)] == [at == where for at in range(PARTITIONS)]
    assert not opened.under_way(where, HELD_BACK + 1) and opened.sent == HELD_BACK + AHEAD
    opened.close()
    assert sent == [*range(HELD_BACK + AHEAD), HELD_BACK + AHEAD + CLOSING_STEP]
    assert sorted(one.number for one in opened.acked) == sent


def test_a_shop_that_is_abandoned_ends_though_an_order_is_never_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    class Deaf(Producer):
        async def flush(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(shop, "Producer", lambda *_, **__: Deaf(sent))
    opened, deadline = Shop("nowhere", time.monotonic), time.monotonic() + WAIT_S_MAX
    while len(sent) <= HELD_BACK:
        assert time.monotonic() < deadline, sent
        time.sleep(0.01)
    opened.abandon()
    assert not opened._thread.is_alive()
    opened.abandon()


def test_no_order_that_the_shop_may_be_ahead_of_is_late() -> None:
    assert LATE_S >= AHEAD_MAX + 2 * ORDERS_PER_S
