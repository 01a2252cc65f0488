"""The records of __consumer_offsets, byte by byte as Kafka writes them, and what Kafka may have written."""

import struct

import pytest

from headrace.wire.batch import NewRecord, build, read_header
from headrace.wire.compression import Codec
from headrace.wire.errors import ProtocolError
from headrace.wire.group_records import (
    CommittedOffset,
    GroupMember,
    GroupMetadataValue,
    group_key,
    group_value,
    offset_key,
    offset_key_prefix,
    offset_value,
    read_group_key,
    read_group_value,
    read_offset_prefix,
    read_offset_value,
)
from headrace.wire.pairs import read_pairs


def test_keys_are_kafkas() -> None:
    key = offset_key(offset_key_prefix("grüße", "orders"), 258)
    assert key == b"\0\1" + b"\0\7" + "grüße".encode() + b"\0\6orders" + b"\0\0\1\2"
    assert read_offset_prefix(key[:-4]) == ("grüße", "orders")
    assert group_key("g") == b"\0\2\0\1g"
    assert read_group_key(b"\0\2\0\1g") == "g"


def test_a_committed_offset_is_written_in_version_3_and_with_its_own_expiry_in_version_1() -> None:
    plain = CommittedOffset(7, 2, "né", 1_000)
    assert offset_value(plain) == struct.pack(">hqih", 3, 7, 2, 3) + "né".encode() + struct.pack(">q", 1_000)
    assert read_offset_value(offset_value(plain)) == plain
    expiring = CommittedOffset(7, 2, "", 1_000, 2_000)
    assert offset_value(expiring) == struct.pack(">hqhqq", 1, 7, 0, 1_000, 2_000)
    assert read_offset_value(offset_value(expiring)) == expiring._replace(leader_epoch=-1)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (struct.pack(">hqh2sq", 0, 5, 2, b"ab", 9), CommittedOffset(5, -1, "ab", 9)),
        (struct.pack(">hqh2sqq", 1, 5, 2, b"ab", 9, 10), CommittedOffset(5, -1, "ab", 9, 10)),
        (struct.pack(">hqh2sq", 2, 5, 2, b"ab", 9), CommittedOffset(5, -1, "ab", 9)),
        (struct.pack(">hqih2sq", 3, 5, 6, 2, b"ab", 9), CommittedOffset(5, 6, "ab", 9)),
        (struct.pack(">hqib2sqb", 4, 5, 6, 3, b"ab", 9, 0), CommittedOffset(5, 6, "ab", 9)),
    ],
)
def test_every_version_of_an_offset_is_read(raw: bytes, found: CommittedOffset) -> None:
    assert read_offset_value(raw) == found


@pytest.mark.parametrize("raw", [b"", b"\0", b"\0\3", struct.pack(">hqih", 3, 1, 1, 50), struct.pack(">hq", 77, 1)])
def test_what_is_no_offset_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_offset_value(raw)


@pytest.mark.parametrize("raw", [b"\0\1", b"\0\1\0\5ab", b"\0\1\0\1g\0\1tt", b"\0\1\0\1\xff\0\0"])
def test_what_is_no_key_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_offset_prefix(raw)


def a_group() -> GroupMetadataValue:
    member = GroupMember(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout=60,
        session_timeout=10,
        subscription=b"sub",
        assignment=b"as",
    )
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        current_state_timestamp=99,
        members=[member],
    )


def test_a_group_is_written_in_version_3() -> None:
    raw = group_value(a_group())
    assert raw == (
        b"\0\3"
        b"\0\10consumer\0\0\0\4\0\5range\0\1m"
        b"\0\0\0\0\0\0\0\x63"
        b"\0\0\0\1"
        b"\0\1m\0\1i\0\1c\0\2/h\0\0\0\x3c\0\0\0\x0a\0\0\0\3sub\0\0\0\2as"
    )
    assert read_group_value(raw) == a_group()


def test_the_oldest_record_of_a_group_is_read_and_one_of_the_future_is_not() -> None:
    raw = b"\0\0\0\10consumer\0\0\0\4\xff\xff\xff\xff\0\0\0\1\0\1m\0\1c\0\2/h\0\0\0\x0a\0\0\0\3sub\0\0\0\2as"
    found = read_group_value(raw)
    assert (found.leader, found.protocol, found.members[0].rebalance_timeout) == (None, None, -1)
    for other in (b"", b"\0\x63", raw[:-1]):
        with pytest.raises(ProtocolError):
            read_group_value(other)


@pytest.mark.parametrize("codec", list(Codec))
def test_keys_and_values_alone_are_those_of_the_records(codec: Codec) -> None:
    said: list[tuple[bytes | None, bytes | None]] = [
        (b"k", b"v"),
        (None, b""),
        (b"", None),
        (b"k" * 64, b"v" * 200),
        (b"k" * 20_000, None),
    ]
    records = [NewRecord(10**12 + n * 10**6, key, value, [("h", b"x")]) for n, (key, value) in enumerate(said)]
    batch = bytes(3) + bytes(build(records, codec=codec))
    assert read_pairs(batch, 3, read_header(batch, 3)) == said


def test_a_batch_that_is_not_whole_has_no_pairs() -> None:
    batch = build([NewRecord(1, b"key", b"value")])
    batch[-3] ^= 1
    with pytest.raises(ProtocolError):
        read_pairs(batch, 0, read_header(batch))
