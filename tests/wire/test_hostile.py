"""Whatever bytes arrive: a message, or ProtocolError, and never more memory than the bytes are worth."""

import functools
import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.model import Buffer
from headrace.wire.compiler import decode, encode
from headrace.wire.decode_writer import ITEMS_MAX
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from headrace.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from headrace.wire.messages.produce import ProduceRequest, ProduceResponse
from headrace.wire.primitives import uvarint, uvarint_tail
from headrace.wire.struct import Message, ProtocolError
from tests.wire.oracle import PAIRS, kio_bytes, kio_class, random_entity

FLEXIBLE_PAIRS = [(cls, version) for cls, version in PAIRS if version >= cls.flexible]
BUFFERS = (bytes, bytearray, memoryview)


def label(value: object) -> str:
    return value.__name__ if isinstance(value, type) else f"v{value}"


@functools.cache
def valid(cls: type[Message], version: int) -> bytes:
    """A message that somebody might send: the longest of a few that are not long."""
    chance = random.Random(f"{cls.__name__} {version}")
    wires = [kio_bytes(random_entity(chance, kio_class(cls, version), items_max=2)) for _ in range(12)]
    return max((wire for wire in wires if len(wire) < 600), key=len, default=min(wires, key=len))


def mutants(wire: bytes, chance: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        mutant = bytearray(wire)
        for _ in range(chance.choice((1, 1, 2, 5))):
            at = chance.randrange(len(mutant) + 1)
            width = chance.choice((1, 1, 2, 4, 8))
            hostile = chance.choice((b"\xff" * width, b"\x7f" * width, bytes(width), chance.randbytes(width)))
            mutant[at : at + chance.choice((0, width, width))] = hostile
            if chance.random() < 0.2:
                del mutant[chance.randrange(len(mutant) + 1) :]
        yield bytes(mutant)


def refused(cls: type[Message], version: int, wire: Buffer) -> bool:
    try:
        decode(cls, version, wire)
    except ProtocolError:
        return True
    return False


@pytest.mark.parametrize(("cls", "version"), PAIRS, ids=label)
def test_mutated_messages_are_read_or_refused(cls: type[Message], version: int) -> None:
    chance = random.Random(f"mutants of {cls.__name__} {version}")
    wire = valid(cls, version)
    outcomes = {refused(cls, version, chance.choice(BUFFERS)(mutant)) for mutant in mutants(wire, chance, 60)}
    assert True in outcomes


@pytest.mark.parametrize(("cls", "version"), PAIRS, ids=label)
def test_a_message_cut_short_is_refused_and_so_is_one_too_long(cls: type[Message], version: int) -> None:
    wire = valid(cls, version)
    assert not refused(cls, version, wire)
    kept = [size for size in range(len(wire)) if not refused(cls, version, BUFFERS[size % 3](wire[:size]))]
    assert kept == []
    for extra in (b"\0", b"\1", b"\xff" * 9):
        assert refused(cls, version, wire + extra) == (len(extra) > cls.surplus_bytes_max)


@given(st.sampled_from(PAIRS), st.binary(max_size=300))
@example((MetadataRequest, 9), b"\x81\x80\x80\x80\x80\x80\x00")
def test_random_bytes_are_read_or_refused(pair: tuple[type[Message], int], wire: bytes) -> None:
    try:
        message = decode(*pair, wire)
    except ProtocolError:
        return
    assert decode(*pair, encode(message, pair[1])) == message


@given(st.sampled_from(PAIRS), st.data())
def test_bytes_put_anywhere_are_read_or_refused(pair: tuple[type[Message], int], data: st.DataObject) -> None:
    wire = valid(*pair)
    at = data.draw(st.integers(0, len(wire)))
    mutant = wire[:at] + data.draw(st.binary(max_size=12)) + wire[at + data.draw(st.integers(0, 12)) :]
    refused(*pair, mutant)


@pytest.mark.parametrize(
    ("cls", "version"), [pair for pair in PAIRS if pair[1] in (pair[0].versions[0], pair[0].versions[-1])], ids=label
)
def test_no_claim_of_a_length_costs_memory(cls: type[Message], version: int) -> None:
    wire = valid(cls, version)
    claim = b"\xff\xff\xff\xff\x07" if version >= cls.flexible else b"\x7f\xff\xff\xff"
    refused(cls, version, wire)  # compiles
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for at in range(len(wire)):
            refused(cls, version, wire[:at] + claim + wire[at + len(claim) :])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 100_000


def test_as_many_items_as_bytes_are_refused_before_they_are_made() -> None:
    # Two bytes each, and really there: only the bound on items stands between 4 MB and 200 MB of objects.
    wire = uvarint(ITEMS_MAX + 2) + b"\1\0" * (ITEMS_MAX + 1) + b"\0\0\0\0"
    assert len(wire) > 2 * ITEMS_MAX
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="topics claims more items"):
            decode(MetadataRequest, 9, wire)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000


def test_items_count_together_over_all_arrays_of_a_message() -> None:
    forgotten = [ForgottenTopic(partitions=[0] * 1000)] * (ITEMS_MAX // 1000)
    wire = encode(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], forgotten_topics_data=forgotten), 7)
    with pytest.raises(ProtocolError, match="claims more items"):
        decode(FetchRequest, 7, wire)


@pytest.mark.parametrize(("cls", "version"), FLEXIBLE_PAIRS, ids=label)
def test_tags_from_the_future_are_skipped(cls: type[Message], version: int) -> None:
    message = decode(cls, version, valid(cls, version))
    for spec in cls.__fields__:
        if spec.tag is not None:
            setattr(message, spec.name, spec.default if spec.default is None or isinstance(spec.default, int) else [])
    wire = encode(message, version)
    assert wire[-1] == 0  # no tags
    for unknown in (b"\1\x60\3abc", b"\2\x60\0\xff\x7f\x01z", b"\1\x60\x80\x01" + bytes(128)):
        for make in BUFFERS:
            assert decode(cls, version, make(wire[:-1] + unknown)) == message
    assert refused(cls, version, wire[:-1] + b"\1\x60\4abc")
    assert refused(cls, version, wire[:-1] + b"\2\x60\3abc")
    assert refused(cls, version, wire[:-1] + b"\xff\xff\xff\xff\x07\x60\3abc")


def test_unknown_tags_are_skipped_in_the_middle_of_an_array() -> None:
    partitions = [FetchPartition(partition=n, fetch_offset=n, partition_max_bytes=n) for n in range(3)]
    message = FetchRequest(max_wait_ms=5, min_bytes=6, topics=[FetchTopic(topic="t", partitions=partitions)])
    wire = encode(message, 12)
    # 25 bytes of fields, two counts and the name stand before the first partition; a partition has 33.
    at = 25 + 1 + 2 + 1 + 2 * 33 - 1
    assert wire[at] == 0
    for make in BUFFERS:
        assert decode(FetchRequest, 12, make(wire[:at] + b"\1\x07\2hi" + wire[at + 1 :])) == message


PRODUCE_ANSWER = (
    b"\2" + b"\2t" + b"\2" + bytes(4 + 2 + 8 + 8 + 8) + b"\1\0" + b"%b" + b"\0" + bytes(4) + b"\0"
)  # one topic, one partition whose tags are to be filled in


def test_a_known_tag_must_fill_its_size() -> None:
    good = decode(ProduceResponse, 10, PRODUCE_ANSWER % b"\1\0\x09\0\0\0\7\0\0\0\x08\0")
    leader = good.responses[0].partition_responses[0].current_leader
    assert leader is not None and (leader.leader_id, leader.leader_epoch) == (7, 8)
    for bad in (b"\1\0\x08\0\0\0\7\0\0\0\x08\0", b"\1\0\x0a\0\0\0\7\0\0\0\x08\0", b"\1\0\x0a\0\0\0\7\0\0\0\x08\0\0"):
        assert refused(ProduceResponse, 10, PRODUCE_ANSWER % bad)


def test_of_two_equal_tags_the_last_counts_whatever_their_order() -> None:
    first, second = b"\0\x09\0\0\0\1\0\0\0\1\0", b"\0\x09\0\0\0\2\0\0\0\2\0"
    answer = decode(ProduceResponse, 10, PRODUCE_ANSWER % (b"\3" + first + b"\x05\1x" + second))
    leader = answer.responses[0].partition_responses[0].current_leader
    assert leader is not None and leader.leader_id == 2


@pytest.mark.parametrize(
    ("version", "wire", "sentence"),
    [
        (3, b"\xff\xfe" + bytes(10), "transactional_id has a negative length"),
        (3, b"\xff\xff" + bytes(6) + b"\xff\xff\xff\xff", "topic_data must not be null"),
        (3, b"\xff\xff" + bytes(6) + b"\x80\0\0\0", "topic_data must not be null"),
        (
            3,
            b"\xff\xff" + bytes(6) + b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xfe",
            "records has a negative length",
        ),
        (3, b"\xff\xff" + bytes(6) + b"\0\0\0\1\xff\xff\0\0\0\0", "name must not be null"),
        (
            3,
            b"\xff\xff" + bytes(6) + b"\0\0\0\x0b" + bytes(60),
            "topic_data claims more items than the message can hold",
        ),
        (9, b"\0" + bytes(6) + b"\0\0", "topic_data must not be null"),
        (9, b"\0" + bytes(6) + b"\x0c" + bytes(29), "topic_data claims more items than the message can hold"),
        (9, b"\x80\x80\x80\x80\x80\x00" + bytes(8), "a varint is too long"),
        (9, b"\x80\x80\x80\x80\x08" + bytes(8), "a varint is too long"),
        (9, b"\2\xff" + bytes(8), "malformed"),
        (9, b"\xff\xff\xff\xff\x07" + bytes(8), "malformed"),
    ],
)
def test_a_produce_request_with_a_bad_length_is_refused(version: int, wire: bytes, sentence: str) -> None:
    for make in BUFFERS:
        with pytest.raises(ProtocolError, match=sentence):
            decode(ProduceRequest, version, make(wire))


def test_a_value_is_null_only_in_versions_that_allow_it() -> None:
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None
    with pytest.raises(ProtocolError, match="topics must not be null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    nameless = MetadataResponse(brokers=[], topics=[MetadataResponseTopic(name=None, partitions=[])])
    assert decode(MetadataResponse, 12, encode(nameless, 12)) == nameless
    with pytest.raises(ProtocolError, match="name must not be null"):
        decode(MetadataResponse, 11, encode(nameless, 12))
    with pytest.raises(ProtocolError, match="MetadataResponse v11 cannot carry its values"):
        encode(nameless, 11)


def test_a_struct_is_there_or_null_and_nothing_else() -> None:
    request = b"\1\0\0\0\5%b\0"
    assert decode(DescribeTopicPartitionsRequest, 0, request % b"\xff").cursor is None
    cursor = decode(DescribeTopicPartitionsRequest, 0, request % b"\1\2t\0\0\0\7\0").cursor
    assert cursor is not None and cursor.partition_index == 7
    for mark in (b"\0", b"\2", b"\xfe"):
        assert refused(DescribeTopicPartitionsRequest, 0, request % mark)
        assert refused(DescribeTopicPartitionsRequest, 0, request % (mark + b"\2t\0\0\0\7\0"))


@given(st.integers(0, 2**31 - 1))
@example(127)
@example(128)
@example(2**28)
def test_a_varint_makes_the_round_trip(value: int) -> None:
    wire = uvarint(value)
    if value > 127:
        assert uvarint_tail(wire, 1, wire[0]) == (value, len(wire))
    else:
        assert wire == bytes([value])


def test_overlong_varints_are_read_as_kafka_reads_them() -> None:
    assert decode(ProduceRequest, 9, b"\x80\x00" + bytes(6) + b"\x81\x00\x00").topic_data == []


def test_a_version_nobody_declared_is_refused() -> None:
    for version in (-1, 2, 14):
        with pytest.raises(ProtocolError, match="has no version"):
            decode(ProduceRequest, version, b"")
