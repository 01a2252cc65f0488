"""Batches that somebody else has encoded, on the same way out as records."""

import pytest

from headrace.client import BufferFull, Producer
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.wire.batch import EncodedRecords, NewRecord, encoded_records
from headrace.wire.compression import Codec
from headrace.wire.messages.produce import ProduceRequest, ProduceResponse
from headrace.wire.struct import Message
from tests.client.fake import HANG_UP, FakeBroker, sequences
from tests.client.test_producer import T0, one_topic, refuse, store_and


def encoded(*values: bytes, codec: Codec = Codec.NONE) -> EncodedRecords:
    return encoded_records([NewRecord(5, None, value) for value in values], codec)


def never(error: KafkaError) -> None:
    pytest.fail(str(error))


async def test_they_are_stored_in_order_and_numbered_on_with_the_others() -> None:
    lost: list[KafkaError] = []
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap) as producer:
        assert await producer.partitions_of("t") == [0]
        producer.send_encoded(T0, encoded(b"a", b"b", codec=Codec.ZSTD), lost.append)
        single = producer.send("t", b"c", partition=0)
        producer.send_encoded(T0, encoded(b"d"), lost.append)
        await producer.flush()
        assert broker.stored[T0] == [b"a", b"b", b"c", b"d"]
        assert single.result().offset == 2
        taken = [one for request in broker.asked if isinstance(request, ProduceRequest) for one in sequences(request)]
        assert sorted(taken) == [(101, 0, 2), (101, 2, 1), (101, 3, 1)]
    assert not lost


async def test_one_that_is_sent_again_has_its_number_still() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap) as producer:
        await producer.partitions_of("t")
        broker.then(ProduceRequest, [store_and(broker, HANG_UP), refuse(broker, 46)])  # DUPLICATE_SEQUENCE_NUMBER
        producer.send_encoded(T0, encoded(b"a"), never)
        await producer.flush()
        producer.send_encoded(T0, encoded(b"b"), never)
        await producer.flush()
        taken = [one for request in broker.asked if isinstance(request, ProduceRequest) for one in sequences(request)]
        assert taken == [(101, 0, 1), (101, 0, 1), (101, 1, 1)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
async def test_one_that_is_too_large_is_halved(codec: Codec) -> None:
    def strict(request: Message) -> ProduceResponse:
        return broker.produce(request, 10 if sum(count for *_, count in sequences(request)) > 3 else 0)

    values = [b"%d" % number for number in range(10)]
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap) as producer:
        await producer.partitions_of("t")
        broker.always(ProduceRequest, strict)
        producer.send_encoded(T0, encoded(*values, codec=codec), never)
        await producer.flush()
        assert broker.stored[T0] == values


async def test_whoever_sent_one_that_cannot_be_stored_hears_of_it_once() -> None:
    lost: list[KafkaError] = []
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap) as producer:
        await producer.partitions_of("t")
        broker.always(ProduceRequest, refuse(broker, 87))
        producer.send_encoded(T0, encoded(b"a", b"b"), lost.append)
        await producer.flush()
        assert [error.code for error in lost] == [ErrorCode.INVALID_RECORD]
        with pytest.raises(KafkaError, match="there is no partition t-1"):
            producer.send_encoded(TopicPartition("t", 1), encoded(b"a"), lost.append)


async def test_there_is_room_for_so_many_bytes() -> None:
    async with FakeBroker(one_topic()) as broker, Producer(broker.bootstrap, buffer_bytes=3_000) as producer:
        await producer.partitions_of("t")
        producer.send_encoded(T0, encoded(bytes(2_900)), never)
        with pytest.raises(BufferFull):
            producer.send_encoded(T0, encoded(bytes(500)), never)
        await producer.ready()
        producer.send_encoded(T0, encoded(bytes(500)), never)
        await producer.flush()
        assert len(broker.stored[T0]) == 2
