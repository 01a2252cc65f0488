"""When the records were written that somebody has not read yet."""

from collections.abc import Mapping

from headrace.client.consumer import Consumer
from headrace.model import TopicPartition
from headrace.runtime import Clock

ONE_BATCH_BYTES = 1
"""For `max_partition_bytes` of such a consumer: brokers send a whole batch, however small the limit, and more than one
is not looked at."""


async def written_ms(
    consumer: Consumer, offsets: Mapping[TopicPartition, int], wait_ms_max: int, clock: Clock
) -> dict[TopicPartition, int]:
    """Of the first record at or after each offset; without those that have no time, or that nobody tells in time."""
    deadline_ms = clock.monotonic_ms() + wait_ms_max
    consumer.assign(offsets)
    for partition, offset in offsets.items():
        consumer.seek(partition, offset)
    written: dict[TopicPartition, int] = {}
    while len(written) < len(offsets) and (left_ms := deadline_ms - clock.monotonic_ms()) > 0:
        for record in await consumer.poll(left_ms):
            partition = TopicPartition(record.topic, record.partition)
            if partition not in written:
                written[partition] = record.timestamp
                consumer.pause([partition])
    return {partition: time_ms for partition, time_ms in written.items() if time_ms >= 0}
