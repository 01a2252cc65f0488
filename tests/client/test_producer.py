"""What the producer does with each answer, against a scripted broker: errors cannot be had from a real one at will."""

import asyncio
from itertools import pairwise

import pytest

from headrace.client import BufferFull, NotReachable, Producer, TimedOut
from headrace.client.errors import topic_error
from headrace.core.murmur2 import partition_for
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.wire.batch import read_header
from headrace.wire.messages.coordinators import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from headrace.wire.messages.produce import ProduceRequest, ProduceResponse
from headrace.wire.struct import Message
from tests.client.fake import HANG_UP, SILENCE, Answering, FakeBroker, FakeCluster, sequences
from tests.net.loops import until

T0 = TopicPartition("t", 0)


def one_topic(partitions: int = 1) -> FakeCluster:
    cluster = FakeCluster()
    cluster.add("t", *[1] * partitions)
    return cluster


def refuse(broker: FakeBroker, code: int) -> Answering:
    return lambda request: broker.produce(request, code)


def store_and(broker: FakeBroker, answer: object) -> Answering:
    """Stores the batch, but the client does not hear of it."""

    def lose(request: Message) -> object:
        broker.produce(request)
        return answer

    return lose


async def sent(producer: Producer, *values: bytes) -> list[int | KafkaError]:
    """Each value in a batch of its own, all under way at once. Their offsets, or what went wrong."""
    futures = []
    for value in values:
        futures.append(producer.send("t", value, partition=0))
        await asyncio.sleep(0.02)  # its batch is on its way
    results = await asyncio.gather(*futures, return_exceptions=True)
    return [result if isinstance(result, KafkaError) else result.offset for result in results]  # type: ignore[union-attr]  # no other exception is raised


async def test_records_of_a_partition_share_a_batch_and_get_their_offsets() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap) as producer:
        futures = [producer.send("t", b"%d" % n, partition=0, timestamp_ms=n) for n in range(10)]
        metadata = await asyncio.gather(*futures)
        assert [(m.topic, m.partition, m.offset, m.timestamp) for m in metadata] == [("t", 0, n, n) for n in range(10)]
        assert broker.asked_for(ProduceRequest) == 1
        assert sequences(broker.asked[-1]) == [(101, 0, 10)]


async def test_a_batch_is_full_at_its_size_and_numbers_go_on() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap, batch_bytes=1000) as producer:
        futures = [producer.send("t", bytes(100), partition=0) for _ in range(50)]
        await producer.flush()
        assert [future.result().offset for future in futures] == list(range(50))
        batches = [
            batch for request in broker.asked if isinstance(request, ProduceRequest) for batch in sequences(request)
        ]
        assert len(batches) > 5
        assert [first for _, first, _ in batches] == [
            sum(count for *_, count in batches[:n]) for n in range(len(batches))
        ]


async def test_keys_choose_partitions_as_java_does_and_records_without_fill_one_after_the_other() -> None:
    async with (
        FakeBroker(one_topic(5)) as broker,
        Producer(broker.bootstrap, batch_bytes=2000, linger_ms=10_000) as producer,
    ):
        keys = [b"key-%d" % n for n in range(40)]
        keyed = [producer.send("t", b"v", key) for key in keys]
        await producer.flush()
        assert [f.result().partition for f in keyed] == [partition_for(key, 5) for key in keys]
        free = [producer.send("t", bytes(400)) for _ in range(60)]
        await producer.flush()
        partitions = [future.result().partition for future in free]
        assert set(partitions) == set(range(5))
        runs = sum(a != b for a, b in pairwise(partitions))
        assert runs < 30  # a batch of several, then the next partition


async def test_a_lost_answer_is_asked_for_again_under_the_same_numbers() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap) as producer:
        broker.then(ProduceRequest, [HANG_UP])
        assert await sent(producer, b"a") == [0]
        assert [sequences(r) for r in broker.asked if isinstance(r, ProduceRequest)] == [[(101, 0, 1)]] * 2


async def test_a_duplicate_is_a_success() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap) as producer:
        broker.then(ProduceRequest, [store_and(broker, HANG_UP), refuse(broker, 46)])
        assert await sent(producer, b"a") == [1]
        assert broker.stored[T0] == [b"a"]


async def test_what_follows_a_batch_that_failed_is_sent_again_after_it_and_in_order() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap, linger_ms=0) as producer:
        await sent(producer, b"first")
        broker.answer_together(ProduceRequest, 3)
        broker.then(ProduceRequest, [refuse(broker, 7), refuse(broker, 45), refuse(broker, 45)])
        assert await sent(producer, b"a", b"b", b"c") == [1, 2, 3]
        assert broker.stored[T0] == [b"first", b"a", b"b", b"c"]
        numbers = [first for r in broker.asked if isinstance(r, ProduceRequest) for _, first, _ in sequences(r)]
        assert numbers == [0, 1, 2, 3, 1, 2, 3]


def refuse_later(broker: FakeBroker, code: int, when: asyncio.Event) -> Answering:
    async def refused(request: Message) -> Message:
        await when.wait()
        return broker.produce(request, code)

    return refused


async def test_the_first_batch_goes_alone_since_a_new_partition_would_take_the_second_without_it() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap, linger_ms=0) as producer:
        refusing = asyncio.Event()
        broker.then(ProduceRequest, [refuse_later(broker, 56, refusing)])
        sending = asyncio.ensure_future(sent(producer, b"a", b"b", b"c"))
        await until(lambda: broker.asked_for(ProduceRequest))
        await asyncio.sleep(0.1)
        assert broker.asked_for(ProduceRequest) == 1
        refusing.set()
        assert await sending == [0, 1, 2]
        assert broker.stored[T0] == [b"a", b"b", b"c"]


async def test_what_follows_into_a_topic_created_anew_waits_for_what_the_old_one_refuses() -> None:
    """The new topic knows no producer, and would take any number: what was refused would be out of order for ever."""
    cluster = one_topic()
    async with FakeBroker(cluster) as broker, Producer(broker.bootstrap, linger_ms=0) as producer:
        await sent(producer, b"first")
        renewed, refusing = asyncio.Event(), asyncio.Event()

        async def told_late(request: Message) -> Message:
            await renewed.wait()
            assert isinstance(request, MetadataRequest)
            return cluster.metadata(request)

        broker.then(MetadataRequest, [told_late])
        broker.then(ProduceRequest, [refuse_later(broker, 100, refusing)])
        refreshing = asyncio.ensure_future(producer._cluster.refresh())
        await until(lambda: broker.asked_for(MetadataRequest) == 2)
        early = producer.send("t", b"a", partition=0)
        await until(lambda: broker.asked_for(ProduceRequest) == 2)
        cluster.topics["t"].topic_id = bytes([9]) * 16
        renewed.set()
        await refreshing
        late = [producer.send("t", value, partition=0) for value in (b"b", b"c")]
        await asyncio.sleep(0.1)
        assert broker.asked_for(ProduceRequest) == 2
        refusing.set()
        await asyncio.gather(early, *late)
        assert broker.stored[T0] == [b"first", b"a", b"b", b"c"]


async def test_no_more_than_five_batches_of_a_partition_are_in_flight() -> None:
    async with (
        FakeBroker(one_topic()) as broker,
        Producer(broker.bootstrap, linger_ms=0, request_ms_max=60_000) as producer,
    ):
        await producer.send("t", b"first", partition=0)
        broker.always(ProduceRequest, lambda _request: SILENCE)
        futures = []
        for n in range(8):
            futures.append(producer.send("t", b"%d" % n, partition=0))
            await asyncio.sleep(0.02)
        assert broker.asked_for(ProduceRequest) == 1 + 5
        broker.always(ProduceRequest, lambda request: broker.produce(request))
        await broker.hang_up()
        await broker.__aenter__()
        assert [future.offset for future in await asyncio.gather(*futures)] == list(range(1, 9))


@pytest.mark.parametrize("code", [3, 5, 6, 56, 74, 75, 100])
async def test_codes_that_mean_another_leader_ask_for_metadata(code: int) -> None:
    cluster = one_topic()
    async with FakeBroker(cluster, 1) as old, FakeBroker(cluster, 2) as new, Producer(old.bootstrap) as producer:
        await sent(producer, b"a")
        cluster.move("t", 0, 2)
        old.always(ProduceRequest, refuse(old, code))
        assert await sent(producer, b"b") == [0]
        assert new.stored[T0] == [b"b"]


async def test_a_leader_that_vanished_is_replaced() -> None:
    cluster = one_topic()
    async with (
        FakeBroker(cluster, 1) as old,
        FakeBroker(cluster, 2) as new,
        Producer(f"{old.bootstrap},{new.bootstrap}") as producer,
    ):
        await sent(producer, b"a")
        cluster.move("t", 0, 2)
        await old.hang_up()
        assert await sent(producer, b"b") == [0]


async def test_a_gap_fails_the_batch_and_the_next_one_goes_under_a_new_identity() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap, linger_ms=0) as producer:
        await sent(producer, b"a")
        broker.answer_together(ProduceRequest, 2)
        broker.then(ProduceRequest, [refuse(broker, 45), refuse(broker, 45)])
        gap, after = await sent(producer, b"gap", b"after")
        assert isinstance(gap, KafkaError) and gap.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert after == 1
        assert broker.stored[T0] == [b"a", b"after"]
        assert sequences(broker.asked[-1]) == [(102, 0, 1)]


@pytest.mark.parametrize("code", [6, 7])
async def test_after_a_gap_a_batch_that_may_be_stored_is_not_stored_twice(code: int) -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap, linger_ms=0) as producer:
        await sent(producer, b"a")
        broker.answer_together(ProduceRequest, 2)
        broker.then(ProduceRequest, [refuse(broker, 87), lambda request: broker.produce(request, code, store=True)])
        bad, maybe = await sent(producer, b"bad", b"maybe")
        assert isinstance(bad, KafkaError) and bad.code == ErrorCode.INVALID_RECORD
        assert isinstance(maybe, KafkaError) and "may or may not" in str(maybe)
        assert await sent(producer, b"b") == [2]
        assert broker.stored[T0] == [b"a", b"maybe", b"b"]


async def test_after_a_gap_a_batch_whose_answer_was_lost_is_not_stored_twice() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap, linger_ms=0) as producer:
        await sent(producer, b"a")
        broker.answer_together(ProduceRequest, 2)
        broker.then(ProduceRequest, [refuse(broker, 87), store_and(broker, HANG_UP)])
        bad, maybe = await sent(producer, b"bad", b"maybe")
        assert isinstance(bad, KafkaError) and bad.code == ErrorCode.INVALID_RECORD
        assert isinstance(maybe, KafkaError) and "may or may not" in str(maybe)
        assert await sent(producer, b"b") == [2]


@pytest.mark.parametrize("code", [47, 59])
async def test_a_refused_identity_is_replaced_and_the_batch_sent_again(code: int) -> None:
    async with FakeBroker(one_topic(2)) as broker, Producer(broker.bootstrap, linger_ms=0) as producer:
        await sent(producer, b"a")
        broker.then(ProduceRequest, [refuse(broker, code)])
        assert await sent(producer, b"b") == [1]
        assert sequences(broker.asked[-1]) == [(102, 0, 1)]
        await producer.send("t", b"other partition", partition=1)
        assert broker.asked_for(InitProducerIdRequest) == 2


async def test_a_batch_too_large_is_halved_and_a_record_too_large_refused() -> None:
    def strict(request: Message) -> ProduceResponse:
        assert isinstance(request, ProduceRequest)
        records = request.topic_data[0].partition_data[0].records
        assert records is not None
        return broker.produce(request, 10 if len(records) > 400 else 0)

    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap) as producer:
        broker.always(ProduceRequest, strict)
        futures = [producer.send("t", bytes([n]) * 100, partition=0) for n in range(10)]
        await producer.flush()
        assert all(future.done() for future in futures)
        assert [future.result().offset for future in futures] == list(range(10))
        assert broker.stored[T0] == [bytes([n]) * 100 for n in range(10)]
        taken = [one for request in broker.asked if isinstance(request, ProduceRequest) for one in sequences(request)]
        assert sorted(first for _, first, count in taken if count <= 3) == [0, 2, 5, 7]
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await producer.send("t", bytes(1000), partition=0)
        assert await sent(producer, b"after") == [10]


async def test_delivery_ends_in_time_and_says_what_stood_in_the_way() -> None:
    async with (
        FakeBroker(one_topic()) as broker,
        Producer(broker.bootstrap, delivery_ms_max=300, linger_ms=0) as producer,
    ):
        await sent(producer, b"a")
        broker.always(ProduceRequest, refuse(broker, 19))
        (late,) = await sent(producer, b"b")
        assert isinstance(late, TimedOut) and "NOT_ENOUGH_REPLICAS" in str(late) and "t-0" in str(late)
        broker.always(ProduceRequest, lambda request: broker.produce(request))
        assert await sent(producer, b"c") == [1]


async def test_an_answer_that_does_not_come_closes_the_connection_and_is_asked_for_again() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap, request_ms_max=100) as producer:
        broker.then(ProduceRequest, [SILENCE])
        assert await sent(producer, b"a") == [0]


async def test_an_answer_that_leaves_a_partition_out_is_no_answer() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap) as producer:
        broker.then(ProduceRequest, [ProduceResponse(responses=[])])
        assert await sent(producer, b"a") == [0]


async def test_a_producer_id_that_is_not_given_yet_is_asked_for_again() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap) as producer:
        broker.then(InitProducerIdRequest, [InitProducerIdResponse(error_code=14), HANG_UP])
        assert await sent(producer, b"a") == [0]
        assert broker.asked_for(InitProducerIdRequest) == 3


async def test_without_acknowledgement_nothing_is_waited_for() -> None:
    async with FakeBroker(one_topic()) as broker:
        async with Producer(broker.bootstrap, acks=0) as producer:
            broker.always(ProduceRequest, store_and(broker, SILENCE))
            metadata = await producer.send("t", b"a")
            assert metadata.offset == -1
        await until(lambda: broker.stored[T0] == [b"a"])
        assert sequences(broker.asked[-1]) == [(-1, -1, 1)]


async def test_without_idempotence_order_is_kept_by_one_batch_at_a_time() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap, acks=1, linger_ms=0) as producer:
        await sent(producer, b"first")
        broker.then(ProduceRequest, [refuse(broker, 6)])
        assert await sent(producer, b"a", b"b", b"c") == [1, 2, 3]
        assert broker.stored[T0] == [b"first", b"a", b"b", b"c"]
        assert broker.asked_for(InitProducerIdRequest) == 0


async def test_the_buffer_is_bounded_and_says_when_there_is_room() -> None:
    async with (
        FakeBroker(one_topic()) as broker,
        Producer(broker.bootstrap, buffer_bytes=10_000, linger_ms=60_000) as producer,
    ):
        await producer.partitions_of("t")
        broker.then(ProduceRequest, [SILENCE])
        for _ in range(18):
            producer.send("t", bytes(500), partition=0)
        with pytest.raises(BufferFull, match="of 10000"):
            producer.send("t", bytes(500), partition=0)
        ready = asyncio.ensure_future(producer.ready())
        await asyncio.sleep(0.05)
        assert not ready.done()
        flushed = asyncio.ensure_future(producer.flush())
        await until(lambda: broker.asked_for(ProduceRequest) == 1)
        await broker.hang_up()
        await broker.__aenter__()
        await ready
        await flushed
        producer.send("t", bytes(500), partition=0)


async def test_a_topic_or_partition_that_does_not_exist_is_named() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap) as producer:
        with pytest.raises(KafkaError, match="topic 't' has 1 partitions; there is no partition 5"):
            await producer.send("t", b"x", partition=5)
        broker.always(
            MetadataRequest,
            lambda request: _with_error(broker.cluster.metadata(request), 17),  # type: ignore[arg-type]  # by its key
        )
        with pytest.raises(KafkaError, match="'bad name' cannot be the name of a topic"):
            await producer.send("bad name", b"x")


def test_a_topic_that_is_not_created_since_brokers_are_away_is_told_with_the_reason() -> None:
    told = topic_error(ErrorCode.INVALID_REPLICATION_FACTOR, "t", "topic 't' cannot be used")
    assert told.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "fewer brokers are alive than a new topic has copies" in told.message


def _with_error(answer: MetadataResponse, code: int) -> MetadataResponse:
    for topic in answer.topics:
        topic.error_code = code
    return answer


async def test_nobody_there_is_said_with_the_address() -> None:
    async with Producer("127.0.0.1:1", delivery_ms_max=100) as producer:
        with pytest.raises(NotReachable, match=r"bootstrap 127\.0\.0\.1:1"):
            await producer.send("t", b"x")


async def test_leaving_after_an_error_does_not_wait_for_delivery() -> None:
    async with FakeBroker(one_topic()) as broker:
        broker.always(ProduceRequest, lambda _request: SILENCE)
        futures = []

        async def send_and_fail() -> None:
            async with Producer(broker.bootstrap) as producer:
                futures.append(producer.send("t", b"x"))
                await until(lambda: broker.asked_for(ProduceRequest) == 1)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await send_and_fail()
        with pytest.raises(TimedOut, match="closed before"):
            await futures[0]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"acks": 2}, "acks is 0, 1 or all"),
        ({"acks": 1, "idempotent": True}, "needs acks=all"),
        ({"compression": "rar"}, "no compression 'rar'"),
        ({"bootstrap": "nowhere"}, "is not host:port"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Producer(**{"bootstrap": "h:1", **settings})  # type: ignore[arg-type]  # wrong on purpose


async def test_only_bytes_are_sent() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap) as producer:
        with pytest.raises(TypeError, match="are bytes or None"):
            producer.send("t", "text")  # type: ignore[arg-type]  # wrong on purpose
        null = await producer.send("t", None, b"key")
        assert null.offset == 0
        records = broker.asked[-1].topic_data[0].partition_data[0].records  # type: ignore[attr-defined]  # it is Produce
        assert read_header(records).record_count == 1
