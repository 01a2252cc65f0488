"""Brokers that are away, at the first contact too, and what a client says of it meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from headrace.client import Admin, Consumer, NotReachable, Producer, TimedOut
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.wire.messages.metadata import MetadataRequest
from headrace.wire.messages.produce import ProduceRequest
from headrace.wire.messages.versions import ApiVersionsRequest
from tests.client.fake import SILENCE, FakeBroker, FakeCluster
from tests.client.fake_log import FakeLog
from tests.net.loops import until

T0 = TopicPartition("t", 0)
STORAGE_ERROR = 56


@asynccontextmanager
async def one_that_comes_late() -> AsyncIterator[FakeBroker]:
    """Its address is known, but nobody is there before `__aenter__` is called once more."""
    cluster = FakeCluster()
    cluster.add("t", 1)
    broker = FakeBroker(cluster)
    async with broker:
        pass
    try:
        yield broker
    finally:
        await broker.hang_up()


async def poll_until(consumer: Consumer, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await consumer.poll(20)


async def test_records_sent_before_the_broker_is_there_are_stored_once_it_is() -> None:
    async with one_that_comes_late() as broker, Producer(broker.bootstrap) as producer:
        stored = producer.send("t", b"early")
        await until(lambda: producer.trouble)
        assert producer.trouble is not None and broker.bootstrap in producer.trouble
        await broker.__aenter__()
        assert (await stored).offset == 0
        assert producer.trouble is None


async def test_a_consumer_made_before_the_broker_is_there_reads_once_it_is() -> None:
    async with one_that_comes_late() as broker, Consumer(broker.bootstrap) as consumer:
        log = FakeLog(broker)
        log.append(T0, b"a")
        consumer.assign([T0])
        asked = asyncio.ensure_future(consumer.end_offsets([T0]))
        assert await consumer.poll(50) == []
        assert consumer.trouble is not None and broker.bootstrap in consumer.trouble
        await broker.__aenter__()
        async with asyncio.timeout(30):
            while not await consumer.poll(1000):
                pass
        assert await asked == {T0: 1}
        await until(lambda: consumer.trouble is None)


async def test_an_administrator_asks_until_the_broker_is_there() -> None:
    async with one_that_comes_late() as broker, Admin(broker.bootstrap) as admin:
        described = asyncio.ensure_future(admin.describe_topics(["t"]))
        await until(lambda: admin.trouble)
        await broker.__aenter__()
        assert (await described)[0].name == "t"
        assert admin.trouble is None


async def test_nobody_there_is_given_up_when_the_time_is_up() -> None:
    async with Admin("127.0.0.1:1", timeout_ms=300) as admin:
        with pytest.raises(NotReachable, match=r"no broker of bootstrap 127\.0\.0\.1:1 answers"):
            await admin.list_topics()
        with pytest.raises(NotReachable, match=r"no broker of bootstrap 127\.0\.0\.1:1 answers"):
            await admin.reach(1)


async def test_a_broker_that_is_silent_costs_no_more_than_the_time_given() -> None:
    async with one_that_comes_late() as broker:
        await broker.__aenter__()
        broker.always(MetadataRequest, lambda _request: SILENCE)
        broker.then(ApiVersionsRequest, [SILENCE])
        async with Admin(broker.bootstrap) as admin:
            with pytest.raises(NotReachable, match=f"no broker of bootstrap {broker.bootstrap} answers within 100 ms"):
                await admin.reach(100)
        async with asyncio.timeout(20), Producer(broker.bootstrap, delivery_ms_max=200) as producer:
            with pytest.raises(TimedOut, match=r"Metadata was not answered by .* within 200 ms"):
                await producer.send("t", b"x")


async def test_a_topic_that_nobody_makes_does_not_exist() -> None:
    async with one_that_comes_late() as broker, Admin(broker.bootstrap) as admin:
        await broker.__aenter__()
        with pytest.raises(KafkaError, match="topic 'nowhere' does not exist"):
            await admin.describe_topics(["nowhere"])


async def test_a_disk_that_is_full_is_told_while_records_are_sent_again() -> None:
    async with one_that_comes_late() as broker, Producer(broker.bootstrap) as producer:
        await broker.__aenter__()
        broker.always(ProduceRequest, lambda request: broker.produce(request, STORAGE_ERROR))
        stored = producer.send("t", b"x")
        await until(lambda: producer.trouble)
        assert producer.trouble is not None
        assert "t-0 did not take the records" in producer.trouble and "KAFKA_STORAGE_ERROR" in producer.trouble
        broker.always(ProduceRequest, broker.produce)
        await stored
        assert producer.trouble is None


async def test_a_producer_without_records_has_no_trouble_when_its_broker_goes() -> None:
    async with one_that_comes_late() as broker, Producer(broker.bootstrap) as producer:
        await broker.__aenter__()
        await producer.send("t", b"x")
        await broker.hang_up()
        assert producer.trouble is None
        stored = producer.send("t", b"y")
        await until(lambda: producer.trouble)
        await broker.__aenter__()
        assert (await stored).offset == 1
        assert producer.trouble is None


async def test_a_consumer_tells_of_a_broker_that_went_and_of_a_partition_that_is_offline() -> None:
    async with one_that_comes_late() as broker, Consumer(broker.bootstrap, max_wait_ms=20) as consumer:
        await broker.__aenter__()
        log = FakeLog(broker)
        consumer.assign([T0])
        await consumer.poll(50)
        assert consumer.trouble is None
        await broker.hang_up()
        await poll_until(consumer, lambda: consumer.trouble is not None)
        await broker.__aenter__()
        await poll_until(consumer, lambda: consumer.trouble is None)
        log.codes[T0] = STORAGE_ERROR
        await poll_until(consumer, lambda: "KAFKA_STORAGE_ERROR" in (consumer.trouble or ""))
        assert "t-0 cannot be fetched at offset 0: broker " in str(consumer.trouble)
        assert "`headrace tier verify t` checks what is in the tier" in str(consumer.trouble)
        del log.codes[T0]
        await poll_until(consumer, lambda: consumer.trouble is None)
