"""How much a consumer asks a broker for, ahead of what it has handed out."""

import asyncio

from headrace.client import Consumer
from headrace.client.fetcher import RECORD_BYTES_ASSUMED, REST_SPARE
from headrace.wire.messages.fetch import FetchRequest
from tests.client.fake import FakeBroker
from tests.client.test_consumer import T0, T1, broker_with_log, read


def asked_bytes(broker: FakeBroker) -> list[int]:
    requests = [request for request in broker.asked if isinstance(request, FetchRequest)]
    return [one.partition_max_bytes for request in requests for topic in request.topics for one in topic.partitions]


async def test_no_more_is_fetched_ahead_than_agreed() -> None:
    async with (
        broker_with_log(1) as (broker, log),
        Consumer(broker.bootstrap, max_wait_ms=20, max_bytes=10_000, max_partition_bytes=4_000) as consumer,
    ):
        for _ in range(40):
            log.append(T0, bytes(1_000))
        consumer.assign([T0])
        assert len(await consumer.poll(5000, records_max=1)) == 1
        await asyncio.sleep(0.1)
        assert broker.asked_for(FetchRequest) <= 4
        await read(consumer, 39)


async def test_what_lies_behind_the_end_that_is_wanted_is_not_asked_for() -> None:
    async with (
        broker_with_log(2) as (broker, log),
        Consumer(broker.bootstrap, max_wait_ms=20, max_partition_bytes=1 << 20) as consumer,
    ):
        for _ in range(400):
            log.append(T0, bytes(10_000))
        consumer.assign([T0])
        consumer.seek(T0, 0, until=300)
        records = 0
        async with asyncio.timeout(30):
            while records < 300:
                records += len(await consumer.poll(1000))
        assert 300 <= records < 330
        first, *more = asked_bytes(broker)
        assert first == int(300 * RECORD_BYTES_ASSUMED * REST_SPARE)  # before anybody knows how large they are
        assert more[0] == 1 << 20 and more[-1] < 1 << 20
        broker.asked.clear()
        consumer.assign([T0, T1])  # of several, a broker cuts those that do not fit
        consumer.seek(T0, 0, until=1)
        consumer.seek(T1, 0, until=1)
        log.append(T1, b"x")
        async with asyncio.timeout(30):
            while not any(record.partition == 1 for record in await consumer.poll(1000)):
                pass
        assert set(asked_bytes(broker)) == {1 << 20}


async def test_no_less_is_asked_for_than_the_broker_is_to_wait_for() -> None:
    async with (
        broker_with_log(1) as (broker, log),
        Consumer(broker.bootstrap, max_wait_ms=20, min_bytes=200_000, max_partition_bytes=1 << 20) as consumer,
    ):
        log.append(T0, b"a")
        consumer.assign([T0])
        consumer.seek(T0, 0, until=1)
        await read(consumer, 1)
        assert asked_bytes(broker) == [200_000]
