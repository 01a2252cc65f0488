"""Where a log ends, as librdkafka is told."""

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

WITHIN_S = 60.0


def end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """A leader that was just elected cannot tell until its followers have fetched from it (KIP-207), and says that one
    is to ask again. librdkafka does so for a fraction of a second alone."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            return consumer.get_watermark_offsets(partition, timeout=WITHIN_S)[1]
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.OFFSET_NOT_AVAILABLE or time.monotonic() > deadline:
                raise
            print(f"{partition.topic}-{partition.partition}: its leader cannot tell yet where it ends")
