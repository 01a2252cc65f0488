"""A leader is killed when orders are under way to it, and not between two batches of the shop."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from demo.acts import hold_orders
from demo.stage import Stage

LEADER = 2
TICKS = 3
"""Of the shop, until it sells an order that the leader is to store."""


class Cluster:
    def __init__(self, shop: "Shop") -> None:
        self.paused: list[int] = []
        self._shop = shop

    def pause(self, node_id: int) -> None:
        self.paused.append(node_id)

    def until(self, condition: Callable[[], object], _what: str) -> None:
        while not condition():
            self._shop.sent += 1


class Shop:
    """One order before the pause is stored, and the shop has not heard of that."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.sent = 10

    def under_way(self, partition: int, since: int) -> int:
        assert partition == 0
        return sum(number >= since for number in (9, 10 + TICKS) if number < self.sent)


def held(shop: Shop) -> Cluster:
    cluster = Cluster(shop)
    hold_orders(cast(Stage, SimpleNamespace(shop=shop, cluster=cluster)), LEADER)
    return cluster


def test_a_leader_that_is_to_be_killed_is_paused_until_it_owes_an_answer() -> None:
    shop = Shop()
    assert held(shop).paused == [LEADER]
    assert shop.sent == 10 + TICKS + 1


def test_a_shop_that_failed_is_not_waited_for() -> None:
    shop = Shop()
    shop.failure = ValueError("an order was lost")
    held(shop)
    assert shop.sent == 10
