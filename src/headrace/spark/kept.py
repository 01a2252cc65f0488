"""What a process keeps from task to task: connections that take longer to make than to use."""

from headrace.client.cluster import Cluster
from headrace.client.commit_group import CommitGroups
from headrace.client.outside import Outside
from headrace.spark.door import Door
from headrace.spark.driver_claims import DriverClaims

KEPT_MAX = 4
"""Clusters."""

METADATA_MS_MAX = 60_000
"""After that long a topic may have got more partitions."""

_groups: dict[tuple[Door, str], CommitGroups] = {}
_offers: dict[tuple[Door, str], bool] = {}
_clusters: dict[tuple[Door, str, str], "_Kept"] = {}
_claims: dict[Door, DriverClaims] = {}
"""At most one: Spark commits batch after batch of a query in one process, for as long as it is busy."""


def groups_of(door: Door, bootstrap: str) -> CommitGroups:
    """A forked process has another door, and so none of its parent's connections."""
    key = (door, bootstrap)
    if key not in _groups:
        if len(_groups) >= KEPT_MAX:
            (before, name), oldest = next(iter(_groups.items()))
            del _groups[before, name]
            if before is door:
                door.run(oldest.__aexit__(None, None, None))
        _groups[key] = door.call(lambda: CommitGroups(bootstrap, client_id="headrace-spark"))
    return _groups[key]


def offers_groups(door: Door, bootstrap: str) -> bool:
    """Whether the cluster can commit the tasks of a batch together."""
    key = (door, bootstrap)
    if key not in _offers:
        _offers[key] = door.run(groups_of(door, bootstrap).is_offered())
    return _offers[key]


def claims_of(door: Door) -> DriverClaims:
    if door not in _claims:
        _claims.clear()
        _claims[door] = door.call(DriverClaims)
    return _claims[door]


class _Kept:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.learned_ms = cluster.outside.clock.monotonic_ms()


async def cluster_of(door: Door, bootstrap: str, client_id: str) -> Cluster:
    """For the one producer that a process has at a time. On the loop of the door."""
    key = (door, bootstrap, client_id)
    if key not in _clusters:
        if len(_clusters) >= KEPT_MAX:
            await forget_cluster(*next(iter(_clusters)))
        _clusters[key] = _Kept(Cluster(bootstrap, client_id, Outside(), creates_topics=True))
    kept = _clusters[key]
    now_ms = kept.cluster.outside.clock.monotonic_ms()
    if now_ms - kept.learned_ms > METADATA_MS_MAX:
        kept.cluster.topics.clear()  # asked for anew by whoever needs one
        kept.learned_ms = now_ms
    return kept.cluster


async def forget_cluster(door: Door, bootstrap: str, client_id: str) -> None:
    """After whatever went wrong: the next producer begins with new connections."""
    kept = _clusters.pop((door, bootstrap, client_id), None)
    if kept is not None:
        await kept.cluster.close()
