"""Transactions by aiokafka: python -m tests.interop.transactors.asynchronous BOOTSTRAP TRANSACTIONAL_ID TOPIC COUNT."""

import asyncio
import sys

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.interop.transactors.plan import GROUP, PARTITIONS, is_aborted, tell, value_of

bootstrap, transactional_id, topic, count = sys.argv[1:]


async def attempt(producer: AIOKafkaProducer, number: int, tried: int) -> bool:
    """Whether it ended as it should; if not, it is tried again."""
    await producer.begin_transaction()
    try:
        sent = [
            await producer.send(topic, value_of(transactional_id, number, tried, partition), partition=partition)
            for partition in range(PARTITIONS)
        ]
        await producer.send_offsets_to_transaction({TopicPartition(topic, 0): number + 1}, GROUP + transactional_id)
        await asyncio.gather(*sent)
        if is_aborted(number):
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
    except KafkaError as error:
        print(f"{number}: {error!r}", file=sys.stderr, flush=True)
        await producer.abort_transaction()
        tell("aborted", number, tried)
        return False
    tell("aborted" if is_aborted(number) else "committed", number, tried)
    return True


async def main() -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=60_000
    ) as producer:
        for number in range(int(count)):
            tried = 0
            while not await attempt(producer, number, tried):
                tried += 1


asyncio.run(main())
