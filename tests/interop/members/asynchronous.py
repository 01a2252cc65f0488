"""A member of a group by aiokafka: python -m tests.interop.members.asynchronous BOOTSTRAP GROUP TOPIC ASSIGNOR."""

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from tests.interop.members.telling import ending, tell_assigned, tell_read

bootstrap, group, topic, assignor = sys.argv[1:]


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka's types are incomplete
    async def on_partitions_revoked(self, revoked: Any) -> None:
        del revoked
        tell_assigned([])

    async def on_partitions_assigned(self, assigned: Any) -> None:
        tell_assigned(partition.partition for partition in assigned)


async def main() -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id="aiokafka",
        auto_offset_reset="earliest",
        partition_assignment_strategy=[RangePartitionAssignor if assignor == "range" else RoundRobinPartitionAssignor],
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        auto_commit_interval_ms=500,
    )
    end = ending()
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    try:
        while not end.is_set():
            polled = await consumer.getmany(timeout_ms=100)
            tell_read([int(record.value) for records in polled.values() for record in records])
    finally:
        await consumer.stop()


asyncio.run(main())
