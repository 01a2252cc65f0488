"""How large records are, by brokers that tell it, and by others."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client.cluster import Cluster as ClientCluster
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.spark.log_view import view_of
from headrace.spark.options import Connection
from headrace.spark.record_sizes import Local
from headrace.testing import Cluster
from headrace.wire.messages.log_dirs import DescribeLogDirsRequest
from tests.spark.filling import fill, make_topic
from tests.spark.tiering import SETTINGS, fill_slowly, make_tiered, until_cold

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(SETTINGS) as running:
        yield running


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not look at the disks of brokers."""
    ask = ClientCluster.ask

    async def refuses(self: ClientCluster, message: Any, *others: Any) -> Any:
        if isinstance(message, DescribeLogDirsRequest):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
        return await ask(self, message, *others)

    monkeypatch.setattr(ClientCluster, "ask", refuses)


def test_records_are_as_large_as_what_lies_on_the_disk_by_their_number(cluster: Cluster) -> None:
    make_topic(cluster.bootstrap, "t")
    fill(cluster.bootstrap, "t", [b"x" * 1_000] * 200)
    assert 1_000 < view_of(Connection(cluster.bootstrap)).bytes_per_record([T0])[T0] < 1_100


@pytest.mark.usefixtures("refused")
def test_where_disks_tell_nothing_the_tier_does(cluster: Cluster) -> None:
    make_tiered(cluster.bootstrap, "t")
    fill_slowly(cluster.bootstrap, "t", 0, 2_000)
    until_cold(cluster.bootstrap, "t")
    assert 5 < view_of(Connection(cluster.bootstrap)).bytes_per_record([T0])[T0] < 30


@pytest.mark.usefixtures("refused")
def test_where_nobody_tells_it_nothing_is_known(cluster: Cluster) -> None:
    make_topic(cluster.bootstrap, "t")
    fill(cluster.bootstrap, "t", [b"x"] * 20)
    assert view_of(Connection(cluster.bootstrap)).bytes_per_record([T0]) == {}


def test_a_leader_that_is_silent_is_not_waited_for(cluster: Cluster) -> None:
    """What was told last holds; before that, nothing is known."""
    make_topic(cluster.bootstrap, "t", 2)
    fill(cluster.bootstrap, "t", [b"x" * 1_000] * 200)
    view = view_of(Connection(cluster.bootstrap))
    (size,) = view.bytes_per_record([T0]).values()
    cluster.pause(1)
    began = time.monotonic()
    asking = view._sizes.ask({T0: Local(0, 200), TopicPartition("t", 1): Local(0, 200)})
    assert view._door.run(asking) == {T0: size}
    assert time.monotonic() - began < 10
    cluster.resume(1)
