"""What nodes know of themselves, asked as `headrace cluster` and `headrace tier` ask it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from demo.plan import ORDERS
from headrace.cli.tier import gather, tiered
from headrace.cli.tier_verify import Checked, check
from headrace.client import Admin
from headrace.errors import KafkaError
from tests.servers.cluster import HeadraceCluster

T = TypeVar("T")
Document = dict[str, Any]
ASK_MS_MAX = 3_000


def why(cluster: HeadraceCluster, partition: int) -> Document:
    """`headrace cluster why orders PARTITION`. LookupError: nobody decides at present."""

    async def ask(admin: Admin) -> Document:
        controller = (await admin.describe_cluster()).controller_id
        if controller < 0:
            raise LookupError("no node is the controller at present")
        told: list[Document] = (await admin.inspect("why", controller, [ORDERS, str(partition)]))["why"]
        return told[0]

    return _asked(cluster, ask)


def why_patiently(cluster: HeadraceCluster, partition: int) -> Document:
    """Also while nobody decides, or a node is about to answer again."""
    found: list[Document] = []

    def is_told() -> bool:
        with suppress(KafkaError, LookupError):
            found.append(why(cluster, partition))
        return bool(found)

    cluster.until(is_told, f"the controller tells who leads {ORDERS}-{partition}, and why")
    return found[-1]


def failed(cluster: HeadraceCluster, node_id: int) -> list[Document]:
    """`headrace cluster failed`, of that node."""

    async def ask(admin: Admin) -> list[Document]:
        told: list[Document] = (await admin.inspect("failed", node_id))["failed"]
        return told

    return _asked(cluster, ask)


def copied(cluster: HeadraceCluster, leader: int, partition: int, node_id: int) -> int:
    """How far a follower is, as its leader knows it; -1 if it does not."""

    async def ask(admin: Admin) -> int:
        rows: list[Document] = (await admin.inspect("replicas", leader, [ORDERS]))["replicas"]
        found = [(row["log_end"], one["lag"]) for row in rows if row["partition"] == partition
                 for one in row["followers"] if one["id"] == node_id]  # fmt: skip
        return int(found[0][0] - found[0][1]) if found and found[0][1] is not None else -1

    return _asked(cluster, ask)


def tier_status(cluster: HeadraceCluster) -> list[Document]:
    """`headrace tier status`: what the leaders of the topic know of its remote part."""
    return _asked(cluster, lambda admin: gather(admin, [ORDERS]))


def verified_tier(cluster: HeadraceCluster) -> Checked:
    """`headrace tier verify orders`."""

    async def ask(admin: Admin) -> Checked:
        expected = await tiered(admin, [ORDERS])
        return await check(await gather(admin, [ORDERS]), None, lambda: gather(admin, [ORDERS]), expected)

    return _asked(cluster, ask)


def _asked(cluster: HeadraceCluster, ask: Callable[[Admin], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Admin(cluster.bootstrap, timeout_ms=ASK_MS_MAX) as admin:
            return await ask(admin)

    return asyncio.run(run())
