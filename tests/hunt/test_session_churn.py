"""T227-13: three stock consumers through churn of their partitions, for as long as the hunt lasts."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.hunt.budget import rounds
from tests.hunt.librdkafka_churn import churn as librdkafka_churn
from tests.interop.churn import START_OFFSETS, Churn
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.java import Java
from tests.interop.clients.pure_python import KafkaPython
from tests.interop.test_fetch_sessions import (
    CONTINUED,
    OPENED,
    PARTITIONS,
    ROUNDS,
    TROUBLE,
    appends_to_every_partition,
    kafka_python_log,
)
from tests.servers.choice import running_broker


class Sessions:
    """Of all three clients on one topic after the other: what they read, and how often a session went on."""

    def __init__(self, bootstrap: str, java: Java) -> None:
        self.confluent = Confluent(bootstrap)
        self.kafka_python = KafkaPython(bootstrap)
        self.java = java
        self.read = self.continued = 0

    def churn_on(self, topic: str, random: Random, threads: ThreadPoolExecutor) -> None:
        written_before = self.java.program.log_path.stat().st_size
        with kafka_python_log() as log, appends_to_every_partition(self.confluent, topic):
            readers = [
                threads.submit(self.java.churn, topic, PARTITIONS, ROUNDS, random.getrandbits(31)),
                threads.submit(self._kafka_python, topic, Random(random.getrandbits(31))),
            ]
            others = threads.submit(self._librdkafka, topic, Random(random.getrandbits(31)))
            read = [reader.result() for reader in readers]
            self.read += sum(read) + others.result()
        assert min(read) >= PARTITIONS * START_OFFSETS
        with self.java.program.log_path.open() as java_log:
            java_log.seek(written_before)
            # Once its consumer closes the session, a fetch still under way looks wrong to the client, on any broker.
            java_lines = java_log.read().partition("epoch=FINAL")[0].splitlines()
        for lines in (java_lines, log.lines):
            trouble = [line for line in lines if any(words in line for words in TROUBLE)]
            assert not trouble, trouble[:3]
            assert any(OPENED in line for line in lines), "no session was opened"
            continued = sum(CONTINUED in line for line in lines)
            assert continued, "no session went on"
            self.continued += continued

    def _kafka_python(self, topic: str, random: Random) -> int:
        consumer = self.kafka_python.consumer(fetch_max_wait_ms=50)
        try:
            return Churn(consumer, topic, PARTITIONS, random).run(ROUNDS)
        finally:
            consumer.close()

    def _librdkafka(self, topic: str, random: Random) -> int:
        consumer = self.confluent.consumer(**{"fetch.wait.max.ms": 50})
        try:
            return librdkafka_churn(consumer, topic, PARTITIONS, ROUNDS, random)
        finally:
            consumer.close()


@pytest.mark.hunt
def test_no_session_breaks_while_partitions_come_and_go(tmp_path: Path) -> None:
    topics = 0
    scratch = tmp_path / "java"
    scratch.mkdir()
    with (
        running_broker(tmp_path / "broker", {"log.segment.delete.delay.ms": "1000"}) as broker,
        Java.start(broker.bootstrap, scratch) as program,
        ThreadPoolExecutor(3) as threads,
    ):
        sessions = Sessions(broker.bootstrap, Java(program, scratch))
        for random in rounds():
            topic = f"churn-{topics}"
            sessions.churn_on(topic, random, threads)
            sessions.confluent.delete_topic(topic)
            topics += 1
    print(
        f"{topics} topics of {PARTITIONS} partitions; {sessions.continued} incremental answers to the Java consumer"
        f" and kafka-python, no session error; {sessions.read} records, each the next of its partition"
    )
