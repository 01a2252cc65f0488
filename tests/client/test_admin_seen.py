"""A topic that was made is known to whichever node is asked next."""

from headrace.client import Admin, NewTopic
from headrace.testing import Cluster


async def test_every_node_knows_a_topic_when_its_maker_is_told_of_it() -> None:
    async with Cluster(brokers=3) as cluster, Admin(cluster.bootstrap) as admin:
        for number in range(20):
            await admin.create_topics([NewTopic(f"t{number}", 3, 3)])
            for address in cluster.bootstrap.split(","):
                async with Admin(address) as asked:
                    (described,) = await asked.describe_topics([f"t{number}"])
                    assert len(described.partitions) == 3


async def test_a_node_that_is_down_keeps_nobody_from_making_topics() -> None:
    async with Cluster(brokers=3) as cluster, Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("before", 1, 3)])
        cluster.kill(2)
        await admin.create_topics([NewTopic("after", 1, 2)])
        assert "after" in await admin.list_topics()
