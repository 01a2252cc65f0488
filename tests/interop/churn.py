"""The twin of Churn.java for kafka-python: partitions enter and leave one consumer's fetch session, are paused,
resumed and moved, while every record that comes back must be the next one of its partition."""

import time
from collections.abc import Collection
from random import Random

from kafka import KafkaConsumer, TopicPartition

from tests.interop.clients.shape import GIVE_UP_S

START_OFFSETS = 10


class Churn:
    def __init__(self, consumer: KafkaConsumer, topic: str, partitions: int, random: Random) -> None:
        self.consumer = consumer
        self.all = [TopicPartition(topic, partition) for partition in range(partitions)]
        self.random = random
        self.next: dict[TopicPartition, int] = {}
        self.read = 0

    def run(self, rounds: int) -> int:
        """Returns the number of records read, after a last pass that reads everything."""
        self._assign(self.all)
        for _ in range(rounds):
            match self.random.randrange(4):
                case 0:
                    self._assign(self._some(self.all))
                case 1:
                    self.consumer.pause(*self._some(self.consumer.assignment()))
                case 2:
                    self.consumer.resume(*self._some(self.consumer.paused()))
                case _:
                    for partition in self._some(self.consumer.assignment()):
                        self._seek(partition, self.random.randrange(START_OFFSETS))
            self._poll()
        self._read_everything()
        return self.read

    def _read_everything(self) -> None:
        self._assign(self.all)
        self.consumer.resume(*self.consumer.paused())
        for partition in self.all:
            self._seek(partition, 0)
        ends = self.consumer.end_offsets(self.all)
        deadline = time.monotonic() + GIVE_UP_S
        while any(self.next[partition] < ends[partition] for partition in self.all):
            assert time.monotonic() < deadline, "not everything was read in time"
            self._poll()

    def _assign(self, partitions: Collection[TopicPartition]) -> None:
        before = self.consumer.assignment()
        self.consumer.assign(partitions)
        for partition in partitions:
            if partition not in before:
                self._seek(partition, self.random.randrange(START_OFFSETS))

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        self.consumer.seek(partition, offset)
        self.next[partition] = offset

    def _poll(self) -> None:
        for partition, records in self.consumer.poll(timeout_ms=20).items():
            for record in records:
                assert record.offset == self.next[partition], f"{record.offset} of {partition}"
                self.next[partition] += 1
                self.read += 1

    def _some(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        ordered = sorted(partitions)
        return self.random.sample(ordered, self.random.randint(1, len(ordered))) if ordered else []
