"""Apache Kafka's command line tools see and move our groups, and end our transactions."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer

from tests.servers.java import java
from tests.servers.process import BrokerProcess

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
RECORDS = 30


def test_kafkas_tool_lists_describes_moves_and_deletes_groups(broker: BrokerProcess, topic: str) -> None:
    """Tgrp-9."""
    group = f"group-of-{topic}"
    _write(broker, topic)
    with _member(broker, topic, group) as consumer:
        for _ in range(RECORDS):
            message = consumer.poll(60)
            assert message is not None and message.error() is None
        consumer.commit(asynchronous=False)
        assert group in _groups(broker, "--list").split()
        described = _row(_groups(broker, "--describe", "--group", group))
        assert described[1:6] == [topic, "0", str(RECORDS), str(RECORDS), "0"]
        members = _row(_groups(broker, "--describe", "--group", group, "--members", "--verbose"))
        assert {"a-reader", f"{topic}:0"} <= set(members)
    moved = _groups(broker, "--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "12", "--execute")
    assert _row(moved) == [group, topic, "0", "12"]
    assert "successful" in _groups(broker, "--delete", "--group", group)


def test_kafkas_tool_finds_and_ends_a_transaction(broker: BrokerProcess, topic: str) -> None:
    _write(broker, topic)
    name = f"transactions-of-{topic}"
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(60)
    assert "Ongoing" in next(line for line in _transactions(broker, "list").splitlines() if line.startswith(name))
    place = ("--topic", topic, "--partition", "0")
    assert _open_offset(_transactions(broker, "describe-producers", *place)) == str(RECORDS)
    _transactions(broker, "abort", *place, "--start-offset", str(RECORDS))
    assert _open_offset(_transactions(broker, "describe-producers", *place)) == "None"


def _write(broker: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": False})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


@contextmanager
def _member(broker: BrokerProcess, topic: str, group: str) -> Iterator[Consumer]:
    settings = {"auto.offset.reset": "earliest", "client.id": "a-reader"}
    commits = {"enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, **settings, **commits})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def _groups(broker: BrokerProcess, *arguments: str) -> str:
    return _tool(GROUPS, "--bootstrap-server", broker.bootstrap, *arguments)


def _transactions(broker: BrokerProcess, *arguments: str) -> str:
    return _tool(TRANSACTIONS, "--bootstrap-server", broker.bootstrap, *arguments)


def _tool(name: str, *arguments: str) -> str:
    done = subprocess.run(java(name, *arguments, memory="128m"), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Error" not in done.stdout, done.stdout + done.stderr
    return done.stdout


def _row(table: str) -> list[str]:
    """The cells of the only line below the titles."""
    _, row = [line.split() for line in table.splitlines() if line.strip()]
    return row


def _open_offset(table: str) -> str:
    return _row(table)[-1]
