"""Transactions of three client libraries while their coordinators are killed (Ttxn-9)."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, TopicPartition

from tests.interop.transactors.plan import GROUP, PARTITIONS
from tests.interop.transactors.running import WAIT_S_MAX, Transactor, until
from tests.servers.choice import chosen
from tests.servers.cluster import HeadraceCluster, running_cluster
from tests.servers.java import java

TOPIC = "ledger"
TRANSACTIONS = 150
STATE_TOPIC = "__transaction_state"
STATE_PARTITIONS = 50

pytestmark = pytest.mark.skipif(chosen() != "headrace", reason="it kills nodes of Headrace that it starts by itself")


@contextmanager
def transactors(bootstrap: str, scratch: Path) -> Iterator[list[Transactor]]:
    programs = {
        "librdkafka": [sys.executable, "-m", "tests.interop.transactors.confluent"],
        "aiokafka": [sys.executable, "-m", "tests.interop.transactors.asynchronous"],
        "java": java("Transactor"),
    }
    running = [
        Transactor(name, [*command, bootstrap, name, TOPIC, str(TRANSACTIONS)], scratch / f"{name}.log")
        for name, command in programs.items()
    ]
    try:
        yield running
    finally:
        for transactor in running:
            transactor.close()


def coordinator_of(cluster: HeadraceCluster, transactional_id: str) -> int:
    return cluster.leader_of(STATE_TOPIC, abs(java_hash(transactional_id)) % STATE_PARTITIONS)


def java_hash(text: str) -> int:
    number = 0
    for character in text:
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


class Reader:
    """Reads what is committed, from the beginning on, while it is being written."""

    def __init__(self, bootstrap: str) -> None:
        self._found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        settings = {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"}
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        idle = 0
        while not self._end.is_set() or idle < 3:
            messages = self._consumer.consume(1_000, timeout=0.5)
            idle = 0 if messages else idle + 1
            for message in messages:
                if message.error() is None:  # brokers die; records tell what was read
                    self._found[message.partition() or 0].append(message.value() or b"")

    @property
    def count(self) -> int:
        return sum(map(len, self._found.values()))

    def close(self) -> list[bytes]:
        """Also what comes in the next moments: there should be nothing more."""
        self._end.set()
        self._thread.join()
        self._consumer.close()
        return [value for partition in range(PARTITIONS) for value in self._found[partition]]


async def read_by_aiokafka(bootstrap: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    await consumer.start()
    try:
        consumer.assign([AioPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        await consumer.seek_to_beginning()
        found: list[bytes] = []
        async with asyncio.timeout(WAIT_S_MAX):
            while len(found) < count:
                polled = await consumer.getmany(timeout_ms=500)
                found += [record.value for records in polled.values() for record in records]
        return found
    finally:
        await consumer.stop()


def committed_offset(bootstrap: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=60)
    consumer.close()
    return int(found.offset)


@pytest.mark.timeout(600)
def test_transactions_of_every_client_are_whole_or_not_at_all_while_coordinators_die(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "nodes") as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, configs={"min.insync.replicas": "2"})
        reader = Reader(cluster.bootstrap)
        with transactors(cluster.bootstrap, tmp_path) as running:
            for tenth, transactor in enumerate(running, 1):
                begun = tenth * TRANSACTIONS // 6
                until(partial(transactor.has_done, begun), transactor.log_tail)
                victim = coordinator_of(cluster, transactor.transactional_id)
                cluster.nodes[victim].kill()
                cluster.withdraw(victim)
                cluster.nodes[victim].start()
            for transactor in running:
                until(transactor.has_ended_well, transactor.log_tail)
        committed = [value for each in running for value in each.values(each.committed)]
        for each in running:
            assert {outcome.number for outcome in each.committed} == {n for n in range(TRANSACTIONS) if n % 3 != 2}
        until(lambda: reader.count >= len(committed), lambda: f"{reader.count} of {len(committed)} are read")
        read = reader.close()
        assert sorted(read) == sorted(committed)
        assert sorted(asyncio.run(read_by_aiokafka(cluster.bootstrap, len(committed)))) == sorted(committed)
        for each in running:
            own = [value for value in read if value.startswith(each.transactional_id.encode() + b" ")]
            assert own == each.values(each.committed), f"{each.transactional_id}: in order within each partition"
            last = max(outcome.number for outcome in each.committed)
            group = GROUP + each.transactional_id
            assert committed_offset(cluster.bootstrap, group) == last + 1, "that of the last committed transaction"
