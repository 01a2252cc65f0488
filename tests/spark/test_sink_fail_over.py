"""The sink while leaders and coordinators die."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client import Admin, NewTopic
from headrace.testing import Cluster
from tests.spark.sink_stage import SETTINGS, Query, Spark, batches, readable, spark, wrote
from tests.spark.test_fail_over import QUICK, kill, leader

__all__ = ["spark"]

PARTS = 4


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster({**QUICK, **SETTINGS}, brokers=3) as running:

        async def made() -> None:
            async with Admin(running.bootstrap) as admin:
                await admin.create_topics([NewTopic("t", 1, 3)])

        asyncio.run(made())
        yield running


def test_a_task_writes_on_through_a_dying_leader_and_its_batch_is_there_once(cluster: Cluster, spark: Spark) -> None:
    """Whoever leads the topic coordinates transactions too, now and then."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "t", "checkpointLocation": "/c"}
    query = Query(spark, "run1", given)
    query.commit(query.batch(0), 0)
    killing = threading.Thread(target=lambda: kill(cluster, first))
    first = leader(cluster)

    def rows() -> Iterator[Any]:
        for part in range(PARTS):
            if part == 1:
                killing.start()
            if part == PARTS - 1:
                killing.join()
            yield from batches([b"1.%d" % part])

    query.task(1, 5)  # so that Spark tells of this batch
    message = wrote(query.sink().write(rows()))
    query.commit([message], 1)
    query.commit([message], 1)
    assert readable(cluster.bootstrap) == [b"0.0 run1", b"0.1 run1", *[b"1.%d" % part for part in range(PARTS)]]
