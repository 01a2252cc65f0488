"""A producer that never rests and remembers what the broker acknowledged; and what became of its records."""

import threading
import time
from collections import defaultdict

from confluent_kafka import KafkaError, Message, TopicPartition

from tests.cluster.ends import end_of
from tests.interop.clients.confluent import Confluent

PARTITIONS = 3
OUTSTANDING_MAX = 2_000
RECORDS_PER_MS = 40  # keeps a run of many seconds small enough to read back
FLUSH_S_MAX = 120.0


class Stream:
    """Numbered records, round robin over the partitions, from a thread of its own until `finish`."""

    def __init__(self, confluent: Confluent, topic: str, **settings: object) -> None:
        confluent.create_topic(topic, PARTITIONS, {})
        self.confluent = confluent
        self.topic = topic
        self.sent = 0
        self.acknowledged: list[int] = []
        self.failed: list[KafkaError] = []
        quiet: dict[str, object] = {"log_level": 2, "message.timeout.ms": 120_000, "reconnect.backoff.max.ms": 100}
        self._producer = confluent.producer(**{**quiet, **settings})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for_acks(self, count: int, deadline_s: float = 60) -> None:
        """Returns once so many more records were acknowledged."""
        goal, deadline = len(self.acknowledged) + count, time.monotonic() + deadline_s
        while len(self.acknowledged) < goal:
            assert self._thread.is_alive(), "the producer ended"
            assert time.monotonic() < deadline, f"no {count} acknowledgements in {deadline_s:.0f} s; {self.failed[-3:]}"
            time.sleep(0.002)

    def finish(self) -> None:
        self._over.set()
        self._thread.join()
        assert self._producer.flush(FLUSH_S_MAX) == 0, "records without an answer"

    def read_back(self) -> dict[int, list[int]]:
        """The numbers in each partition, in the order of their offsets."""
        numbers: dict[int, list[int]] = defaultdict(list)
        consumer = self.confluent.consumer()
        partitions = [TopicPartition(self.topic, partition, 0) for partition in range(PARTITIONS)]
        count = sum(end_of(consumer, partition) for partition in partitions)
        consumer.close()
        for record in self.confluent.consume(self.topic, PARTITIONS, count):
            numbers[record.partition].append(int(record.value))
        return numbers

    def _run(self) -> None:
        while not self._over.is_set():
            self._producer.poll(0.001)
            for _ in range(RECORDS_PER_MS):
                if self.sent - len(self.acknowledged) - len(self.failed) >= OUTSTANDING_MAX:
                    break
                self._send(self.sent)
                self.sent += 1

    def _send(self, number: int) -> None:
        def answered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.failed.append(error)

        self._producer.produce(self.topic, b"%0100d" % number, partition=number % PARTITIONS, on_delivery=answered)
