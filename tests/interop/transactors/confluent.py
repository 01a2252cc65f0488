"""Transactions by librdkafka: python -m tests.interop.transactors.confluent BOOTSTRAP TRANSACTIONAL_ID TOPIC COUNT.

With [NUMBER TRIED] behind them it goes on there, in the place of one that has died.
"""

import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.interop.transactors.plan import ENDING, GROUP, PARTITIONS, SENDING_OFFSETS, is_aborted, tell, value_of

bootstrap, transactional_id, topic, count = sys.argv[1:5]
first, tried = map(int, sys.argv[5:] or (0, 0))
producer = Producer(
    {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "transaction.timeout.ms": 60_000}
)
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP + transactional_id})


def attempt(number: int, tried: int) -> bool:
    """Whether it ended as it should; if not, it is tried again."""
    producer.begin_transaction()
    try:
        for partition in range(PARTITIONS):
            producer.produce(topic, value_of(transactional_id, number, tried, partition), partition=partition)
        offsets = [TopicPartition(topic, 0, number + 1)]
        tell(SENDING_OFFSETS, number, tried)
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
        tell(ENDING, number, tried)
        if is_aborted(number):
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    except KafkaException as failure:
        error = failure.args[0]
        print(f"{number}: {error}", file=sys.stderr, flush=True)
        if not error.txn_requires_abort():
            raise
        producer.abort_transaction(60)
        tell("aborted", number, tried)
        return False
    tell("aborted" if is_aborted(number) else "committed", number, tried)
    return True


producer.init_transactions(60)
for number in range(first, int(count)):
    while not attempt(number, tried):
        tried += 1
    tried = 0
consumer.close()
