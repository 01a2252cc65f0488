"""The churn of tests.interop.churn for librdkafka, which keeps no fetch session: every fetch of it is a full one."""

from random import Random

from confluent_kafka import Consumer, TopicPartition

from tests.interop.churn import START_OFFSETS


def churn(consumer: Consumer, topic: str, partitions: int, rounds: int, random: Random) -> int:
    """Returns how many records were read, each of them the next one of its partition."""
    expected: dict[int, int] = {}
    read = 0
    for number in range(rounds):
        chosen = random.sample(range(partitions), random.randint(1, partitions))
        if number % 4 == 0:
            expected = {partition: random.randrange(START_OFFSETS) for partition in chosen}
            consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in expected.items()])
        assigned = [TopicPartition(topic, partition) for partition in chosen if partition in expected]
        if number % 4 == 1:
            consumer.pause(assigned)
        elif number % 4 == 2:
            consumer.resume(assigned)
        for message in consumer.consume(1_000, timeout=0.05):
            assert message.error() is None, message.error()
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            assert offset == expected[partition], f"{offset} of {partition}"
            expected[partition] += 1
            read += 1
    return read
