"""Incremental fetch sessions as two independent clients keep them: partitions come and go in one session, under load,
and neither side ever loses track of the other."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from tests.interop.churn import START_OFFSETS, Churn
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.java import Java
from tests.interop.clients.pure_python import KafkaPython
from tests.interop.clients.shape import GIVE_UP_S
from tests.servers.process import BrokerProcess

PARTITIONS = 200
ROUNDS = 150
SEED = 227

OPENED = "created a new incremental fetch session"
CONTINUED = "sent an incremental fetch response"
# What either client says when the broker answers 70 or 71, or leaves partitions out of a full response or puts
# unknown ones into an incremental one.
TROUBLE = ("unable to process the fetch request", "sent an invalid")


class Templates(logging.Handler):
    """Keeps what was logged without its arguments, which here are sets of hundreds of partitions."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.msg if record.levelno < logging.INFO else record.getMessage())


@contextmanager
def kafka_python_log() -> Iterator[Templates]:
    logger, templates = logging.getLogger("kafka.consumer.fetcher"), Templates()
    before = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(templates)
    try:
        yield templates
    finally:
        logger.removeHandler(templates)
        logger.setLevel(before[0])
        logger.propagate = before[1]


@contextmanager
def appends_to_every_partition(confluent: Confluent, topic: str) -> Iterator[None]:
    """Until the block ends, one record after the other to partitions by chance, slowly enough to let a reader end."""
    confluent.create_topic(topic, PARTITIONS, {})
    producer, random, over = confluent.producer(**{"linger.ms": 0}), Random(SEED), threading.Event()
    for partition in range(PARTITIONS):
        for _ in range(START_OFFSETS):
            producer.produce(topic, b"x" * 100, partition=partition)
    assert producer.flush(GIVE_UP_S) == 0

    def append() -> None:
        while not over.wait(0.002):
            producer.produce(topic, b"x" * 100, partition=random.randrange(PARTITIONS))
            producer.poll(0)

    appender = threading.Thread(target=append)
    appender.start()
    try:
        yield
    finally:
        over.set()
        appender.join()
    assert producer.flush(GIVE_UP_S) == 0


def assert_sessions_held(lines: list[str]) -> None:
    trouble = [line for line in lines if any(words in line for words in TROUBLE)]
    assert not trouble, trouble[:3]
    assert any(OPENED in line for line in lines), "no session was opened"
    assert sum(CONTINUED in line for line in lines) > ROUNDS // 3, "the session was hardly used"


def test_sessions_of_kafka_python_survive_churn(confluent: Confluent, broker: BrokerProcess, topic: str) -> None:
    with kafka_python_log() as log, appends_to_every_partition(confluent, topic):
        consumer = KafkaPython(broker.bootstrap).consumer(fetch_max_wait_ms=50)
        read = Churn(consumer, topic, PARTITIONS, Random(SEED)).run(ROUNDS)
        consumer.close()
    assert read >= PARTITIONS * START_OFFSETS
    assert_sessions_held(log.lines)


def test_sessions_of_the_java_consumer_survive_churn(
    client: Callable[[str], Any], confluent: Confluent, topic: str
) -> None:
    java: Java = client("java")
    written_before = java.program.log_path.stat().st_size
    with appends_to_every_partition(confluent, topic):
        read = java.churn(topic, PARTITIONS, ROUNDS, SEED)
    assert read >= PARTITIONS * START_OFFSETS
    log = java.program.log_path.read_text()[written_before:]
    # Once its consumer closes the session, a fetch still under way looks wrong to the client, on any broker.
    assert_sessions_held(log.partition("epoch=FINAL")[0].splitlines())
