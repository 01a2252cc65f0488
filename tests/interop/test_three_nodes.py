"""Each client library on three nodes, one of which dies while it is at work."""

import gc
import logging
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interop.clients.asynchronous import AioKafka
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.java import Java
from tests.interop.clients.kcat import Kcat
from tests.interop.clients.node import KafkaJs
from tests.interop.clients.pure_python import KafkaPython
from tests.interop.clients.shape import Consumed
from tests.interop.conftest import make_client
from tests.servers.choice import chosen
from tests.servers.cluster import HeadraceCluster, running_cluster

PARTITIONS = 3
RECORDS = 1_000
NAMES = [kind.name for kind in (Confluent, KafkaPython, AioKafka, Kcat, KafkaJs, Java)]

pytestmark = pytest.mark.skipif(chosen() != "headrace", reason="it looks into the files of three nodes of Headrace")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceCluster]:
    with running_cluster(tmp_path_factory.mktemp("three")) as cluster:
        yield cluster


def create(client: Any, cluster: HeadraceCluster, topic: str) -> None:
    """By the client itself, if it can."""
    creator = client if hasattr(client, "create_topic") else Confluent(cluster.bootstrap)
    creator.create_topic(topic, PARTITIONS, {"min.insync.replicas": "2"}, 3)
    cluster.until_whole(topic)


def consume(client: Any, cluster: HeadraceCluster, topic: str, count: int) -> list[Consumed]:
    reader = client if hasattr(client, "consume") else Confluent(cluster.bootstrap)
    records: list[Consumed] = reader.consume(topic, PARTITIONS, count)
    return records


# kafka-python does not close the sockets with which it tried to reach a node that is down.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_client_works_with_three_copies_and_goes_on_when_a_leader_dies(
    name: str, cluster: HeadraceCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "kafka")  # what it logs would keep its sockets
    topic = f"topic-{uuid.uuid4().hex[:12]}"
    with ExitStack() as programs:
        client = make_client(name, cluster.bootstrap, tmp_path, programs)
        create(client, cluster, topic)
        sent = [b"%08d" % number for number in range(2 * RECORDS)]
        client.produce(topic, PARTITIONS, sent[:RECORDS], "none", idempotent=True)
        victim = cluster.leader_of(topic)
        cluster.nodes[victim].kill()
        cluster.withdraw(victim)
        try:
            client.produce(topic, PARTITIONS, sent[RECORDS:], "none", idempotent=True)
            read = consume(client, cluster, topic, len(sent))
        finally:
            cluster.nodes[victim].start()
    del client
    gc.collect()
    assert sorted(record.value for record in read) == sent
    for partition in range(PARTITIONS):
        numbers = [int(record.value) for record in read if record.partition == partition]
        assert numbers == sorted(numbers)
    cluster.until_whole(topic)
    cluster.until_equal(topic, PARTITIONS)
