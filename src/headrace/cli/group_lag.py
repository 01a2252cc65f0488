"""How far a group is behind: in records, and in the age of the oldest record that it has not read."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from headrace.cli.watch import watched
from headrace.client import Consumer
from headrace.client.ages import ONE_BATCH_BYTES, written_ms
from headrace.client.outside import Outside
from headrace.model import TopicPartition

LOOK_MS_MAX = 3_000
"""How long the records at the committed offsets are waited for; an age that is not known by then is not told."""


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
        written = await written_ms(consumer, unread, LOOK_MS_MAX, Outside().clock)
    told = {}
    for partition in known:
        at, end = offsets[partition], ends[partition]
        lag = None if at is None else max(0, end - max(at, starts[partition]))
        age_ms = 0 if lag == 0 else now_ms - written[partition] if partition in written else None
        told[partition] = Progress(at, starts[partition], end, lag, None if age_ms is None else max(0, age_ms) / 1000)
    return told
