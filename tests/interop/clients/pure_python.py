"""kafka-python: no C, and the Python client with incremental fetch sessions."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from tests.interop.clients.shape import GIVE_UP_S, Consumed


class KafkaPython:
    name = "kafka-python"
    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def consumer(self, **settings: Any) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False, **settings
        )

    def produce(self, topic: str, partitions: int, values: Sequence[bytes], codec: str, *, idempotent: bool) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all" if idempotent else 1,
            batch_size=256 << 10,
            linger_ms=5,
        )
        futures = [producer.send(topic, value, partition=index % partitions) for index, value in enumerate(values)]
        producer.flush(GIVE_UP_S)
        for future in futures:
            future.get(GIVE_UP_S)  # raises what the broker answered
        producer.close()

    def consume(self, topic: str, partitions: int, count: int) -> list[Consumed]:
        consumer = self.consumer(max_poll_records=20_000)
        consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        records: list[Consumed] = []
        deadline = time.monotonic() + GIVE_UP_S
        while len(records) < count and time.monotonic() < deadline:
            for polled in consumer.poll(timeout_ms=1000).values():
                records += [Consumed(r.partition, r.offset, r.timestamp, r.value) for r in polled]
        consumer.close()
        return records

    def offsets_at(self, topic: str, partitions: int, timestamp_ms: int) -> list[int | None]:
        consumer = self.consumer()
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        answers = consumer.offsets_for_times(dict.fromkeys(asked, timestamp_ms))
        consumer.close()
        return [answers[tp].offset if answers[tp] else None for tp in asked]

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str], copies: int = 1) -> None:
        with KafkaAdminClient(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, partitions, copies, topic_configs=dict(configs))])

    def delete_topic(self, topic: str) -> None:
        with KafkaAdminClient(bootstrap_servers=self.bootstrap) as admin:
            admin.delete_topics([topic])
