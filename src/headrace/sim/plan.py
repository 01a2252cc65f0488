"""What will go wrong in a world, and when: drawn from the seed before the world begins.

A plan is plain data, so that a failing one can be made shorter, fault by fault, and played again.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

QUIET_S = 4.0
"""At the beginning nothing goes wrong."""


class Fault(NamedTuple):
    at_s: float
    kind: str
    nodes: tuple[int, ...]
    """Whom it strikes: one node, or both ends of a link; empty for what strikes all."""
    for_s: float
    """Until it is over: the node is started again, the link heals."""
    size: float
    """How bad, from 0 to 1; each kind has its own use for it."""

    def __str__(self) -> str:
        where = " and ".join(f"node{node}" for node in self.nodes) or "all"
        return f"{self.at_s:9.3f} s  {where:<8} {self.kind}, for {self.for_s:.1f} s"


NODE_KINDS = (
    "kill",
    "kill in a write",
    "clean restart",
    "pause",
    "slow disk",
    "disk error",
    "store away",
    "store slow",
    "store in doubt",
    "clock jump",
    "clock rate",
    "resets",
)
LINK_KINDS = ("cut one way", "cut both ways")
ALL_KINDS = ("isolate", "slow network")
POWER = "power loss"
"""Costs what was not synced, so that it belongs only into worlds where that is enough."""


def draw_plan(random: Random, brokers: int, seconds: float, *, with_power_loss: bool) -> list[Fault]:
    kinds = [*NODE_KINDS, *ALL_KINDS, *((POWER,) if with_power_loss else ()), *(LINK_KINDS if brokers > 1 else ())]
    # Some seeds know few kinds of faults and many of each, others all of them.
    weights = [random.random() ** 3 for _ in kinds]
    pace_s = random.choice((1.0, 2.0, 4.0, 8.0))
    faults = []
    at_s = QUIET_S
    while (at_s := at_s + random.expovariate(1 / pace_s)) < seconds:
        kind = random.choices(kinds, weights)[0]
        for_s = min(random.choice((0.2, 1.0, 3.0, 12.0)) * random.uniform(0.5, 1.5), seconds - at_s + 0.5)
        faults.append(Fault(at_s, kind, _struck(random, kind, brokers), for_s, random.random()))
    return faults


def _struck(random: Random, kind: str, brokers: int) -> tuple[int, ...]:
    if kind in LINK_KINDS:
        return tuple(random.sample(range(1, brokers + 1), 2))
    if kind == "slow network":
        return ()
    return (random.randint(1, brokers),)


def without(plan: Sequence[Fault], start: int, count: int) -> list[Fault]:
    return [*plan[:start], *plan[start + count :]]
