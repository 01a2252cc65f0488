"""Headers and length prefixes, against kio's and byte by byte."""

import random
import struct
from io import BytesIO
from typing import Any

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from headrace.model import Buffer
from headrace.wire.apis import APIS
from headrace.wire.compiler import decode, encode
from headrace.wire.encode_writer import PART_MIN
from headrace.wire.errors import Unencodable
from headrace.wire.frames import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from headrace.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.wire.messages.metadata import MetadataRequest
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.struct import Message, ProtocolError

BUFFERS = (bytes, bytearray, memoryview)


def unframed(parts: list[Buffer]) -> bytes:
    """What is sent, without its prefix, which must be right."""
    sent = b"".join(parts)
    assert struct.unpack_from(">i", sent) == (len(sent) - 4,)
    return sent[4:]


def kio_header(api_key: int, version: int, correlation_id: int, client_id: str | None, *, flexible: bool) -> bytes:
    kio: Any = KioHeader2 if flexible else KioHeader1
    out = BytesIO()
    header = kio(
        request_api_key=i16(api_key),
        request_api_version=i16(version),
        correlation_id=i32(correlation_id),
        client_id=client_id,
    )
    entity_writer(kio)(out, header)
    return out.getvalue()


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "ümlaut-€", "x" * 32767])
def test_every_request_header_is_read_as_kio_writes_it(client_id: str | None) -> None:
    for api in APIS.values():
        for version in api.versions:
            frame = kio_header(api.key, version, -7, client_id, flexible=version >= api.request.flexible)
            for make in BUFFERS:
                header = decode_request_header(make(frame + b"body"))
                assert header == RequestHeader(api.key, version, -7, client_id, len(frame))


def test_requests_are_framed_as_kio_writes_their_headers() -> None:
    for version in MetadataRequest.versions:
        message = MetadataRequest(topics=[])
        flexible = version >= MetadataRequest.flexible
        for client_id in (None, "me"):
            header = kio_header(3, version, 2**31 - 1, client_id, flexible=flexible)
            sent = unframed(encode_request(message, version, 2**31 - 1, client_id))
            assert sent == header + encode(message, version)


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (18, 5), (18, -1), (999, 0), (-1, 0), (4, 1)])
def test_of_an_unknown_request_the_first_eight_bytes_are_told(key: int, version: int) -> None:
    frame = struct.pack(">hhi", key, version, 42)
    for rest in (b"", b"\xff", b"\xff\xfe\0", bytes(100)):
        assert decode_request_header(frame + rest) == RequestHeader(key, version, 42, None, -1)


def test_tags_in_the_header_are_skipped() -> None:
    frame = struct.pack(">hhih2s", 3, 9, 1, 2, b"me")
    for tags in (b"\1\x05\3abc", b"\2\x05\0\xc8\x01\1z"):
        header = decode_request_header(frame + tags + b"body")
        assert (header.client_id, header.body_at) == ("me", len(frame + tags))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\3\0\x09\0\0\0",
        struct.pack(">hhi", 3, 1, 1),
        struct.pack(">hhih", 3, 1, 1, -2),
        struct.pack(">hhih", 3, 1, 1, 5) + b"abcd",
        struct.pack(">hhih", 3, 1, 1, 2) + b"\xc3\x28",
        struct.pack(">hhih", 3, 9, 1, -1),
        struct.pack(">hhih", 3, 9, 1, -1) + b"\1\x05\3ab",
        struct.pack(">hhih", 3, 9, 1, -1) + b"\xff\xff\xff\xff\xff\xff",
        struct.pack(">hhih", 3, 9, 1, -1) + b"\1\x05\xff\xff\xff\xff\x07",
    ],
)
def test_a_malformed_request_header_is_refused(frame: bytes) -> None:
    for make in BUFFERS:
        with pytest.raises(ProtocolError):
            decode_request_header(make(frame))


def test_mutated_headers_are_read_or_refused() -> None:
    chance = random.Random(1)
    good = b"".join(encode_request(MetadataRequest(topics=[]), 12, 5, "client"))[4:]
    refused = 0
    for _ in range(3000):
        frame = bytearray(good)
        frame[chance.randrange(len(frame))] = chance.getrandbits(8)
        del frame[chance.randrange(len(frame) + 20) :]
        try:
            header = decode_request_header(frame)
        except ProtocolError:
            refused += 1
        else:
            assert -1 <= header.body_at <= len(frame)
    assert 0 < refused < 3000


def response(cls: type[Message]) -> Message:
    return FetchResponse(responses=[], session_id=9) if cls is FetchResponse else ApiVersionsResponse(api_keys=[])


@pytest.mark.parametrize(
    ("cls", "version", "header"),
    [
        (FetchResponse, 11, b"\0\0\0\7"),
        (FetchResponse, 12, b"\0\0\0\7\0"),
        (ApiVersionsResponse, 2, b"\0\0\0\7"),
        (ApiVersionsResponse, 3, b"\0\0\0\7"),
        (ApiVersionsResponse, 4, b"\0\0\0\7"),
    ],
)
def test_a_response_has_the_header_of_its_version(cls: type[Message], version: int, header: bytes) -> None:
    message = response(cls)
    sent = unframed(encode_response(message, version, 7))
    assert sent == header + encode(message, version)
    for make in BUFFERS:
        assert decode_response(cls, version, make(sent)) == (7, message)


def test_tags_in_a_response_header_are_skipped() -> None:
    message = FetchResponse(responses=[], session_id=9)
    assert decode_response(FetchResponse, 12, b"\0\0\0\7\1\x63\2hi" + encode(message, 12)) == (7, message)


def test_a_cut_response_is_refused() -> None:
    sent = unframed(encode_response(FetchResponse(responses=[], session_id=9), 12, 7))
    for size in range(len(sent)):
        with pytest.raises(ProtocolError):
            decode_response(FetchResponse, 12, sent[:size])


def test_an_answer_to_an_unknown_api_versions_request_is_version_zero() -> None:
    answer = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])
    sent = unframed(encode_response(answer, 0, 1))
    assert sent == b"\0\0\0\1" + b"\0\x23" + b"\0\0\0\1" + b"\0\x12\0\0\0\4"


def test_records_are_sent_from_the_buffer_that_holds_them() -> None:
    short, long = bytearray(PART_MIN - 1), memoryview(bytearray(PART_MIN))
    contents: list[Buffer] = [long, short, long]
    partitions = [PartitionData(partition_index=n, high_watermark=0, records=r) for n, r in enumerate(contents)]
    for version in FetchResponse.versions:
        parts = encode_response(
            FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)]), version, 1
        )
        assert [part is long for part in parts] == [False, True, False, True, False]
        unframed(parts)


def test_records_received_are_views_of_the_frame() -> None:
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"r" * 2000)])]
    request = ProduceRequest(acks=1, timeout_ms=5, topic_data=data)
    for version in ProduceRequest.versions:
        frame = bytearray(unframed(encode_request(request, version, 1, "me")))
        for handed in (frame, memoryview(frame), bytes(frame)):
            at = decode_request_header(handed).body_at
            records = decode(ProduceRequest, version, handed, at).topic_data[0].partition_data[0].records
            assert type(records) is memoryview and records == b"r" * 2000
            assert records.readonly == isinstance(handed, bytes)
            assert records.obj is (handed if isinstance(handed, bytes) else frame)


def test_what_does_not_fit_the_wire_is_refused() -> None:
    with pytest.raises(ProtocolError, match="ProduceRequest v3 cannot carry"):
        encode_request(ProduceRequest(acks=40000, timeout_ms=0, topic_data=[]), 3, 1, None)
    topic = CreatableTopic(name="t", num_partitions=99_999_999_999)
    with pytest.raises(Unencodable, match="num_partitions is 99999999999, and must be from -2147483648 to 2147483647"):
        encode_request(CreateTopicsRequest(topics=[topic]), 7, 1, None)
    assigned = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 1 << 31])
    topic = CreatableTopic(name="t", assignments=[assigned])
    with pytest.raises(Unencodable, match="broker_ids is 2147483648"):
        encode_request(CreateTopicsRequest(topics=[topic]), 7, 1, None)
    with pytest.raises(Unencodable, match="surrogates"):
        encode_request(CreateTopicsRequest(topics=[CreatableTopic(name="\udcff")]), 7, 1, None)
    with pytest.raises(ProtocolError, match="MetadataRequest has no version 14"):
        encode_request(MetadataRequest(), 14, 1, None)
    with pytest.raises(ProtocolError, match="client id"):
        encode_request(ApiVersionsRequest(), 0, 1, "x" * 32768)


def test_librdkafka_may_ask_for_all_topics_with_three_bytes_too_many() -> None:
    """As captured from its version 2.16: the null array takes four bytes where one would do."""
    frame = bytes.fromhex("0003000d00000003000772646b61666b610000000000010000")
    header = decode_request_header(frame)
    assert decode(MetadataRequest, header.api_version, frame, header.body_at).topics is None
