"""Producer snapshots and transaction indexes, to the byte as Apache Kafka 4.3.1 writes them."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.producers import Duplicate, Producer, ProducerTable
from headrace.errors import ErrorCode
from headrace.storage.snapshots import CorruptSnapshot, decode_snapshot, encode_snapshot
from headrace.storage.txn_index import (
    ENTRY_BYTES,
    AbortedTransaction,
    CorruptTransactionIndex,
    decode_entries,
    encode_entry,
    overlapping,
)
from headrace.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader
from headrace.wire.markers import Marker

FROM_KAFKA = bytes.fromhex(
    "00012322f12e0000000300000000000000070002000000140000000000000014000000020000018bcfe5683effffffffffffffffffffffff000000"
    "00000003e80000000000010000000000000023000000020000018bcfe5684600000004000000000000002100000100000000007fffffffffffffff"
    "ffffffffffff000000000000018bcfe5685000000009ffffffffffffffff"
)


def batch(sequence: int, count: int = 1, *, pid: int = 7, epoch: int = 2, attributes: int = 0) -> BatchHeader:
    timestamp = 1_700_000_000_000 + sequence
    return BatchHeader(0, 100, -1, 2, 0, attributes, count - 1, timestamp, timestamp, pid, epoch, sequence, count)


def state(table: ProducerTable) -> list[tuple[object, ...]]:
    return [
        (pid, p.epoch, p.batches, p.coordinator_epoch, p.transaction_first_offset, p.last_timestamp)
        for pid, p in table.items()
    ]


def signed_anew(snapshot: bytes) -> bytes:
    return snapshot[:2] + crc32c(snapshot[6:]).to_bytes(4) + snapshot[6:]


def table_of_kafka() -> ProducerTable:
    first, second, third = Producer(2), Producer(0), Producer(32767)
    first.remember(20, 20, 2, 1700000000062)
    first.last_timestamp = 1700000000062
    second.remember(1, 35, 2, 1700000000070)
    second.last_timestamp, second.coordinator_epoch, second.transaction_first_offset = 1700000000070, 4, 33
    third.last_timestamp, third.coordinator_epoch = 1700000000080, 9
    table = ProducerTable()
    table.restore({1 << 40: third, 1000: second, 7: first})
    return table


def test_a_snapshot_equals_apache_kafkas_to_the_byte() -> None:
    assert encode_snapshot(table_of_kafka()) == FROM_KAFKA


def test_a_snapshot_of_apache_kafka_is_read() -> None:
    table = decode_snapshot(FROM_KAFKA, alive_ms=0)
    assert state(table) == state(table_of_kafka())
    assert table.first_open_offset == 33
    assert table.check(batch(21)) == ErrorCode.NONE
    assert table.check(batch(18, 3)) == Duplicate(18, 20, 1700000000062)
    assert table.check(batch(21, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_retries_get_the_same_answers_after_a_snapshot_as_before() -> None:
    table = ProducerTable()
    sent = [batch(n * 3, 3) for n in range(6)] + [batch(n, pid=9, attributes=TRANSACTIONAL) for n in range(3)]
    for number, header in enumerate(sent):
        table.record(header, number * 10, now_ms=0)
    restored = decode_snapshot(encode_snapshot(table), alive_ms=0)
    assert state(restored) == state(table)
    assert [restored.check(header) for header in sent] == [table.check(header) for header in sent]
    assert restored.first_open_offset == 60


def test_the_oldest_open_transaction_is_the_oldest_after_a_snapshot_too() -> None:
    table = ProducerTable()
    for offset, pid in ((10, 9), (20, 3)):
        table.record(batch(0, pid=pid, attributes=TRANSACTIONAL), offset, now_ms=0)
    restored = decode_snapshot(encode_snapshot(table), alive_ms=0)
    assert restored.first_open_offset == 10
    restored.record(batch(-1, pid=9, attributes=CONTROL | TRANSACTIONAL), 30, 0, marker=Marker(True, 1))
    assert restored.first_open_offset == 20


def test_an_empty_table_is_a_snapshot_too() -> None:
    snapshot = encode_snapshot(ProducerTable())
    assert len(snapshot) == 10
    assert len(decode_snapshot(snapshot, alive_ms=0)) == 0


def test_restored_producers_count_as_alive_when_the_snapshot_was_written() -> None:
    table = decode_snapshot(FROM_KAFKA, alive_ms=1700000000075)
    assert sorted(table.idle()) == [(1700000000075, 7), (1700000000080, 1 << 40)]


def test_damage_is_found() -> None:
    table = ProducerTable()
    for sequence in range(3):
        table.record(batch(sequence), sequence, now_ms=0)
    for snapshot in (FROM_KAFKA, encode_snapshot(table)):
        for at in range(len(snapshot)):
            damaged = bytearray(snapshot)
            damaged[at] ^= 0x40
            with pytest.raises(CorruptSnapshot):
                decode_snapshot(damaged, alive_ms=0)
            with pytest.raises(CorruptSnapshot):
                decode_snapshot(snapshot[:at], alive_ms=0)


WINDOW = struct.Struct(">4sHi")
OLDER = struct.pack(">qiqiq", 7, 17, 17, 2, 1)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (struct.pack(">i", -1), "claims -1 entries"),
        (struct.pack(">i", 1 << 30), "claims 1073741824 entries"),
        (FROM_KAFKA[6:] + b"x", "1 unknown bytes"),
        (FROM_KAFKA[6:] + WINDOW.pack(b"HRPX", 1, 0), "10 unknown bytes"),
        (FROM_KAFKA[6:] + WINDOW.pack(b"HRPW", 2, 0), "version 2, only 1"),
        (FROM_KAFKA[6:] + WINDOW.pack(b"HRPW", 1, 2) + OLDER, "claims 2 older batches"),
        (FROM_KAFKA[6:] + WINDOW.pack(b"HRPW", 1, -1), "claims -1 older batches"),
        (FROM_KAFKA[6:] + WINDOW.pack(b"HRPW", 1, 1) + OLDER.replace(b"\7", b"\6", 1), "without an entry"),
    ],
)
def test_contents_that_no_writer_leaves_are_named(content: bytes, complaint: str) -> None:
    with pytest.raises(CorruptSnapshot, match=complaint):
        decode_snapshot(signed_anew(b"\0\1\0\0\0\0" + content), alive_ms=0)


def test_an_unknown_version_is_refused_with_both_numbers() -> None:
    with pytest.raises(CorruptSnapshot, match="version 2, only 1"):
        decode_snapshot(signed_anew(b"\0\2" + FROM_KAFKA[2:]), alive_ms=0)


@given(content=st.binary(max_size=150))
@settings(max_examples=200, deadline=None)
def test_junk_with_a_good_checksum_is_corrupt_or_read_but_never_more(content: bytes) -> None:
    try:
        decode_snapshot(signed_anew(b"\0\1\0\0\0\0" + content), alive_ms=0)
    except CorruptSnapshot:
        return


ABORTED = [AbortedTransaction(7, 1, 5, 6), AbortedTransaction(8, 3, 9, 3), AbortedTransaction(7, 12, 15, 16)]
INDEX = b"".join(map(encode_entry, ABORTED))


def test_a_transaction_index_has_entries_of_34_bytes() -> None:
    assert encode_entry(AbortedTransaction(7, 1, 5, 6)).hex() == (
        "00000000000000000007000000000000000100000000000000050000000000000006"
    )
    assert len(INDEX) == 3 * ENTRY_BYTES == 3 * 34


def test_a_transaction_index_is_read_back_without_its_torn_end() -> None:
    assert list(decode_entries(INDEX)) == ABORTED
    assert list(decode_entries(INDEX[:-1])) == ABORTED[:2]
    assert list(decode_entries(b"")) == []


@pytest.mark.parametrize(
    ("fetch_offset", "end_offset", "found", "complete"),
    [
        (0, 1, [], True),
        (0, 4, ABORTED[:1], True),
        (0, 7, ABORTED[:2], True),
        (5, 7, ABORTED[:2], True),
        (6, 10, ABORTED[1:2], True),
        (10, 12, [], True),
        (10, 16, ABORTED[2:], True),
        (10, 17, ABORTED[2:], False),
        (16, 20, [], False),
    ],
)
def test_readers_learn_the_aborted_transactions_that_overlap_what_they_read(
    fetch_offset: int, end_offset: int, found: list[AbortedTransaction], complete: bool
) -> None:
    assert overlapping(INDEX, fetch_offset, end_offset) == (found, complete)


@pytest.mark.parametrize(
    ("index", "complaint"),
    [
        (b"\0\1" + INDEX[2:], "version 1, only 0"),
        (INDEX + INDEX, "out of order"),
        (encode_entry(AbortedTransaction(7, 6, 5, 6)), "out of order"),
    ],
)
def test_a_damaged_transaction_index_is_named(index: bytes, complaint: str) -> None:
    with pytest.raises(CorruptTransactionIndex, match=complaint):
        list(decode_entries(index))
