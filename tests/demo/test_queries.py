"""What the demo knows of Spark's micro-batches from outside: by the checkpoint, and by the topic that they write."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.plan import SUMS, SUMS_PARTITIONS, SUMS_SETTINGS
from demo.queries import unfinished_batch
from demo.reading import stored_sums
from demo.uncommitted import uncommitted
from headrace.client import Producer
from tests.servers.cluster import HeadraceCluster, running_cluster

LONG_AGO_MS = 1_000
VALUE = b'{"from": 1767225600, "region": "east", "orders": 2, "cents": 300}'


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HeadraceCluster]:
    with running_cluster(tmp_path / "node", size=1) as cluster:
        cluster.create_topic(SUMS, SUMS_PARTITIONS, copies=1, configs=SUMS_SETTINGS)
        yield cluster


def test_a_batch_that_was_begun_and_not_finished_is_known_by_the_checkpoint(tmp_path: Path) -> None:
    assert unfinished_batch(tmp_path) == -1
    for kind, names in (("offsets", ("9", "10", ".11.tmp")), ("commits", ("9",))):
        (tmp_path / kind).mkdir()
        for name in names:
            (tmp_path / kind / name).touch()
    assert unfinished_batch(tmp_path) == 10
    (tmp_path / "commits" / "10").touch()
    assert unfinished_batch(tmp_path) == -1


def test_sums_are_uncommitted_until_their_transaction_ends_and_given_up_when_it_is_aborted(
    node: HeadraceCluster,
) -> None:
    assert count(node) == 0
    asyncio.run(write_and_abort(node))
    node.until(lambda: not count(node), "nothing is under way")
    (kept,), given_up = stored_sums(node.bootstrap, lambda wall_ms: wall_ms / 1000)
    assert kept.told == (2, 300) and kept.window == (1_767_225_600, "east")
    assert given_up == 2


def test_when_a_sum_was_written_is_told_by_the_broker(node: HeadraceCluster) -> None:
    begun_s = int(time.time() * 1000) / 1000
    asyncio.run(write_and_abort(node))
    ((at_s, _, _),), _ = stored_sums(node.bootstrap, lambda wall_ms: wall_ms / 1000)
    assert begun_s <= at_s <= time.time()


def count(node: HeadraceCluster) -> int:
    with node.call(1) as caller:
        return uncommitted(caller, SUMS, SUMS_PARTITIONS)


async def write_and_abort(node: HeadraceCluster) -> None:
    async with Producer(node.bootstrap, transactional_id="sink") as producer:
        await producer.begin()
        await producer.send(SUMS, VALUE, partition=0, timestamp_ms=LONG_AGO_MS)
        assert count(node) == 1
        await producer.commit()
        await producer.begin()
        for partition in range(SUMS_PARTITIONS):
            await producer.send(SUMS, VALUE, partition=partition)
        assert count(node) >= SUMS_PARTITIONS  # the end of the one before may be about to be written
        await producer.abort()
