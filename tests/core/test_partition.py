"""What one replica accepts, which offsets it gives out, and what it shows to whom. Without any disk."""

import struct
from dataclasses import dataclass, field

import pytest

from headrace.config import BrokerConfig, TopicConfig
from headrace.core.epochs import EpochList
from headrace.core.partition import Appended, Partition
from headrace.core.producers import ProducerTable
from headrace.core.verified import VerifyFirst
from headrace.errors import CorruptLog, ErrorCode
from headrace.wire.batch import CRC_AT, NewRecord, build, crc_of, read_header, read_records
from headrace.wire.compression import Codec

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@dataclass
class FakeLog:
    epochs: EpochList = field(default_factory=EpochList)
    producers: ProducerTable = field(default_factory=ProducerTable)
    log_start_offset: int = 0
    log_end_offset: int = 0

    def readable_bytes(self, offset: int, limit_offset: int) -> int | None:
        return limit_offset - offset


def partition_with(**settings: str) -> Partition[FakeLog]:
    """Settings are named with underscores."""
    overrides = {name.replace("_", "."): text for name, text in settings.items()}
    config = TopicConfig.resolve(BrokerConfig.parse({}), overrides)
    return Partition("events", bytes(16), 0, 7, config, lambda _: FakeLog())


def batch(
    *timestamps: int,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    control: bool = False,
    transactional: bool = False,
    append_time_ms: int | None = None,
    base_offset: int = 0,
) -> bytearray:
    return build(
        [NewRecord(timestamp, None, b"value") for timestamp in timestamps or (NOW_MS,)],
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        control=control,
        transactional=transactional,
        append_time_ms=append_time_ms,
        base_offset=base_offset,
    )


def with_crc(raw: bytearray) -> bytearray:
    struct.pack_into(">I", raw, CRC_AT, crc_of(raw, 0, len(raw)))
    return raw


def edited(at: int, layout: str, value: int) -> bytearray:
    """A batch with one field of its header changed, and a checksum that is right for it."""
    raw = batch(NOW_MS, NOW_MS)
    struct.pack_into(layout, raw, at, value)
    return with_crc(raw)


def admit(partition: Partition[FakeLog], raw: bytearray) -> Appended | ErrorCode:
    outcome = partition.admit(memoryview(raw), NOW_MS)
    assert not isinstance(outcome, VerifyFirst)
    return outcome


def flipped(raw: bytearray) -> bytearray:
    raw[-1] ^= 1
    return raw


REFUSED = [
    ("nothing", bytearray(), ErrorCode.INVALID_RECORD),
    ("less than a header", batch()[:60], ErrorCode.INVALID_RECORD),
    ("a batch that is cut off", batch()[:-1], ErrorCode.INVALID_RECORD),
    ("two batches", batch() + batch(), ErrorCode.INVALID_RECORD),
    ("magic 0", edited(16, ">b", 0), ErrorCode.INVALID_RECORD),
    ("magic 1", edited(16, ">b", 1), ErrorCode.INVALID_RECORD),
    ("magic 3", edited(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    ("a wrong checksum", flipped(batch()), ErrorCode.CORRUPT_MESSAGE),
    ("a length below its header", edited(8, ">i", 3), ErrorCode.INVALID_RECORD),
    ("a negative length", edited(8, ">i", -13), ErrorCode.INVALID_RECORD),
    ("more records than offsets", edited(57, ">i", 3), ErrorCode.INVALID_RECORD),
    ("no records", edited(57, ">i", 0), ErrorCode.INVALID_RECORD),
    ("fewer than no offsets", edited(23, ">i", -2), ErrorCode.INVALID_RECORD),
    ("an offset of its own", batch(base_offset=5), ErrorCode.INVALID_RECORD),
    ("a control batch", batch(control=True), ErrorCode.INVALID_RECORD),
    ("an unknown compression", edited(22, ">B", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("a transaction of nobody", batch(transactional=True), ErrorCode.INVALID_RECORD),
    ("a producer without an epoch", batch(producer=(1, -1, 0)), ErrorCode.INVALID_RECORD),
    ("a producer without a sequence", batch(producer=(1, 0, -1)), ErrorCode.INVALID_RECORD),
    ("a time too far ahead", batch(NOW_MS, NOW_MS + HOUR_MS + 1), ErrorCode.INVALID_TIMESTAMP),
    ("the time of an append", batch(append_time_ms=NOW_MS), ErrorCode.INVALID_TIMESTAMP),
]


@pytest.mark.parametrize(("raw", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_bad_batch_is_refused_and_leaves_no_trace(raw: bytearray, code: ErrorCode) -> None:
    partition = partition_with()
    assert admit(partition, bytearray(raw)) is code
    assert partition.assigned_end_offset == 0
    assert not partition.unwritten
    assert not len(partition.log.producers)


def test_a_batch_gets_its_place_and_the_current_epoch_without_a_new_checksum() -> None:
    partition = partition_with()
    assert admit(partition, batch(NOW_MS, NOW_MS, NOW_MS)) == Appended(0, 3, -1)
    assert admit(partition, batch()) == Appended(3, 4, -1)
    raw, header = partition.unwritten[1]
    assert read_header(raw) == header
    assert (header.base_offset, header.leader_epoch) == (3, 7)
    assert [record.offset for record in read_records(raw)] == [3]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_known_compression_is_taken_as_it_comes(codec: Codec) -> None:
    partition = partition_with()
    sent = batch(codec=codec)
    assert admit(partition, bytearray(sent)) == Appended(0, 1, -1)
    assert bytes(partition.unwritten[0][0])[16:] == bytes(sent)[16:]


def test_what_is_only_assigned_is_not_shown() -> None:
    partition = partition_with()
    admit(partition, batch())
    assert (partition.log_end_offset, partition.high_watermark, partition.last_stable_offset) == (0, 0, 0)
    partition.written_up_to(1)
    assert (partition.log_end_offset, partition.high_watermark, partition.last_stable_offset) == (1, 1, 1)


def test_a_batch_of_exactly_the_largest_size_is_taken_and_one_byte_more_is_not() -> None:
    size = len(batch())
    assert admit(partition_with(max_message_bytes=str(size)), batch()) == Appended(0, 1, -1)
    assert admit(partition_with(max_message_bytes=str(size - 1)), batch()) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("timestamp", "code"),
    [
        (NOW_MS + 1_000, ErrorCode.NONE),
        (NOW_MS + 1_001, ErrorCode.INVALID_TIMESTAMP),
        (NOW_MS - 500, ErrorCode.NONE),
        (NOW_MS - 501, ErrorCode.INVALID_TIMESTAMP),
        (-1, ErrorCode.NONE),
    ],
)
def test_timestamps_are_bounded_on_both_sides_unless_there_is_none(timestamp: int, code: ErrorCode) -> None:
    partition = partition_with(message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="500")
    outcome = admit(partition, batch(timestamp))
    assert outcome == (code or Appended(0, 1, -1))


def test_append_time_replaces_the_clients_times_and_is_told() -> None:
    partition = partition_with(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="500")
    assert admit(partition, batch(5, 6)) == Appended(0, 2, NOW_MS)
    raw, header = partition.unwritten[0]
    assert header.is_log_append_time and header.max_timestamp == NOW_MS
    assert header.crc == crc_of(raw, 0, len(raw))
    assert [record.timestamp for record in read_records(raw)] == [NOW_MS, NOW_MS]


def test_a_client_may_not_claim_append_time_even_where_it_is_used() -> None:
    partition = partition_with(message_timestamp_type="LogAppendTime")
    assert admit(partition, batch(append_time_ms=NOW_MS)) is ErrorCode.INVALID_TIMESTAMP


def test_a_duplicate_is_answered_with_the_first_offset_and_time_and_is_not_queued() -> None:
    partition = partition_with(message_timestamp_type="LogAppendTime")
    assert admit(partition, batch(5, producer=(1, 0, 0))) == Appended(0, 1, NOW_MS)
    again = partition.admit(memoryview(batch(5, producer=(1, 0, 0))), NOW_MS + 999)
    assert again == Appended(0, 1, NOW_MS)
    assert len(partition.unwritten) == 1


def test_sequences_are_checked_against_what_is_assigned_not_against_what_is_written() -> None:
    partition = partition_with()
    assert admit(partition, batch(producer=(1, 0, 0))) == Appended(0, 1, -1)
    assert admit(partition, batch(producer=(1, 0, 1))) == Appended(1, 2, -1)
    assert admit(partition, batch(producer=(1, 0, 3))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_refused_batch_does_not_open_the_log() -> None:
    opened = []

    def open_log(_: Partition[FakeLog]) -> FakeLog:
        opened.append(1)
        return FakeLog()

    partition = Partition("events", bytes(16), 0, 7, TopicConfig.resolve(BrokerConfig.parse({}), {}), open_log)
    admit(partition, flipped(batch()))
    assert not opened
    admit(partition, batch())
    admit(partition, batch())
    assert opened == [1]


def test_a_log_that_cannot_be_opened_has_given_out_nothing() -> None:
    def open_log(_: Partition[FakeLog]) -> FakeLog:
        raise CorruptLog("It is broken.")

    partition = Partition("events", bytes(16), 0, 7, TopicConfig.resolve(BrokerConfig.parse({}), {}), open_log)
    with pytest.raises(CorruptLog):
        admit(partition, batch())
    assert (partition.assigned_end_offset, len(partition.unwritten)) == (0, 0)
    assert partition.readable_bytes(0, 10) is None


def test_a_failed_partition_takes_back_what_it_only_promised() -> None:
    partition = partition_with()
    admit(partition, batch())
    partition.written_up_to(1)
    admit(partition, batch())
    partition.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert (partition.log_end_offset, partition.assigned_end_offset) == (1, 1)
    assert not partition.unwritten
    assert partition.log_if_open is None
    assert admit(partition, batch()) is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    ("named", "code"),
    [
        (-1, ErrorCode.NONE),
        (6, ErrorCode.FENCED_LEADER_EPOCH),
        (7, ErrorCode.NONE),
        (8, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_requests_of_another_leader_epoch_are_turned_away(named: int, code: ErrorCode) -> None:
    assert partition_with().gate(named) is code


def test_the_epoch_gate_comes_before_the_state_of_the_disk() -> None:
    partition = partition_with()
    partition.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert partition.gate(6) is ErrorCode.FENCED_LEADER_EPOCH
    assert partition.gate(7) is ErrorCode.KAFKA_STORAGE_ERROR


def test_the_latest_epoch_ends_where_clients_see_the_log_end() -> None:
    partition = partition_with()
    partition.log.epochs.assign(7, 0)
    admit(partition, batch(NOW_MS, NOW_MS))
    assert partition.end_offset_for(7) == (7, 0)
    partition.written_up_to(2)
    assert partition.end_offset_for(7) == (7, 2)
    assert partition.end_offset_for(8) == (-1, -1)


def test_the_log_start_never_passes_the_high_watermark() -> None:
    partition = partition_with()
    admit(partition, batch())
    partition.written_up_to(1)
    partition.log_start_moved(1)
    assert partition.log_start_offset == 1
    with pytest.raises(AssertionError):
        partition.log_start_moved(2)
