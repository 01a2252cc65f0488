"""What will go wrong in a world, and when: drawn from the seed before the world begins.

A plan is plain data, so that a failing one can be made shorter, fault by fault, and played again.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

QUIET_S = 2.0
"""At the beginning nothing goes wrong."""

CONTROLLER = 0
LEADERS = (-1, -2)
"""Whoever leads the first or the second partition when the time has come."""


class Fault(NamedTuple):
    at_s: float
    kind: str
    nodes: tuple[int, ...]
    """Whom it strikes: one node, or both ends of a link; empty for what strikes all. See CONTROLLER and LEADERS."""
    for_s: float
    """Until it is over: the node is started again, the link heals."""
    size: float
    """How bad, from 0 to 1; each kind has its own use for it."""

    def __str__(self) -> str:
        where = " and ".join(_named(node) for node in self.nodes) or "all"
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
    "watch held",
    "beats lost",
    "clock jump",
    "clock rate",
    "resets",
)
AIMED_KINDS = ("kill", "kill at a commit", "pause", "watch held", "clean restart", "isolate", "store in doubt")
"""They strike leaders and the controller more often than chance would."""
LINK_KINDS = ("cut one way", "cut both ways")
ALL_KINDS = ("isolate", "slow network")
POWER = "power loss"
DISKS = (POWER, "disk error")
"""What costs records: only where that is survived."""

SETTINGS_IN_A_HURRY = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
    "leader.imbalance.check.interval.seconds": "1",
}
"""More happens in less time."""


class Surroundings(NamedTuple):
    """What the seed chooses beside the faults."""

    is_flushed: bool
    """Every record is synced before it counts, so that the power of all nodes may fail at once."""
    settings: dict[str, str]
    topic_configs: dict[str, str]


def draw_surroundings(random: Random, brokers: int) -> Surroundings:
    is_flushed = random.random() < (0.5 if brokers == 1 else 0.25)
    settings = SETTINGS_IN_A_HURRY if brokers > 1 and random.random() < 0.8 else {}
    configs = {"flush.messages": "1"} if is_flushed else {}
    if brokers > 2:
        configs["min.insync.replicas"] = "2"
    if random.random() < 0.2:
        configs["segment.bytes"] = "4096"
    return Surroundings(is_flushed, dict(settings), configs)


def draw_plan(random: Random, brokers: int, seconds: float, *, with_power_loss: bool) -> list[Fault]:
    kinds = [*NODE_KINDS, *ALL_KINDS]
    if with_power_loss:
        kinds.append(POWER)
    if brokers > 1:
        kinds += [*LINK_KINDS, "kill at a commit"]
    # Some seeds know few kinds of faults and many of each, others all of them.
    weights = [random.random() ** 3 for _ in kinds]
    pace_s = random.choice((0.3, 0.7, 1.5, 3.0))
    faults = []
    at_s = QUIET_S
    while (at_s := at_s + random.expovariate(1 / pace_s)) < seconds:
        kind = random.choices(kinds, weights)[0]
        for_s = min(random.choice((0.2, 1.0, 3.0, 6.0)) * random.uniform(0.5, 1.5), seconds - at_s + 0.5)
        faults.append(Fault(at_s, kind, _struck(random, kind, brokers), for_s, random.random()))
    return faults


def _struck(random: Random, kind: str, brokers: int) -> tuple[int, ...]:
    if kind in LINK_KINDS:
        return tuple(random.sample(range(1, brokers + 1), 2))
    if kind == "slow network":
        return ()
    if brokers > 1 and kind in AIMED_KINDS and random.random() < 0.6:
        return (random.choice((CONTROLLER, *LEADERS)),)
    return (random.randint(1, brokers),)


def _named(node: int) -> str:
    if node == CONTROLLER:
        return "the controller"
    return f"node{node}" if node > 0 else f"the leader of partition {-node - 1}"


def without(plan: Sequence[Fault], start: int, count: int) -> list[Fault]:
    return [*plan[:start], *plan[start + count :]]
