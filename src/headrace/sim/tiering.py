"""What a simulated cluster with a tier is: topics with small segments, most of which are soon in the tier alone."""

from random import Random
from typing import NamedTuple

from headrace.model import TopicPartition

KEPT = "t"
"""Loses nothing."""
SHORT = "s"
"""Its oldest records are deleted, or expire."""
UNCLEAN = "u"
"""Led by whoever is there: its records may be lost, and its histories may part."""
PARTITIONS = (TopicPartition(SHORT, 0),)
UNCLEAN_PARTITIONS = (TopicPartition(UNCLEAN, 0),)

SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.storage.url": "/objects",
    "remote.log.manager.task.interval.ms": "300",
    "log.segment.delete.delay.ms": "300",
    "leader.election.local.log.report.interval.ms": "500",
}
RETENTION_BYTES = 2_500


class Tier(NamedTuple):
    """What the seed chooses."""

    settings: dict[str, str]
    configs: dict[str, dict[str, str]]
    """By topic."""
    expires: bool
    """The short topic has a limit; otherwise somebody deletes what is old."""


def draw_tier(random: Random, brokers: int) -> Tier:
    settings = dict(SETTINGS)
    if random.random() < 0.6:
        settings["follower.fetch.last.tiered.offset.enable"] = "true"
    # A wiped replica is thin until its own disk has been cleaned for the first time.
    settings["log.retention.check.interval.ms"] = random.choice(("400", "3000"))
    settings["leader.election.eligible.local.log.ms"] = random.choice(("-1", "2000", "6000"))
    settings["leader.election.eligible.local.log.bytes"] = random.choice(("-1", "-1", "1500"))
    tiered = {
        "remote.storage.enable": "true",
        "segment.bytes": random.choice(("300", "600", "1500")),
        **random.choice(LOCAL_RETENTION),
    }
    expires = random.random() < 0.5
    short = {"retention.bytes": str(RETENTION_BYTES)} if expires else {}
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"} if brokers > 1 else {}
    return Tier(settings, {KEPT: tiered, SHORT: {**tiered, **short}, UNCLEAN: {**tiered, **unclean}}, expires)


LOCAL_RETENTION = (
    {"local.retention.bytes": "1"},
    {"local.retention.bytes": "1"},
    {"local.retention.bytes": "800"},
    {"local.retention.ms": "500"},
)
