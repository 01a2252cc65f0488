"""What a process keeps from task to task: connections that take longer to make than to use."""

from headrace.client.commit_group import CommitGroups
from headrace.spark.door import Door
from headrace.spark.driver_claims import DriverClaims

KEPT_MAX = 4
"""Clusters."""

_groups: dict[tuple[Door, str], CommitGroups] = {}
_offers: dict[tuple[Door, str], bool] = {}
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
