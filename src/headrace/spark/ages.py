"""How old the first records are that a query has not read yet."""

from collections.abc import Mapping

from headrace.client.ages import ONE_BATCH_BYTES, written_ms
from headrace.client.consumer import Consumer
from headrace.client.outside import Outside
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.spark.door import door

LOOK_MS_MAX = 2_000
"""Then others may be behind for long, and are not told with their age."""


def ages_s(bootstrap: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
    """Of the first record at or after each offset, in seconds; without those that nobody tells in time."""
    try:
        return door().run(_ages_s(bootstrap, offsets))
    except KafkaError:
        return {}


async def _ages_s(bootstrap: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
    outside = Outside()
    async with Consumer(
        bootstrap,
        auto_offset_reset="earliest",
        max_partition_bytes=ONE_BATCH_BYTES,
        client_id="headrace-spark",
        outside=outside,
    ) as consumer:
        written = await written_ms(consumer, offsets, LOOK_MS_MAX, outside.clock)
    now_ms = outside.clock.wall_ms()
    return {one: max(0, now_ms - time_ms) / 1000 for one, time_ms in written.items()}
