"""Rules of the tier, and of elections that know it, that are taken away on purpose."""

from typing import Any

from headrace.broker import replicator_logs, tier_expiry
from headrace.broker.tier import Tier, TierLog
from headrace.broker.tier_expiry import Expiry
from headrace.broker.tier_publishing import publish
from headrace.broker.tier_topics import TierTopics
from headrace.controller import duties
from headrace.controller.tier_pointer import NotPublished, Published, TierPointers
from headrace.core import election, tier_lineage
from headrace.core.tier_lineage import Verdict
from headrace.core.tier_rows import deleting, without
from headrace.core.tiering import below
from headrace.storage.from_tier import begin_from_tier

_publish = TierPointers.publish


async def nothing(*_: Any) -> None:
    pass


def all_is_remote(_tier: Tier, partition: Any) -> int:
    """Local retention deletes what nobody has copied yet."""
    end: int = partition.log.log_end_offset
    return end - 1


def everything_is_inside(*_: Any) -> Verdict:
    """Segments of parted histories are served."""
    return Verdict.INSIDE


async def doubt_is_refusal(pointers: TierPointers, *args: Any) -> Published | NotPublished:
    """What may be in force, or come into force yet, is deleted."""
    outcome = await _publish(pointers, *args)
    return NotPublished.NOT_LEADER if outcome is NotPublished.IN_DOUBT else outcome


def starts_on_disk(_remote: Any, log_start_offset: int, local_log_start: int) -> int:
    """A new leader takes where its disk begins for where the log does."""
    return max(log_start_offset, local_log_start)


async def deletes_first(expiry: Expiry, tier_log: TierLog) -> None:
    """Objects go before it is told that the log begins behind them."""
    manifest, start = tier_log.manifest, expiry._log_start(tier_log)
    assert manifest is not None
    doomed = below(manifest.rows, start)
    for row in doomed:
        await expiry._tier.store.delete(expiry._tier.segment_key(tier_log.partition, row))
    if doomed:
        ids = {row.id for row in doomed}
        await publish(expiry._tier, tier_log, deleting(manifest, ids, start, tier_log.leader_epoch))
        expiry._begin_at(tier_log, start)
        assert tier_log.manifest is not None
        await publish(expiry._tier, tier_log, without(tier_log.manifest, ids, tier_log.leader_epoch))


def begins_without_epochs(
    log: Any, offset: int, log_start: int, _epochs: Any, snapshot: bytes, *, since_ms: int, now_ms: int
) -> None:
    """A follower from the tier does not know in which epochs the records before it were written."""
    begin_from_tier(log, offset, log_start, (), snapshot, since_ms=since_ms, now_ms=now_ms)


def only_fat_ones(replicas: tuple[int, ...], thin: Any) -> tuple[int, ...]:
    """Thin replicas are not elected, though nobody else can lead."""
    return tuple(replica for replica in replicas if replica not in thin)


def thin_or_not(replicas: tuple[int, ...], _thin: Any) -> tuple[int, ...]:
    """Thin replicas are elected though others could lead."""
    return replicas


def nobody_is_thin(*_: Any) -> frozenset[int]:
    """Leadership goes back to a first replica that has little on its disk."""
    return frozenset()


TIER_RULES: dict[str, tuple[Any, str, Any, int, frozenset[str]]] = {
    "tier: local deletion": (Tier, "highest_remote", all_is_remote, 4, frozenset({"hole"})),
    "tier: lineage": (tier_lineage, "verdict", everything_is_inside, 326, frozenset({"divergent segment served"})),
    "tier: fence": (TierPointers, "_leads", lambda *_: True, 7, frozenset({"deposed leader"})),
    "tier: in doubt": (TierPointers, "publish", doubt_is_refusal, 41, frozenset({"dangling reference"})),
    "tier: log start": (
        tier_expiry,
        "log_start_without_hole",
        starts_on_disk,
        1,
        frozenset({"records gone too early"}),
    ),
    "tier: sweep": (Expiry, "sweep", nothing, 3, frozenset({"orphan"})),
    "tier: deleted topics": (TierTopics, "look", nothing, 1, frozenset({"orphan"})),
    "tier: order of expiry": (Expiry, "expire", deletes_first, 1, frozenset({"dangling reference", "hole"})),
    "tier: epochs of followers": (replicator_logs, "begin_from_tier", begins_without_epochs, 3, frozenset({"hole"})),
    "1303: filter": (election, "order", only_fat_ones, 178, frozenset({"without a leader"})),
    "1303: order": (election, "order", thin_or_not, 86, frozenset({"wrong leader"})),
    "1303: going back": (duties, "thin_of", nobody_is_thin, 86, frozenset({"wrong leader"})),
}
"""What is replaced, its name, by what, a seed that finds it, and what it shows itself by."""
