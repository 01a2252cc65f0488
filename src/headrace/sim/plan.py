"""What will go wrong in a world, and when: drawn from the seed before the world begins.

A plan is plain data, so that a failing one can be made shorter, fault by fault, and played again.
"""

from collections.abc import Callable, Sequence
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
AIMED_KINDS = (
    "alone",
    "kill",
    "kill at a commit",
    "kill at a join",
    "pause",
    "watch held",
    "clean restart",
    "isolate",
    "store in doubt",
)
"""They strike leaders and the controller more often than chance would."""
LINK_KINDS = ("cut one way", "cut both ways")
ALL_KINDS = ("isolate", "slow network")
POWER = "power loss"
TIER_KINDS = ("tier away", "tier slow", "tier failing", "tier silent", "wipe", "alone")
"""Where there is a tier. Half of its troubles strike one node, half of them all."""

SETTINGS_IN_A_HURRY = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "2000",
    "leader.imbalance.check.interval.seconds": "1",
}
"""More happens in less time."""


SLOW_COPIES = {"replica.fetch.response.max.bytes": "1"}
"""Followers get one batch with each answer, so that it takes them a while to catch up."""


class Surroundings(NamedTuple):
    """What the seed chooses beside the faults."""

    is_flushed: bool
    """Every record is synced before it counts, so that the power of all nodes may fail at once."""
    settings: dict[str, str]
    topic_configs: dict[str, str]
    delay_s_max: float
    """Of what is sent from one machine to another."""


def draw_surroundings(random: Random, brokers: int) -> Surroundings:
    is_flushed = random.random() < (0.5 if brokers == 1 else 0.25)
    settings = dict(SETTINGS_IN_A_HURRY) if brokers > 1 and random.random() < 0.8 else {}
    if random.random() < 0.4:
        settings.update(SLOW_COPIES)
    configs = {"flush.messages": "1"} if is_flushed else {}
    if brokers > 2:
        configs["min.insync.replicas"] = "2"
    if random.random() < 0.2:
        configs["segment.bytes"] = "4096"
    return Surroundings(is_flushed, settings, configs, random.choice((0.002, 0.002, 0.02)))


def draw_plan(
    random: Random,
    brokers: int,
    seconds: float,
    *,
    with_power_loss: bool,
    with_owners: bool = False,
    with_tier: bool = False,
) -> list[Fault]:
    more = [POWER] if with_power_loss else []
    if with_tier:
        more += TIER_KINDS if brokers > 1 else TIER_KINDS[:4]
    if brokers < 3 or random.random() < 0.5:
        return _any_faults(random, brokers, seconds, random.choice((0.3, 0.7, 1.5, 3.0)), more)
    drills = (OWNERS_DRILLS if with_owners else ()) + (2 * TIER_DRILLS if with_tier else ()) + DRILLS
    drill = random.choice(drills)(random, QUIET_S + random.random(), seconds)
    return sorted(drill + _any_faults(random, brokers, seconds, 4.0, more))


def _any_faults(random: Random, brokers: int, seconds: float, pace_s: float, more: Sequence[str]) -> list[Fault]:
    kinds = [*NODE_KINDS, *ALL_KINDS, *more]
    if brokers > 1:
        kinds += [*LINK_KINDS, "kill at a commit", "kill at a join"]
    # Some seeds know few kinds of faults and many of each, others all of them.
    weights = [random.random() ** 3 for _ in kinds]
    faults = []
    at_s = QUIET_S
    while (at_s := at_s + random.expovariate(1 / pace_s)) < seconds:
        kind = random.choices(kinds, weights)[0]
        for_s = min(random.choice((0.2, 1.0, 3.0, 6.0)) * random.uniform(0.5, 1.5), seconds - at_s + 0.5)
        faults.append(Fault(at_s, kind, _struck(random, kind, brokers), for_s, random.random()))
    return faults


# Situations in which rules matter that chance alone rarely brings about. Each has its variations.


def _deaf_leader(random: Random, at_s: float, seconds: float) -> list[Fault]:
    """A leadership goes back to the first replica, which has just joined again, while the leader hears of nothing."""
    leader = random.choice(LEADERS)
    gone_s = random.uniform(0.2, 1.0)
    back_s = at_s + gone_s + random.uniform(0.12, 0.4)
    return [
        Fault(at_s, "clean restart", (leader,), gone_s, 0.0),
        Fault(back_s, "watch held", (leader,), seconds - back_s, 0.0),
    ]


def _lost_tail(random: Random, at_s: float, _seconds: float) -> list[Fault]:
    """A leader is away, and a member of the ISR comes back without what it had not synced."""
    leader, member = random.choice(LEADERS), random.randint(1, 3)
    kind = random.choice(("kill", "pause", "isolate"))
    return [
        Fault(at_s, kind, (leader,), random.uniform(3, 6), 0.0),
        Fault(at_s + random.uniform(-0.3, 1.5), POWER, (member,), random.uniform(0.1, 1.0), 0.0),
    ]


def _early_member(random: Random, at_s: float, _seconds: float) -> list[Fault]:
    """A follower that was away long enough to be far behind comes back, and the others die when it has joined."""
    away_s = random.uniform(3, 5)
    return [
        Fault(at_s, random.choice(("kill", "pause", "isolate")), (random.randint(1, 3),), away_s, 0.0),
        Fault(at_s + away_s - 0.1, "kill at a join", (random.choice(LEADERS),), 5.0, 0.0),
    ]


def _doubts(random: Random, at_s: float, seconds: float) -> list[Fault]:
    """Writes of the controller are applied late, and nobody can know."""
    times = sorted(random.uniform(at_s, seconds) for _ in range(8))
    return [
        Fault(time_s, "store in doubt", (CONTROLLER,), 0.1, 0.23 + 0.03 * random.randint(0, 10)) for time_s in times
    ]


DRILLS: tuple[Callable[[Random, float, float], list[Fault]], ...] = (
    _deaf_leader,
    _deaf_leader,
    _lost_tail,
    _early_member,
    _doubts,
)


def _forgotten_leader(random: Random, at_s: float, _seconds: float) -> list[Fault]:
    """A leader whose time is over goes on with its clients, and cannot hear of its successor."""
    leader = random.choice(LEADERS)
    away_s = random.uniform(4.5, 8)
    kind = random.choice(("store away", "store away", "pause"))
    faults = [Fault(at_s, kind, (leader,), away_s, 0.0)]
    if random.random() < 0.7:
        faults.append(Fault(at_s, "isolate", (leader,), away_s, 0.0))
    return sorted(faults)


def _mute_leader(random: Random, at_s: float, seconds: float) -> list[Fault]:
    """A leader dies with records that its followers never got, again and again."""
    faults = []
    while at_s < seconds - 2:
        leader = random.choice(LEADERS)
        mute_s = random.uniform(0.3, 1.5)
        faults.append(Fault(at_s, "isolate", (leader,), mute_s, 0.0))
        faults.append(Fault(at_s + mute_s - 0.01, "kill", (leader,), random.uniform(0.5, 2), 0.0))
        at_s += mute_s + random.uniform(1.5, 3)
    return faults


OWNERS_DRILLS = (_forgotten_leader, _forgotten_leader, _mute_leader)
"""Where there are owners."""


def _parted_histories(random: Random, at_s: float, _seconds: float) -> list[Fault]:
    """A leader goes on alone, and dies when its segments are in the tier; the others know nothing of them."""
    alone_s = random.uniform(2.5, 4.5)
    return [
        Fault(at_s, "alone", LEADERS[1:], alone_s, 0.0),
        Fault(at_s + alone_s - 0.05, "kill", LEADERS[1:], random.uniform(2, 5), 0.0),
    ]


def _wiped_replica(random: Random, at_s: float, _seconds: float) -> list[Fault]:
    """A disk is replaced, and others die when its node has begun to come back."""
    node, again_s = random.randint(1, 3), random.uniform(0.5, 1.5)
    died_s = at_s + again_s + random.uniform(1.5, 4.5)
    kind = random.choice(("kill", "kill", "clean restart", "alone"))
    return [
        Fault(at_s, "wipe", (node,), again_s, 0.0),
        Fault(died_s, kind, (node if kind == "alone" else random.choice(LEADERS),), 3.0, 0.0),
    ]


def _copies_in_trouble(random: Random, at_s: float, seconds: float) -> list[Fault]:
    """Answers of the object store are lost all the time, and leaders die between the steps of a copy."""
    faults = [
        Fault(at_s, random.choice(("tier silent", "tier failing")), (1,), seconds - at_s - 1, 0.5 + random.random() / 2)
    ]
    while (at_s := at_s + random.uniform(0.5, 1.5)) < seconds - 1:
        kind = random.choice(("kill", "clean restart", "pause", "store in doubt"))
        faults.append(Fault(at_s, kind, (random.choice(LEADERS),), random.uniform(0.2, 1.5), random.random()))
    return faults


TIER_DRILLS = (_parted_histories, _parted_histories, _wiped_replica, _wiped_replica, _copies_in_trouble)
"""Where there is a tier; the second partition is one whose leaders may be unclean."""


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
