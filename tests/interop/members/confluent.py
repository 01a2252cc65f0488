"""A member of a group by librdkafka: python -m tests.interop.members.confluent BOOTSTRAP GROUP TOPIC ASSIGNOR."""

import sys
from typing import Any

from confluent_kafka import Consumer

from tests.interop.members.telling import ending, tell_assigned, tell_read

bootstrap, group, topic, assignor = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": "confluent",
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": assignor,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "auto.commit.interval.ms": 500,
    }
)
held: set[int] = set()


def assigned(_: Any, partitions: list[Any]) -> None:
    held.update(partition.partition for partition in partitions)
    tell_assigned(held)


def taken(_: Any, partitions: list[Any]) -> None:
    held.difference_update(partition.partition for partition in partitions)
    tell_assigned(held)


consumer.subscribe([topic], on_assign=assigned, on_revoke=taken, on_lost=taken)
end = ending()
while not end.is_set():
    messages = consumer.consume(500, 0.1)
    tell_read(
        [int(value) for message in messages if message.error() is None and (value := message.value()) is not None]
    )
consumer.close()
