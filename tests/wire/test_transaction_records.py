"""Records of `__transaction_state`, byte for byte as Kafka's schemas have them."""

import struct
from dataclasses import replace

import pytest

from headrace.core.commit_group import Decision, decision_entry, decision_tombstone, read_decision
from headrace.core.transaction import Claim, State, Transaction
from headrace.core.transaction_log import entry_of, read_entry, tombstone_of
from headrace.wire.errors import ProtocolError

OPEN = Transaction(
    producer_id=5,
    epoch=3,
    timeout_ms=60_000,
    state=State.ONGOING,
    updated_ms=2_000,
    partitions=frozenset({("a", 1), ("a", 0), ("b", 7)}),
    started_ms=1_000,
    previous_producer_id=4,
    last_epoch=2,
)
EMPTY = Transaction(producer_id=5, epoch=0, timeout_ms=60_000, state=State.EMPTY, updated_ms=2_000)


def test_an_empty_one_is_written_in_version_1_of_kafkas_schema() -> None:
    key, value = entry_of("id", EMPTY)
    assert key == struct.pack(">hh2s", 0, 2, b"id")
    no_partitions, no_tags = b"\0", b"\0"
    assert value == struct.pack(">hqhib", 1, 5, 0, 60_000, 0) + no_partitions + struct.pack(">qq", 2_000, -1) + no_tags


def test_partitions_and_what_only_some_have_are_written_too() -> None:
    _, value = entry_of("id", OPEN)
    partitions = b"\x03" + b"\x02a" + struct.pack(">bii", 3, 0, 1) + b"\0" + b"\x02b" + struct.pack(">bi", 2, 7) + b"\0"
    previous = b"\x00\x08" + struct.pack(">q", 4)
    ours = b"\xa0\x4e\x02" + struct.pack(">h", 2)
    tags = b"\x02" + previous + ours
    assert value == struct.pack(">hqhib", 1, 5, 3, 60_000, 1) + partitions + struct.pack(">qq", 2_000, 1_000) + tags


@pytest.mark.parametrize("known", [OPEN, EMPTY])
def test_what_is_written_is_read_again(known: Transaction) -> None:
    key, value = entry_of("an id", known)
    assert read_entry(key, value) == ("an id", known)
    assert read_entry(memoryview(key), memoryview(value)) == ("an id", known)
    assert read_entry(*tombstone_of("an id")) == ("an id", None)


def test_version_0_which_apache_kafka_writes_is_read() -> None:
    key = struct.pack(">hh2s", 0, 2, b"id")
    partitions = struct.pack(">ih1sii", 1, 1, b"a", 1, 6)
    value = struct.pack(">hqhib", 0, 5, 3, 60_000, 2) + partitions + struct.pack(">qq", 2_000, 1_000)
    read = read_entry(key, value)
    assert read is not None and read[1] is not None
    assert (read[1].state, read[1].partitions, read[1].last_epoch) == (State.PREPARE_COMMIT, frozenset({("a", 6)}), -1)


def test_other_kinds_of_keys_are_passed_over_and_other_values_are_not() -> None:
    key, value = entry_of("id", OPEN)
    assert read_entry(b"\x00\x09whatever", value) is None
    assert read_entry(None, value) is None
    for bad in (b"", b"\0", b"\0\x07" + value[2:], value[:-1], value[:12] + b"\xff" * 8):
        with pytest.raises(ProtocolError):
            read_entry(key, bad)
    status_at = 2 + 8 + 2 + 4
    with pytest.raises(ProtocolError, match="state 99"):
        read_entry(key, value[:status_at] + b"\x63" + value[status_at + 1 :])


DECISION = Decision(batch_id=7, run_id="r", decided_ms=2_000, winners=(Claim(5, 2),))


def test_what_was_committed_of_a_query_is_written_under_a_key_that_kafka_passes_over() -> None:
    key, value = decision_entry("q", DECISION)
    assert key == struct.pack(">hh1s", 18_201, 1, b"q")
    assert value == struct.pack(">hq", 0, 7) + b"\x02r" + struct.pack(">qbqhbb", 2_000, 2, 5, 2, 0, 0)
    assert read_entry(key, value) is None
    assert read_decision(key, value) == ("q", replace(DECISION, winners=()))
    assert read_decision(memoryview(key), memoryview(value)) == ("q", replace(DECISION, winners=()))
    assert read_decision(*decision_tombstone("q")) == ("q", None)
    assert read_decision(*entry_of("id", OPEN)) is None and read_decision(None, value) is None


@pytest.mark.parametrize("bad", [b"", b"\x00", b"\x00\x09", decision_entry("q", DECISION)[1][:-1]])
def test_a_decision_that_cannot_be_read_is_an_error(bad: bytes) -> None:
    key, _ = decision_entry("q", DECISION)
    with pytest.raises(ProtocolError):
        read_decision(key, bad)
