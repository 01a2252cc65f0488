"""How far a group is behind: in records, and in the age of the oldest record that it has not read."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from headrace.cli.watch import watched
from headrace.client import Consumer
from headrace.model import TopicPartition

LOOK_MS_MAX = 3_000
"""How long the records at the committed offsets are waited for; an age that is not known by then is not told."""
ONE_BATCH_BYTES = 1
"""Brokers send a whole batch, however small the limit: more than one is not looked at."""


class Progress(NamedTuple):
    """`lag_seconds` is None while nothing was committed, or when the age cannot be told."""

    committed: int | None
    start: int
    end: int
    lag: int | None
    lag_seconds: float | None


async def progress_of(
    bootstrap: str, topics: Collection[str], offsets: Mapping[TopicPartition, int | None], now_ms: int
) -> dict[TopicPartition, Progress]:
    """`offsets` are the committed ones, None where there is none. Only what is among `topics`, which exist."""
    async with (
        Consumer(bootstrap, max_partition_bytes=ONE_BATCH_BYTES) as consumer,
        watched(consumer, "looking offsets up"),
    ):
        there = {p for topic in {p.topic for p in offsets} & set(topics) for p in await consumer.partitions_of(topic)}
        known = sorted(offsets.keys() & there)
        starts, ends = await consumer.beginning_offsets(known), await consumer.end_offsets(known)
        unread = {p: max(at, starts[p]) for p in known if (at := offsets[p]) is not None and at < ends[p]}
        written_ms = await _written_ms(consumer, unread)
    told = {}
    for partition in known:
        at, end = offsets[partition], ends[partition]
        lag = None if at is None else max(0, end - max(at, starts[partition]))
        age_ms = 0 if lag == 0 else now_ms - written_ms[partition] if partition in written_ms else None
        told[partition] = Progress(at, starts[partition], end, lag, None if age_ms is None else max(0, age_ms) / 1000)
    return told


async def _written_ms(consumer: Consumer, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """When the first record at or after each offset was written; without those that nobody tells in time."""
    consumer.assign(offsets)
    for partition, offset in offsets.items():
        consumer.seek(partition, offset)
    written: dict[TopicPartition, int] = {}
    while len(written) < len(offsets):
        records = await consumer.poll(LOOK_MS_MAX)
        if not records:
            break
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            if partition not in written:
                written[partition] = record.timestamp
                consumer.pause([partition])
    return written
