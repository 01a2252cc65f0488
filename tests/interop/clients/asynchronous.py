"""aiokafka on an event loop of its own per call."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.interop.clients.shape import GIVE_UP_S, Consumed


class AioKafka:
    name = "aiokafka"
    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def produce(self, topic: str, partitions: int, values: Sequence[bytes], codec: str, *, idempotent: bool) -> None:
        asyncio.run(self._produce(topic, partitions, values, codec, idempotent))

    def consume(self, topic: str, partitions: int, count: int) -> list[Consumed]:
        return asyncio.run(self._consume(topic, partitions, count))

    def offsets_at(self, topic: str, partitions: int, timestamp_ms: int) -> list[int | None]:
        return asyncio.run(self._offsets_at(topic, partitions, timestamp_ms))

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str], copies: int = 1) -> None:
        asyncio.run(self._create_topic(topic, partitions, configs, copies))

    def delete_topic(self, topic: str) -> None:
        asyncio.run(self._delete_topic(topic))

    async def _produce(
        self, topic: str, partitions: int, values: Sequence[bytes], codec: str, idempotent: bool
    ) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all" if idempotent else 1,
            max_batch_size=256 << 10,
            linger_ms=5,
        ) as producer:
            acks = [await producer.send(topic, value, partition=at % partitions) for at, value in enumerate(values)]
            await asyncio.wait_for(asyncio.gather(*acks), GIVE_UP_S)

    async def _consume(self, topic: str, partitions: int, count: int) -> list[Consumed]:
        records: list[Consumed] = []
        deadline = time.monotonic() + GIVE_UP_S
        async with self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
            while len(records) < count and time.monotonic() < deadline:
                for polled in (await consumer.getmany(timeout_ms=1000, max_records=20_000)).values():
                    records += [Consumed(r.partition, r.offset, r.timestamp, r.value) for r in polled]
        return records

    async def _offsets_at(self, topic: str, partitions: int, timestamp_ms: int) -> list[int | None]:
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        async with self._consumer() as consumer:
            answers = await consumer.offsets_for_times(dict.fromkeys(asked, timestamp_ms))
        return [answers[tp].offset if answers[tp] else None for tp in asked]

    async def _create_topic(self, topic: str, partitions: int, configs: Mapping[str, str], copies: int) -> None:
        async with self._admin() as admin:
            answer = await admin.create_topics([NewTopic(topic, partitions, copies, topic_configs=dict(configs))])
        # This client returns what went wrong instead of raising it.
        for _, code, *message in answer.topic_errors:
            assert code == 0, f"error {code}: {message}"

    async def _delete_topic(self, topic: str) -> None:
        async with self._admin() as admin:
            answer = await admin.delete_topics([topic])
        assert all(code == 0 for _, code in answer.topic_error_codes), answer

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    def _consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
