"""Frames that real clients and Apache Kafka sent each other: read, and written again byte for byte."""

from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.model import Buffer
from headrace.wire.apis import APIS
from headrace.wire.compiler import decode, encode
from headrace.wire.frames import decode_request_header, decode_response, encode_request, encode_response
from headrace.wire.messages.fetch import FetchRequest, FetchResponse
from headrace.wire.messages.metadata import MetadataResponse
from headrace.wire.messages.produce import ProduceRequest
from headrace.wire.messages.versions import ApiVersionsRequest

GOLDEN = Path(__file__).parent / "golden"


class Captured(NamedTuple):
    client: str
    key: int
    version: int
    kind: str
    frame: bytes


def captured() -> list[Captured]:
    frames = []
    for path in sorted(GOLDEN.glob("*.txt")):
        for line in path.read_text().splitlines():
            _, key, version, kind, frame = line.split()
            frames.append(Captured(path.stem, int(key), int(version), kind, bytes.fromhex(frame)))
    return frames


FRAMES = captured()


def label(one: Captured) -> str:
    return f"{one.client}-{APIS[one.key].name}-v{one.version}-{one.kind}"


def framed(parts: list[Buffer]) -> bytes:
    return b"".join(parts)[4:]


@pytest.mark.parametrize("one", [one for one in FRAMES if one.kind == "request"], ids=label)
def test_a_captured_request_is_read_and_written_again(one: Captured) -> None:
    for make in (bytes, bytearray, memoryview):
        frame = make(one.frame)
        header = decode_request_header(frame)
        assert (header.api_key, header.api_version) == (one.key, one.version)
        message = decode(APIS[one.key].request, one.version, frame, header.body_at)
        again = encode_request(message, one.version, header.correlation_id, header.client_id)
        assert framed(again) == one.frame


@pytest.mark.parametrize("one", [one for one in FRAMES if one.kind == "response"], ids=label)
def test_a_captured_response_is_read_and_written_again(one: Captured) -> None:
    correlation_id, message = decode_response(APIS[one.key].response, one.version, one.frame)
    assert framed(encode_response(message, one.version, correlation_id)) == one.frame


def the(client: str, key: int, kind: str) -> Captured:
    (one,) = (one for one in FRAMES if (one.client, one.key, one.kind) == (client, key, kind))
    return one


def body_at(one: Captured) -> int:
    return decode_request_header(one.frame).body_at


NOT_CAPTURED = {43, 56, 18200, 18201, 18202, 18203}
"""ElectLeaders is compared with another codec only; the others no client of Kafka says."""


def test_every_api_was_captured() -> None:
    seen = {(one.key, one.kind) for one in FRAMES}
    assert seen == {(key, kind) for key in APIS.keys() - NOT_CAPTURED for kind in ("request", "response")}


def test_what_clients_said_is_understood() -> None:
    hello = the("java", 18, "request")
    greeting = decode(ApiVersionsRequest, hello.version, hello.frame, body_at(hello))
    assert (greeting.client_software_name, greeting.client_software_version) == ("apache-kafka-java", "4.3.1")

    produced = the("librdkafka", 0, "request")
    request = decode(ProduceRequest, produced.version, produced.frame, body_at(produced))
    assert request.acks == -1 and [topic.name for topic in request.topic_data] == ["golden-c"]
    assert all(partition.records is not None for partition in request.topic_data[0].partition_data)

    fetching = the("kafkajs", 1, "request")
    fetch = decode(FetchRequest, fetching.version, fetching.frame, body_at(fetching))
    assert [topic.topic for topic in fetch.topics] == ["golden-j"] and fetch.session_id == 0

    fetched = the("kafkajs", 1, "response")
    _, answer = decode_response(FetchResponse, fetched.version, fetched.frame)
    records = answer.responses[0].partitions[0].records
    assert isinstance(records, memoryview) and records[16] == 2  # the magic of a batch

    told = the("kcat", 3, "response")
    _, metadata = decode_response(MetadataResponse, told.version, told.frame)
    assert [(broker.node_id, broker.host) for broker in metadata.brokers] == [(1, "127.0.0.1")]
    assert "golden-kcat" in {topic.name for topic in metadata.topics}


def test_a_batch_that_a_client_sent_is_not_touched() -> None:
    one = the("java", 0, "request")
    message = decode(ProduceRequest, one.version, one.frame, body_at(one))
    records = message.topic_data[0].partition_data[0].records
    assert records is not None and bytes(records) in one.frame
    assert encode(message, one.version) == one.frame[body_at(one) :]
