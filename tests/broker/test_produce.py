"""Produce: every verdict over the wire, in every version, and what is in the log afterwards."""

import struct

import pytest

from headrace.core.acl import Operation, Resource
from headrace.errors import ErrorCode
from headrace.wire.batch import CRC_AT, HEADER_BYTES, crc_of, headers, read_header, read_records
from headrace.wire.compression import Codec
from headrace.wire.frames import decode_response, encode_request
from headrace.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.support import (
    NOW_MS,
    TOPIC,
    Client,
    only_partition,
    produce_request,
    records_of,
    serving,
    values_of,
)
from tests.net.loops import on_both_loops

VERSIONS = range(3, 14)


async def log_of(client: Client, partition: int = 0) -> list[bytes | None]:
    return values_of((await client.fetch(0, partition)).records)


@on_both_loops
async def test_what_was_acknowledged_can_be_fetched() -> None:
    async with serving() as (_, client):
        first = await client.produce(records_of([b"a", b"b"]))
        second = await client.produce(records_of([b"c"]))
        assert (first.base_offset, second.base_offset) == (0, 2)
        assert await log_of(client) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_is_served(version: int) -> None:
    async with serving() as (served, client):
        broker = served.node.broker
        assert broker is not None
        answer = await client.send(topic_id=broker.image.topics[TOPIC].id, version=version)
        topic = answer.responses[0]
        assert (topic.name, topic.topic_id) == (
            (TOPIC, bytes(16)) if version < 13 else ("", broker.image.topics[TOPIC].id)
        )
        partition = only_partition(answer)
        assert (partition.error_code, partition.base_offset, partition.log_append_time_ms) == (0, 0, -1)
        assert partition.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_versions_before_record_batches_close_the_connection(version: int) -> None:
    async with serving() as (served, client):
        raw = await served.raw()
        (frame,) = encode_request(produce_request({}), 3, 1, None)
        frame = bytearray(frame)
        struct.pack_into(">h", frame, 6, version)
        raw.send([frame])
        assert await raw.is_closed()
        raw.close()
        assert (await client.produce()).error_code == 0  # nobody else notices


def old_message_set(magic: int) -> bytearray:
    """One message with the layout of magic 0 or 1."""
    body = struct.pack(">Ibb", 0, magic, 0) + (struct.pack(">q", NOW_MS) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", 100) + bytes(100)
    return bytearray(struct.pack(">qi", 0, len(body)) + body)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", [3, 6, 12])
async def test_old_message_sets_are_invalid_records(magic: int, version: int) -> None:
    async with serving() as (_, client):
        answer = await client.produce(old_message_set(magic), version=version)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert answer.base_offset == -1


async def test_refused_batches_are_named_by_their_codes_and_leave_nothing() -> None:
    corrupt = records_of()
    corrupt[-1] ^= 1
    async with serving(topic={"max.message.bytes": "1000"}) as (_, client):
        for raw, code in [
            (corrupt, ErrorCode.CORRUPT_MESSAGE),
            (None, ErrorCode.INVALID_RECORD),
            (bytearray(), ErrorCode.INVALID_RECORD),
            (bytearray(20), ErrorCode.INVALID_RECORD),
            (records_of() + records_of(), ErrorCode.INVALID_RECORD),
            (records_of(control=True), ErrorCode.INVALID_RECORD),
            (records_of([bytes(1000)]), ErrorCode.MESSAGE_TOO_LARGE),
            (records_of(timestamps=[NOW_MS + 3_600_001]), ErrorCode.INVALID_TIMESTAMP),
            (records_of(transactional=True, producer=(1, 0, 0)), ErrorCode.INVALID_TXN_STATE),
        ]:
            answer = only_partition(await client.ask(produce_request({0: raw}), ProduceResponse, 12))
            assert (answer.error_code, answer.base_offset) == (code, -1)
        assert (await client.produce()).base_offset == 0


async def test_append_time_is_the_brokers_and_is_told_to_the_producer() -> None:
    async with serving(topic={"message.timestamp.type": "LogAppendTime"}) as (served, client):
        served.world.clock.now_ms += 5
        answer = await client.produce(records_of([b"a", b"b"], timestamps=[1, 2]))
        assert answer.log_append_time_ms == NOW_MS + 5
        stored = (await client.fetch(0)).records
        assert stored is not None
        assert read_header(stored).is_log_append_time
        assert [record.timestamp for record in read_records(stored)] == [NOW_MS + 5] * 2


@pytest.mark.parametrize("codec", list(Codec))
async def test_batches_are_stored_in_the_compression_they_came_in(codec: Codec) -> None:
    async with serving() as (_, client):
        await client.produce(records_of([b"x" * 100] * 10, codec=codec))
        stored = (await client.fetch(0)).records
        assert stored is not None
        assert read_header(stored).codec is codec
        assert values_of(stored) == [b"x" * 100] * 10


@pytest.mark.parametrize(("version", "code"), [(6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)])
async def test_zstd_needs_version_7(version: int, code: ErrorCode) -> None:
    async with serving() as (_, client):
        answer = await client.produce(records_of([b"x" * 100], codec=Codec.ZSTD), version=version)
        assert answer.error_code == code
        assert await client.offset() == (0 if code else 1)


async def test_a_refusal_says_why_in_words() -> None:
    async with serving({"message.max.bytes": "1000"}) as (_, client):
        too_large = records_of([b"x" * 2000])
        corrupt = bytearray(records_of())
        corrupt[-1] ^= 1
        answers = [
            await client.produce(too_large),
            await client.produce(corrupt),
            await client.produce(b""),
            await client.produce(partition=7),
            await client.produce(topic="nobody"),
            await client.produce(acks=5),
        ]
        assert all(answer.error_code and answer.error_message for answer in answers)
        assert "max.message.bytes" in (answers[0].error_message or "")
        assert (await client.produce()).error_message is None
        assert (await client.produce(b"", version=7)).error_code == ErrorCode.INVALID_RECORD


async def test_unknown_topics_and_partitions_have_their_own_codes() -> None:
    async with serving() as (served, client):
        broker = served.node.broker
        assert broker is not None
        topic_id = broker.image.topics[TOPIC].id
        assert (await client.produce(topic="nobody")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await client.produce(partition=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await client.produce(partition=-1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        by_id = await client.produce(topic_id=bytes(15) + b"?", version=13)
        assert by_id.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        by_id = await client.produce(partition=1, topic_id=topic_id, version=13)
        assert by_id.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "nobody" not in broker.image.topics


async def test_the_id_of_a_topic_that_was_deleted_and_made_again_is_another() -> None:
    async with serving() as (_, client):
        await client.delete_topic()
        old = await client.create_topic()
        await client.produce(topic_id=old, version=13)
        await client.delete_topic()
        new = await client.create_topic()
        assert (await client.produce(topic_id=old, version=13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert (await client.produce(topic_id=new, version=13)).base_offset == 0


async def test_one_bad_partition_does_not_spoil_the_others() -> None:
    corrupt = records_of()
    corrupt[-1] ^= 1
    async with serving(partitions=3) as (_, client):
        request = produce_request({0: records_of([b"a"]), 1: corrupt, 7: records_of(), 2: records_of([b"c"])})
        answer = await client.ask(request, ProduceResponse, 12)
        answers = {a.index: (a.error_code, a.base_offset) for a in answer.responses[0].partition_responses}
        assert answers == {0: (0, 0), 1: (2, -1), 7: (3, -1), 2: (0, 0)}
        assert [await log_of(client, index) for index in range(3)] == [[b"a"], [], [b"c"]]


async def test_a_partition_named_twice_in_one_request_gets_both_batches_in_order() -> None:
    async with serving() as (_, client):
        parts = [PartitionProduceData(index=0, records=records_of([value])) for value in (b"a", b"b")]
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=parts)]
        )
        answer = await client.ask(request, ProduceResponse, 12)
        assert [a.base_offset for a in answer.responses[0].partition_responses] == [0, 1]
        assert await log_of(client) == [b"a", b"b"]


async def test_a_request_without_partitions_is_answered() -> None:
    async with serving() as (_, client):
        answer = await client.ask(ProduceRequest(acks=1, timeout_ms=0, topic_data=[]), ProduceResponse, 12)
        assert answer.responses == []


async def test_answers_come_in_the_order_of_the_requests() -> None:
    async with serving(partitions=2) as (_, client):
        asked = [client.send(partition=number % 3, acks=1) for number in range(60)]
        answers = [only_partition(await future) for future in asked]
        assert [a.index for a in answers] == [number % 3 for number in range(60)]
        assert [a.base_offset for a in answers[0::3]] == list(range(20))
        assert [a.error_code for a in answers[2::3]] == [3] * 20


async def test_batches_of_one_turn_lie_in_the_log_one_after_another() -> None:
    async with serving() as (_, client):
        asked = [client.send(records_of([b"%d" % number])) for number in range(100)]
        assert [only_partition(await future).base_offset for future in asked] == list(range(100))
        stored = (await client.fetch(0)).records
        assert [header.base_offset for _, header in headers(stored or b"")] == list(range(100))
        assert values_of(stored) == [b"%d" % number for number in range(100)]


async def test_who_may_not_write_is_told_so_and_nothing_else() -> None:
    def is_allowed(_: str, operation: Operation, resource: Resource) -> bool:
        return operation is not Operation.WRITE or resource.name not in ("secret", "missing")

    async with serving(is_allowed=is_allowed) as (_, client):
        topic_id = await client.create_topic("secret")
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await client.produce(topic="secret")).error_code == denied
        assert (await client.produce(topic="missing")).error_code == denied
        assert (await client.produce(topic_id=topic_id, version=13)).error_code == denied
        assert (await client.produce()).error_code == 0
        assert await client.offset(topic="secret") == 0


async def test_a_batch_whose_records_are_nonsense_harms_nobody() -> None:
    """The broker never looks inside: what fits its checksum is stored, and everything else goes on working."""
    nonsense = records_of([b"good"], timestamps=[NOW_MS])
    nonsense[HEADER_BYTES:] = b"\xff" * (len(nonsense) - HEADER_BYTES)
    struct.pack_into(">I", nonsense, CRC_AT, crc_of(nonsense, 0, len(nonsense)))
    async with serving() as (served, client):
        assert (await client.produce(records_of([b"before"], timestamps=[NOW_MS - 9]))).base_offset == 0
        assert (await client.produce(nonsense)).base_offset == 1
        assert (await client.produce(records_of([b"after"], timestamps=[NOW_MS + 9]))).base_offset == 2
        assert await client.offset(NOW_MS - 9) == 0
        assert await client.offset(NOW_MS - 8) == 1
        assert await client.offset(NOW_MS + 1) == 2
        assert await client.offset(-3) == 2
        assert (await served.page("/readyz"))[0] == 200


async def test_answers_are_those_that_were_asked_for() -> None:
    """Correlation ids, without a client that sorts anything."""
    async with serving() as (served, _):
        raw = await served.raw()
        for correlation_id in (7, 5, 9):
            raw.send(encode_request(produce_request({0: records_of()}, acks=1), 9, correlation_id, "me"))
        answers = [decode_response(ProduceResponse, 9, await raw.frame()) for _ in range(3)]
        assert [correlation_id for correlation_id, _ in answers] == [7, 5, 9]
        assert [only_partition(body).base_offset for _, body in answers] == [0, 1, 2]
        raw.close()
