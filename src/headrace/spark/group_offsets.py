"""Offsets of a query as those of a group, so that tools which watch groups see it."""

from headrace.client.cluster import Cluster
from headrace.client.group_admin import GroupAdmin
from headrace.client.outside import Outside
from headrace.spark.door import door
from headrace.spark.offsets import ByPartition

COMMIT_MS_MAX = 10_000


def commit_group_offsets(bootstrap: str, group: str, offsets: ByPartition) -> None:
    """Of a group without members. KafkaError when that is not done within COMMIT_MS_MAX."""
    if offsets:
        door().run(_commit(bootstrap, group, offsets))


async def _commit(bootstrap: str, group: str, offsets: ByPartition) -> None:
    cluster = Cluster(bootstrap, "headrace-spark", Outside(), creates_topics=False)
    try:
        await GroupAdmin(cluster, COMMIT_MS_MAX).alter_offsets(group, offsets)
    finally:
        await cluster.close()
