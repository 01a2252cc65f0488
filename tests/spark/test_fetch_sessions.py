"""Tasks of one process go on in the fetch session of the consumer that it keeps."""

from collections.abc import Generator, Iterator

import pytest

from headrace.spark import fetching
from headrace.testing import Cluster
from tests.spark.fetches import Fetches, fetches
from tests.spark.filling import fill, make_topic, numbers
from tests.spark.test_reading import batch, stream, values_of

__all__ = ["fetches"]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        make_topic(running.bootstrap, "t", 2)
        make_topic(running.bootstrap, "u", 2)
        yield running


def test_micro_batches_go_on_in_one_session(cluster: Cluster, fetches: Fetches) -> None:
    fill(cluster.bootstrap, "t", numbers(0, 1_000), partitions=2)
    reader = stream(cluster, maxOffsetsPerTrigger="50")
    at = reader.initialOffset()
    found, tasks = [], 0
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        pieces = reader.partitions(at, end)
        found += values_of(reader, pieces)
        at, tasks = end, tasks + len(pieces)
    assert sorted(found, key=int) == numbers(0, 1_000)
    assert tasks == 40
    assert fetches.full == 1
    assert fetches.incremental >= tasks - 1


def test_tasks_of_one_partition_cut_into_many_and_of_two_topics_do_so_too(cluster: Cluster, fetches: Fetches) -> None:
    for topic in "tu":
        fill(cluster.bootstrap, topic, numbers(0, 500), partitions=2)
    reader = batch(cluster, subscribe="t,u", maxRecordsPerPartition="60")
    pieces = reader.partitions()
    assert len(pieces) == 20
    assert values_of(reader, pieces) == sorted(2 * numbers(0, 500), key=int)
    assert fetches.full == 1
    assert fetches.incremental >= len(pieces) - 1


def test_a_task_that_failed_leaves_its_session_and_the_next_one_opens_another(
    cluster: Cluster, fetches: Fetches
) -> None:
    """Nobody knows what is on its way to it."""
    fill(cluster.bootstrap, "t", numbers(0, 100), partitions=2)
    reader = batch(cluster)
    first, second = reader.partitions()
    rows = reader.read(first)
    assert isinstance(rows, Generator)
    next(rows)
    with pytest.raises(ZeroDivisionError):
        rows.throw(ZeroDivisionError())
    assert not [key for key in fetching._idle if key[1].bootstrap == cluster.bootstrap]
    assert values_of(reader, [second]) == numbers(1, 101)[::2]
    assert fetches.full == 3, "two were opened, and one was closed"
