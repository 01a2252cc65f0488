"""Sums that Spark has written and not committed: from outside it is seen in the offsets of their topic."""

from contextlib import ExitStack

from demo.plan import SUMS, SUMS_PARTITIONS
from headrace.wire.messages.offsets import ListOffsetsRequest, ListOffsetsResponse
from tests.servers.caller import LIST_OFFSETS_VERSION, Caller, latest_of
from tests.servers.cluster import HeadraceCluster

ALL, COMMITTED = 0, 1


def until_under_way(cluster: HeadraceCluster) -> int:
    """Returns how many records there are as soon as there are any, so that a whole commit is still to come."""
    found = 0
    with ExitStack() as connections:
        callers = [connections.enter_context(cluster.call(node_id)) for node_id in cluster.nodes]

        def count() -> int:
            nonlocal found
            found = sum(uncommitted(one, SUMS, SUMS_PARTITIONS) for one in callers)
            return found

        cluster.until(lambda: not count(), "all sums are committed")
        cluster.until(count, "sums are written that are not committed")
    return found


def uncommitted(caller: Caller, topic: str, partitions: int) -> int:
    """Of the partitions that the node leads: nobody else tells where they end."""
    committed, all_ = (_ends(caller, latest_of(topic, partitions), isolation) for isolation in (COMMITTED, ALL))
    return sum(all_[at] - end for at, end in committed.items() if at in all_)


def _ends(caller: Caller, request: ListOffsetsRequest, isolation: int) -> dict[int, int]:
    request.isolation_level = isolation
    told = caller.ask(request, LIST_OFFSETS_VERSION, ListOffsetsResponse).topics[0].partitions
    return {one.partition_index: one.offset for one in told if not one.error_code}
