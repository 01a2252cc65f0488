"""Consumer groups of every client library on three nodes: members join, leave, die and hang, and so does a broker."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.interop.membership import groups_of, until
from tests.servers.choice import chosen
from tests.servers.cluster import running_cluster

PARTITIONS = 6
KINDS = {
    "librdkafka": ["confluent"],
    "librdkafka-cooperative": ["confluent-cooperative"],
    "kafka-python": ["kafka-python"],
    "aiokafka": ["aiokafka"],
    "kafkajs": ["kafkajs"],
    "java": ["java-cooperative"],
    "mixed": ["confluent", "java", "kafka-python", "aiokafka"],
}

pytestmark = pytest.mark.skipif(chosen() != "headrace", reason="it kills nodes of Headrace that it starts by itself")


class Numbers:
    """Written one after another, some each moment, until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2})
        self._topic = topic
        self._end = threading.Event()
        self.written = 0
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._end.wait(0.1):
            for _ in range(20):
                self._producer.produce(self._topic, str(self.written), partition=self.written % PARTITIONS)
                self.written += 1
            self._producer.poll(0)
        assert self._producer.flush(120) == 0

    def stop(self) -> None:
        self._end.set()
        self._thread.join()


@contextmanager
def writing(bootstrap: str, topic: str) -> Iterator[Numbers]:
    numbers = Numbers(bootstrap, topic)
    try:
        yield numbers
    finally:
        numbers.stop()


@pytest.mark.timeout(600)
def test_members_of_every_client_come_and_go_and_every_record_is_read(tmp_path: Path) -> None:
    """Tgrp-5 among others; all groups at the same time, since most of it is waiting for sessions to end."""
    topic = "numbers"
    with running_cluster(tmp_path / "nodes") as cluster:
        cluster.create_topic(topic, PARTITIONS, configs={"min.insync.replicas": "2"})
        bootstrap = cluster.bootstrap
        with groups_of(KINDS, bootstrap, topic, tmp_path) as groups, writing(bootstrap, topic) as numbers:
            for group in groups:
                group.add(), group.add()
            until(groups, lambda group: group.shares(2, PARTITIONS), "two members have all partitions")
            for group in groups:
                group.add()
            until(groups, lambda group: group.shares(3, PARTITIONS), "a third member has its share")

            for group in groups:
                group.members[0].kill()
                group.members[1].pause()
            until(groups, lambda group: len(group.members[2].assigned) == PARTITIONS, "the one that is left has all")
            for group in groups:
                group.members[1].resume()
            until(groups, lambda group: group.shares(2, PARTITIONS), "one that hung has its share again")

            victim = cluster.leader_of("__consumer_offsets")
            cluster.nodes[victim].kill()
            cluster.withdraw(victim)
            for group in groups:
                group.members[2].leave()
                group.add()
            until(groups, lambda group: group.shares(2, PARTITIONS), "members go on at other coordinators")
            cluster.nodes[victim].start()

            numbers.stop()
            everything = set(range(numbers.written))
            until(groups, lambda group: group.read == everything, f"all of {len(everything)} records are read")
