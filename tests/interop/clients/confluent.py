"""confluent-kafka, the Python face of librdkafka."""

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.interop.clients.shape import GIVE_UP_S, Consumed, Undelivered


class Confluent:
    name = "confluent-kafka"
    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})  # it may outlive the broker

    def producer(self, **settings: object) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, **settings})

    def consumer(self, **settings: object) -> Consumer:
        base: dict[str, object] = {"bootstrap.servers": self.bootstrap, "group.id": "unused"}
        return Consumer({**base, "enable.auto.commit": False, "auto.offset.reset": "earliest", **settings})

    def produce(self, topic: str, partitions: int, values: Sequence[bytes], codec: str, *, idempotent: bool) -> None:
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        producer = self.producer(
            **{"compression.type": codec, "enable.idempotence": idempotent, "delivery.report.only.error": True}
        )
        for index, value in enumerate(values):
            while True:
                try:
                    producer.produce(topic, value, partition=index % partitions, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.05)
        waiting = producer.flush(GIVE_UP_S)
        if failures or waiting:
            raise Undelivered(f"{len(failures)} failed ({failures[:3]}), {waiting} without an answer")

    def consume(self, topic: str, partitions: int, count: int) -> list[Consumed]:
        consumer = self.consumer()
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        records: list[Consumed] = []
        deadline = time.monotonic() + GIVE_UP_S
        while len(records) < count and time.monotonic() < deadline:
            for message in consumer.consume(min(10_000, count - len(records)), timeout=1):
                error = message.error()
                assert error is None, error
                records.append(_consumed(message))
        consumer.close()
        return records

    def offsets_at(self, topic: str, partitions: int, timestamp_ms: int) -> list[int | None]:
        consumer = self.consumer()
        asked = [TopicPartition(topic, partition, timestamp_ms) for partition in range(partitions)]
        answers = consumer.offsets_for_times(asked, timeout=GIVE_UP_S)
        consumer.close()
        return [answer.offset if answer.offset >= 0 else None for answer in answers]

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str], copies: int = 1) -> None:
        created = self.admin.create_topics([NewTopic(topic, partitions, copies, config=dict(configs))])
        created[topic].result(GIVE_UP_S)

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(GIVE_UP_S)

    def topic_setting(self, topic: str, name: str) -> str | None:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        described = self.admin.describe_configs([resource])[resource].result(GIVE_UP_S)
        value: str | None = described[name].value
        return value


def _consumed(message: Message) -> Consumed:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None and offset is not None and isinstance(value, bytes)
    return Consumed(partition, offset, message.timestamp()[1], value)
