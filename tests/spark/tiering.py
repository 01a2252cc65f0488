"""Brokers in this process with a tier, and a topic of which most is in the tier alone."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from headrace.client import Admin, NewTopic
from headrace.testing import Cluster
from tests.spark.filling import fill, numbers

WAIT_S_MAX = 60.0
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.storage.url": "/objects",
    "remote.log.manager.task.interval.ms": "50",
    "log.retention.check.interval.ms": "50",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}
TOPIC_SETTINGS = {
    "remote.storage.enable": "true",
    "segment.bytes": "2000",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}
AT_ONCE = 50
"""Records of a call, and so of a batch at most: a few batches are a segment."""


def make_tiered(bootstrap: str, topic: str, partitions: int = 1, copies: int = 1, **settings: str) -> None:
    configs = {**TOPIC_SETTINGS, **{key.replace("_", "."): value for key, value in settings.items()}}

    async def made() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, partitions, copies, configs=configs)])

    asyncio.run(made())


def fill_slowly(
    bootstrap: str, topic: str, begin: int, end: int, partitions: int = 1, compression: str = "none"
) -> None:
    for at in range(begin, end, AT_ONCE):
        fill(bootstrap, topic, numbers(at, min(end, at + AT_ONCE)), partitions=partitions, compression=compression)


def told(bootstrap: str, topic: str, node_id: int = 1) -> list[dict[str, Any]]:
    """What a node says of the partitions of the topic that it leads."""

    async def asked() -> list[dict[str, Any]]:
        async with Admin(bootstrap) as admin:
            found: list[dict[str, Any]] = (await admin.inspect("tier", node_id, [topic]))["tier"]
            return found

    return asyncio.run(asked())


def until(holds: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(int(WAIT_S_MAX / 0.05)):
        if holds():
            return
        waited.wait(0.05)
    raise TimeoutError("it does not come to that")


def until_cold(bootstrap: str, topic: str, node_id: int = 1) -> list[dict[str, Any]]:
    """Until all but the active segments are in the tier alone."""

    def is_cold() -> bool:
        found = told(bootstrap, topic, node_id)
        return bool(found) and all(
            one.get("lag_segments") == 0 and one["local_log_start"] == one["highest_remote"] + 1 > 0 for one in found
        )

    until(is_cold)
    return told(bootstrap, topic, node_id)


def stop(cluster: Cluster, brokers: int = 1) -> None:
    """As SIGSTOP does."""
    for broker in range(1, brokers + 1):
        cluster.pause(broker)
