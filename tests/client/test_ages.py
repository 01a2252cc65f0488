"""When the first records were written that somebody has not read."""

from headrace.client import Consumer, ConsumerRecord
from headrace.client.ages import written_ms
from headrace.model import TopicPartition
from tests.broker.stepped import SteppedClock

PARTITIONS = [TopicPartition("t", at) for at in range(9)]

TIMES_MS = {PARTITIONS[7]: 0, PARTITIONS[8]: -1}
"""The last one has none."""


class SlowConsumer(Consumer):
    """Each answer, of one partition, takes 400 ms."""

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__("h:1")
        self._stepped = clock
        self.polled_ms: list[int] = []

    async def poll(self, timeout_ms: int, records_max: int = 500) -> list[ConsumerRecord]:  # noqa: ARG002  # Consumer has it
        partition = PARTITIONS[len(self.polled_ms)]
        self.polled_ms.append(timeout_ms)
        self._stepped.now_ms += min(timeout_ms, 400)
        time_ms = TIMES_MS.get(partition, 1_000)
        return [ConsumerRecord("t", partition.partition, 5, time_ms, None, None, ())] if timeout_ms >= 400 else []


async def test_the_time_is_that_of_the_whole_call_however_many_partitions_there_are() -> None:
    clock = SteppedClock()
    consumer = SlowConsumer(clock)
    async with consumer:
        found = await written_ms(consumer, dict.fromkeys(PARTITIONS, 5), 1_000, clock)
    assert found == dict.fromkeys(PARTITIONS[:2], 1_000)
    assert consumer.polled_ms == [1_000, 600, 200]


async def test_a_record_without_a_time_has_no_age() -> None:
    clock = SteppedClock()
    consumer = SlowConsumer(clock)
    async with consumer:
        found = await written_ms(consumer, dict.fromkeys(PARTITIONS, 5), 10_000, clock)
    assert found == {**dict.fromkeys(PARTITIONS[:7], 1_000), PARTITIONS[7]: 0}
