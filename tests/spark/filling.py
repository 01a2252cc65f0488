"""Topics with records in them, made by the plain client."""

import asyncio
from collections.abc import Iterable, Sequence

from headrace.client import Admin, NewTopic, Producer
from headrace.model import TopicPartition

Header = tuple[str, bytes | None]
FOR_EVER = {"retention.ms": "-1"}
"""Records have times of long ago, and would go with the next round of retention."""


def make_topic(bootstrap: str, topic: str, partitions: int = 1) -> None:
    async def made() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, partitions, 1, configs=FOR_EVER)])

    asyncio.run(made())


def delete_topic(bootstrap: str, topic: str) -> None:
    async def deleted() -> None:
        async with Admin(bootstrap) as admin:
            await admin.delete_topics([topic])

    asyncio.run(deleted())


def delete_records(bootstrap: str, before: dict[TopicPartition, int]) -> None:
    async def deleted() -> None:
        async with Admin(bootstrap) as admin:
            await admin.delete_records(before)

    asyncio.run(deleted())


def fill(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partitions: int = 1,
    key: bytes | None = None,
    headers: Sequence[Header] = (),
    compression: str = "none",
) -> None:
    """Value after value into partition after partition."""

    async def filled() -> None:
        async with Producer(bootstrap, compression=compression) as producer:
            sent = []
            for at, value in enumerate(values):
                await producer.ready()
                place = at % partitions
                sent.append(producer.send(topic, value, key, partition=place, headers=headers, timestamp_ms=1_000 + at))
            await asyncio.gather(*sent)

    asyncio.run(filled())


def numbers(begin: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(begin, end)]
