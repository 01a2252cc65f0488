"""Message classes as Python sees them, and declarations that cannot be right."""

from typing import Any

import pytest

from headrace.wire.compiler import decode, encode, precompile
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from headrace.wire.messages.produce import PartitionProduceResponse, TopicProduceResponse
from headrace.wire.struct import Message, Struct, maker
from headrace.wire.types import Bytes, Float64, Int32, String, UInt16, Uuid, field, tagged


class Everything(Message, api=99, versions=(0, 1), flexible=1):
    """Types that no message in use has yet."""

    ports: list[UInt16]
    rate: Float64 = 0.0
    blob: Bytes = b""
    maybe: Bytes | None = None
    ids: list[Uuid] = field(default_factory=list)
    extra: list[String] = tagged(0, default_factory=list, since=1)


def test_a_message_is_made_from_keywords_and_has_no_other_fields() -> None:
    broker = MetadataResponseBroker(node_id=1, host="h", port=9092)
    assert repr(broker) == "MetadataResponseBroker(node_id=1, host='h', port=9092, rack=None)"
    assert broker == MetadataResponseBroker(node_id=1, host="h", port=9092)
    assert broker != MetadataResponseBroker(node_id=1, host="h", port=9093)
    assert broker != "another thing"
    untyped: Any = MetadataResponseBroker
    for arguments in ((1, "h", 2), ()):
        with pytest.raises(TypeError):
            untyped(*arguments)
    with pytest.raises(TypeError):
        untyped(node_id=1, host="h", port=2, colour="blue")
    with pytest.raises(AttributeError):
        broker.colour = "blue"  # type: ignore[attr-defined]  # slots refuse it
    with pytest.raises(TypeError):
        hash(broker)


def test_a_maker_makes_what_its_class_makes() -> None:
    make = maker(PartitionProduceResponse)
    assert make(index=3, error_code=7) == PartitionProduceResponse(index=3, error_code=7)
    assert type(make(index=3)) is PartitionProduceResponse
    assert make(index=3).record_errors is not make(index=3).record_errors
    for keywords in ({}, {"index": 1, "colour": "blue"}):
        with pytest.raises(TypeError):
            make(**keywords)  # type: ignore[arg-type]  # what is tested is that it cannot be


def test_lists_are_not_shared_between_messages() -> None:
    one = PartitionProduceResponse(index=0)
    other = PartitionProduceResponse(index=0)
    assert one.record_errors == [] and one.record_errors is not other.record_errors
    assert MetadataRequest(topics=None).topics is None
    first = decode(MetadataResponse, 0, bytes(8))
    assert first.topics is not decode(MetadataResponse, 0, bytes(8)).topics


@pytest.mark.parametrize("version", [0, 1])
def test_every_wire_type_makes_the_round_trip(version: int) -> None:
    message = Everything(
        ports=[0, 65535], rate=-1.5, blob=b"\0x", maybe=b"", ids=[bytes(16), b"0123456789abcdef"], extra=["a"] * version
    )
    for make in (bytes, bytearray, memoryview):
        assert decode(Everything, version, make(encode(message, version))) == message
    assert decode(Everything, version, encode(Everything(ports=[]), version)) == Everything(ports=[])


def test_precompiling_leaves_nothing_to_compile() -> None:
    class Request(Message, api=99, versions=(2, 4)):
        number: Int32

    precompile(Request, encoders=False)
    assert (set(Request.decoders), set(Request.encoders)) == ({2, 3, 4}, set())
    precompile(Request)
    assert (set(Request.decoders), set(Request.encoders)) == ({2, 3, 4}, {2, 3, 4})


def test_declarations_that_cannot_be_right_are_refused() -> None:
    with pytest.raises(TypeError, match="has no wire type"):

        class Plain(Struct):
            number: int

    with pytest.raises(TypeError, match="default_factory=list"):

        class Shared(Struct):
            numbers: list[Int32] = field(default=[])

    with pytest.raises(TypeError, match="no default other than None"):

        class Nested(Struct):
            topic: TopicProduceResponse = TopicProduceResponse(partition_responses=[])

    with pytest.raises(TypeError, match="needs a default"):

        class Sometimes(Struct):
            number: Int32 = field(since=3)


def test_an_array_of_nothing_cannot_be_declared() -> None:
    class Nothing(Struct):
        late: Int32 = field(default=0, since=1)

    class Bomb(Message, api=99, versions=(0, 1)):
        items: list[Nothing]

    with pytest.raises(TypeError, match="array of nothing"):
        decode(Bomb, 0, b"\x7f\xff\xff\xff")
    assert len(decode(Bomb, 1, b"\0\0\0\1\0\0\0\5").items) == 1
