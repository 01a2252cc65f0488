"""Transactional producers and readers of what is committed, against a whole broker in this process."""

import asyncio
import random
from typing import Any

import pytest

from headrace.client import Admin, Consumer, Fenced, NewTopic, Outside, Producer, TransactionFailed
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.testing import Cluster
from tests.client.lossy import LossyNetwork

SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


async def committed(bootstrap: str, topic: str = "t") -> list[bytes]:
    """What is decided now, over all partitions."""
    async with Consumer(bootstrap, isolation="read_committed") as consumer:
        partitions = await consumer.partitions_of(topic)
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        values: list[bytes] = []
        async with asyncio.timeout(60):
            while any([await consumer.position(p) < ends[p] for p in partitions]):  # a generator cannot await here
                values += [record.value or b"" for record in await consumer.poll(200)]
        return sorted(values)


async def all_decided(bootstrap: str, topic: str = "t") -> None:
    """Until no transaction is open, or about to end."""
    async with Consumer(bootstrap, isolation="read_committed") as one, Consumer(bootstrap) as other:
        partitions = await one.partitions_of(topic)
        async with asyncio.timeout(60):
            while await one.end_offsets(partitions) != await other.end_offsets(partitions):  # noqa: ASYNC110  # nobody tells when
                await asyncio.sleep(0.01)


def producer_at(cluster: Cluster, **options: Any) -> Producer:
    return Producer(cluster.bootstrap, transactional_id="an id", linger_ms=0, **options)


async def attempt(producer: Producer, *records: tuple[str, bytes, int | None], fails: Exception | None = None) -> None:
    async with producer.transaction():
        for topic, value, partition in records:
            producer.send(topic, value, partition=partition)
        if fails is not None:
            raise fails


async def made(cluster: Cluster, partitions: int = 2) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("t", partitions)])


async def test_records_of_a_transaction_are_read_when_it_is_committed_and_never_when_it_is_aborted() -> None:
    async with Cluster(settings=SETTINGS) as cluster:
        await made(cluster)
        async with producer_at(cluster) as producer:
            for number in range(6):
                await producer.begin()
                for partition in (0, 1):
                    producer.send("t", b"%d.%d" % (number, partition), partition=partition)
                if number % 3 == 2:
                    await producer.abort()
                else:
                    await producer.commit()
            await all_decided(cluster.bootstrap)
        assert await committed(cluster.bootstrap) == sorted(b"%d.%d" % (n, p) for n in (0, 1, 3, 4) for p in (0, 1))


async def test_nothing_is_read_before_the_commit() -> None:
    async with Cluster(settings=SETTINGS) as cluster:
        await made(cluster)
        async with producer_at(cluster) as producer:
            await producer.begin()
            await producer.send("t", b"open", partition=0)
            assert await committed(cluster.bootstrap) == []
            await producer.commit()
            await all_decided(cluster.bootstrap)
            assert await committed(cluster.bootstrap) == [b"open"]


async def test_a_with_block_commits_at_its_end_and_aborts_when_something_is_raised() -> None:
    async with Cluster(settings=SETTINGS) as cluster:
        await made(cluster)
        async with producer_at(cluster) as producer:
            async with producer.transaction():
                producer.send("t", b"good")
            with pytest.raises(ZeroDivisionError):
                await attempt(producer, ("t", b"bad", None), fails=ZeroDivisionError())
            async with producer.transaction():
                producer.send("t", b"better")
        await all_decided(cluster.bootstrap)
        assert await committed(cluster.bootstrap) == [b"better", b"good"]


async def test_a_transaction_without_records_ends_without_a_word_to_the_coordinator() -> None:
    async with Cluster(settings=SETTINGS) as cluster:
        await made(cluster)
        async with producer_at(cluster) as producer:
            async with producer.transaction():
                pass
            await producer.begin()
            await producer.abort()


async def test_whoever_comes_later_fences_whoever_was_there() -> None:
    """Ttxn-2."""
    async with Cluster(settings=SETTINGS) as cluster:
        await made(cluster)
        async with producer_at(cluster) as old, producer_at(cluster) as new:
            await old.begin()
            await old.send("t", b"old")
            await new.begin()
            await new.send("t", b"new")
            with pytest.raises(Fenced, match="another producer has begun with transactional id 'an id'"):
                await old.commit()
            with pytest.raises(Fenced):
                await old.begin()
            with pytest.raises(Fenced):
                old.send("t", b"again")
            await new.commit()
        await all_decided(cluster.bootstrap)
        assert await committed(cluster.bootstrap) == [b"new"]


async def test_a_fenced_producer_hears_of_it_when_it_sends() -> None:
    async with Cluster(settings=SETTINGS) as cluster:
        await made(cluster)
        async with producer_at(cluster) as old, producer_at(cluster) as new:
            await old.begin()
            await old.send("t", b"old", partition=0)
            await new.init()
            with pytest.raises(KafkaError):
                await old.send("t", b"older", partition=0)
            with pytest.raises(Fenced):
                await old.commit()
        await all_decided(cluster.bootstrap)
        assert await committed(cluster.bootstrap) == []


async def test_when_a_record_is_lost_the_transaction_can_only_be_aborted_and_the_next_one_works() -> None:
    async with Cluster(settings=SETTINGS) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 1, configs={"max.message.bytes": "1000"})])
        async with producer_at(cluster) as producer:
            for number in range(3):
                await producer.begin()
                await producer.send("t", b"good %d" % number)
                lost = producer.send("t", b"x" * 2_000)
                producer.send("t", b"also lost %d" % number)
                with pytest.raises(TransactionFailed, match=r"can only be aborted: t-0 .* than max\.message\.bytes"):
                    await producer.commit()
                with pytest.raises(KafkaError, match=r"^t-0 ") as refused:
                    await lost
                assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
                with pytest.raises(TransactionFailed):
                    producer.send("t", b"in vain")
                await producer.abort()
                async with producer.transaction():
                    producer.send("t", b"after %d" % number)
        await all_decided(cluster.bootstrap)
        assert await committed(cluster.bootstrap) == [b"after 0", b"after 1", b"after 2"]


async def test_a_topic_that_cannot_be_written_to_fails_the_transaction() -> None:
    async with Cluster(settings=SETTINGS) as cluster:
        await made(cluster)
        async with producer_at(cluster) as producer:
            with pytest.raises(TransactionFailed, match="cannot be the name of a topic"):
                await attempt(producer, ("not a name", b"1", None), ("t", b"2", None))
            with pytest.raises(TransactionFailed, match="no partition 7"):
                await attempt(producer, ("t", b"3", 0), ("t", b"4", 7))
            async with producer.transaction():
                producer.send("t", b"5")
        await all_decided(cluster.bootstrap)
        assert await committed(cluster.bootstrap) == [b"5"]


async def test_leaving_with_an_open_transaction_aborts_it() -> None:
    async with Cluster(settings=SETTINGS) as cluster:
        await made(cluster)
        async with producer_at(cluster) as producer:
            await producer.begin()
            await producer.send("t", b"1")
        await all_decided(cluster.bootstrap)
        assert await committed(cluster.bootstrap) == []


async def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_hears_why() -> None:
    """Ttxn-4."""
    settings = {**SETTINGS, "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}
    async with Cluster(settings=settings) as cluster:
        await made(cluster)
        async with producer_at(cluster, transaction_timeout_ms=200) as producer:
            await producer.begin()
            await producer.send("t", b"slow")
            await all_decided(cluster.bootstrap)
            with pytest.raises(Fenced, match="longer than its 200 ms"):
                await producer.commit()
        assert await committed(cluster.bootstrap) == []


async def test_calls_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="acks=all"):
        Producer("localhost:1", transactional_id="an id", acks=1)
    with pytest.raises(ValueError, match="acks=all"):
        Producer("localhost:1", transactional_id="an id", idempotent=False)
    async with Cluster(settings=SETTINGS) as cluster:
        await made(cluster)
        async with Producer(cluster.bootstrap) as plain:
            with pytest.raises(RuntimeError, match="transactional_id"):
                await plain.begin()
        async with producer_at(cluster) as producer:
            with pytest.raises(RuntimeError, match="send"):
                producer.send("t", b"1")
            await producer.begin()
            with pytest.raises(RuntimeError, match="begin"):
                await producer.begin()
            await producer.abort()
            for call in (producer.commit, producer.abort):
                with pytest.raises(RuntimeError, match="needs a transaction that is open"):
                    await call()


async def test_a_timeout_that_the_broker_does_not_allow_is_told() -> None:
    async with Cluster(settings=SETTINGS) as cluster:
        async with producer_at(cluster, transaction_timeout_ms=1_000_000) as producer:
            with pytest.raises(KafkaError) as refused:
                await producer.init()
        assert refused.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("seed", range(4))
async def test_transactions_are_whole_when_connections_break_all_the_time(seed: int) -> None:
    chance = random.Random(seed)
    async with Cluster(settings=SETTINGS) as cluster:
        await made(cluster)
        outside = Outside(network=LossyNetwork(lambda: chance.random() < 0.1))
        kept: list[bytes] = []
        async with producer_at(cluster, outside=outside) as producer:
            for number in range(25):
                values = [b"%d.%d" % (number, at) for at in range(chance.randint(1, 4))]
                await producer.begin()
                for value in values:
                    producer.send("t", value, partition=chance.randint(0, 1))
                if chance.random() < 0.3:
                    await producer.abort()
                else:
                    await producer.commit()
                    kept += values
        await all_decided(cluster.bootstrap)
        assert await committed(cluster.bootstrap) == sorted(kept)


async def test_a_consumer_reads_past_what_was_rolled_back() -> None:
    async with Cluster(settings=SETTINGS) as cluster:
        await made(cluster, partitions=1)
        async with producer_at(cluster) as producer:
            await producer.begin()
            for _ in range(10):
                producer.send("t", b"rolled back")
            await producer.flush()
            await producer.abort()
            await all_decided(cluster.bootstrap)
        where = TopicPartition("t", 0)
        async with Consumer(cluster.bootstrap, isolation="read_committed") as consumer:
            consumer.assign([where])
            async with asyncio.timeout(30):
                while await consumer.position(where) < 11:
                    assert await consumer.poll(100) == []
