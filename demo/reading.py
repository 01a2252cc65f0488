"""After everything: topics, replicas and records of the brokers are read back, from the first offset to the last."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from crc32c import crc32c

from demo.evidence import Replica, Stored, Summed
from demo.orders import Sum, Window, number_of
from demo.plan import ORDERS, PARTITIONS, SUMS
from headrace.client import Consumer, ConsumerRecord
from headrace.client.consumer import Isolation
from headrace.wire.batch import headers
from tests.servers.cluster import HeadraceCluster

NOT_AN_ORDER = -1
READ_S_MAX = 120.0
"""A partition that nobody leads would be waited for without an end."""
READ_COMMITTED: Final = "read_committed"
READ_ALL: Final = "read_uncommitted"
BUG = "Traceback"


def stored_orders(bootstrap: str) -> list[Stored]:
    """From the tier and from disks, as any consumer reads them."""
    return [Stored(one.partition, one.offset, _number(one.value or b"")) for one in _read(bootstrap, ORDERS)]


def stored_sums(bootstrap: str, s_of: Callable[[float], float]) -> tuple[list[Summed], int]:
    """Those of transactions that were committed, and how many others there are."""
    committed = _read(bootstrap, SUMS)
    return [_summed(one, s_of) for one in committed], len(_read(bootstrap, SUMS, READ_ALL)) - len(committed)


def _summed(record: ConsumerRecord, s_of: Callable[[float], float]) -> Summed:
    told = json.loads(record.value or b"")
    window, added = Window(told["from"], told["region"]), Sum(told["orders"], told["cents"])
    return Summed(s_of(record.timestamp), window, added)


def _number(value: bytes) -> int:
    try:
        return number_of(value)
    except (ValueError, KeyError, TypeError):
        return NOT_AN_ORDER


def _read(bootstrap: str, topic: str, isolation: Isolation = READ_COMMITTED) -> list[ConsumerRecord]:
    return asyncio.run(asyncio.wait_for(_read_all(bootstrap, topic, isolation), READ_S_MAX))


async def _read_all(bootstrap: str, topic: str, isolation: Isolation) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    async with Consumer(bootstrap, isolation=isolation) as consumer:
        partitions = await consumer.partitions_of(topic)
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        left = {one for one, end in ends.items() if end > 0}
        while left:
            found += await consumer.poll(1_000, 5_000)
            left = {one for one in left if await consumer.position(one) < ends[one]}
    return found


# On the disks, when the nodes have stopped.


def replicas_on_disk(cluster: HeadraceCluster) -> list[Replica]:
    return [
        Replica(partition, node_id, _batches(node.partitions / f"{ORDERS}-{partition}"))
        for partition in range(PARTITIONS)
        for node_id, node in cluster.nodes.items()
    ]


def _batches(directory: Path) -> dict[int, int]:
    """All bytes of a batch count, its offset and its leader epoch too."""
    found: dict[int, int] = {}
    for path in sorted(directory.glob("*.log")):
        content = path.read_bytes()
        for position, header in headers(content):
            found[header.base_offset] = crc32c(content[position : position + header.size])
    return found


def bad_ends(cluster: HeadraceCluster) -> list[str]:
    """They are told to stop. One that is dead already has not ended well either."""
    ends = zip(cluster.nodes.values(), cluster.stop(), strict=True)
    return [f"{node.name} ended with {status}" for node, status in ends if status]


def bugs_of(cluster: HeadraceCluster) -> list[str]:
    return [f"{node.name}: {error}" for node in cluster.nodes.values() for error in errors_in(node.log_text())]


def starts_of(cluster: HeadraceCluster) -> dict[int, int]:
    """How often each says that it began to serve."""
    return {node_id: node.log_text().count(f"{node.name} serves ") for node_id, node in cluster.nodes.items()}


def errors_in(log: str) -> list[str]:
    """What each traceback ends with: the first line below it that is not indented."""
    return [
        next((line for line in below.splitlines()[1:] if line.strip() and not line.startswith(" ")), "it is cut off")
        for below in log.split(BUG)[1:]
    ]
