"""A member of a group by kafka-python: python -m tests.interop.members.pure_python BOOTSTRAP GROUP TOPIC ASSIGNOR."""

import sys
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.interop.members.telling import ending, tell_assigned, tell_read

bootstrap, group, topic, assignor = sys.argv[1:]


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    def on_partitions_revoked(self, revoked: Any) -> None:
        del revoked
        tell_assigned([])

    def on_partitions_assigned(self, assigned: Any) -> None:
        tell_assigned(partition.partition for partition in assigned)


consumer = KafkaConsumer(
    bootstrap_servers=bootstrap.split(","),
    group_id=group,
    client_id="kafka-python",
    auto_offset_reset="earliest",
    partition_assignment_strategy=[RangePartitionAssignor if assignor == "range" else StickyPartitionAssignor],
    session_timeout_ms=6000,
    heartbeat_interval_ms=1000,
    auto_commit_interval_ms=500,
)
consumer.subscribe([topic], listener=Listener())
end = ending()
while not end.is_set():
    polled = consumer.poll(100)
    tell_read([int(record.value) for records in polled.values() for record in records])
consumer.close()
