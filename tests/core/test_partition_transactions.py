"""Transactions in one partition: who may open one, what ends it, and how far readers of committed records may read."""

import pytest

from headrace.core.partition import Appended, Partition
from headrace.core.verified import VERIFY_FIRST, VERIFYING_MAX, Verified, VerifyFirst, begin, expire
from headrace.errors import ErrorCode
from headrace.wire.batch import read_header
from headrace.wire.markers import build_marker
from tests.core.replicas import nodes_with, record
from tests.core.test_partition import NOW_MS, FakeLog, batch, partition_with

PID = 7


def admit(
    partition: Partition[FakeLog], sequence: int, *, epoch: int = 0, pid: int = PID, verified: Verified | None = None
) -> Appended | ErrorCode | VerifyFirst:
    raw = batch(transactional=True, producer=(pid, epoch, sequence))
    return partition.admit(memoryview(raw), NOW_MS, verified)


def verified(partition: Partition[FakeLog], sequence: int = 0, *, epoch: int = 0, pid: int = PID) -> Verified:
    found = partition.begin_verification(pid, epoch, sequence, NOW_MS)
    assert found is not None
    return found


def open_transaction(partition: Partition[FakeLog], sequence: int = 0, *, epoch: int = 0, pid: int = PID) -> None:
    asked = verified(partition, sequence, epoch=epoch, pid=pid)
    assert isinstance(admit(partition, sequence, epoch=epoch, pid=pid, verified=asked), Appended)


def end(
    partition: Partition[FakeLog], *, committed: bool = True, epoch: int = 0, pid: int = PID, coordinator_epoch: int = 1
) -> Appended | ErrorCode:
    return partition.admit_own(build_marker(pid, epoch, committed, coordinator_epoch, NOW_MS), NOW_MS)


def write(partition: Partition[FakeLog]) -> None:
    partition.unwritten = ()
    partition.written_up_to(partition.assigned_end_offset)


def test_the_first_batch_of_a_transaction_is_taken_only_with_the_coordinators_word() -> None:
    partition = partition_with()
    raw = batch(transactional=True, producer=(PID, 0, 0))
    untouched = bytes(raw)
    assert partition.admit(memoryview(raw), NOW_MS) is VERIFY_FIRST
    assert bytes(raw) == untouched and partition.assigned_end_offset == 0
    asked = verified(partition)
    assert partition.admit(memoryview(raw), NOW_MS, asked) == Appended(0, 1, -1)
    assert partition.begin_verification(PID, 0, 1, NOW_MS) is None
    assert admit(partition, 1) == Appended(1, 2, -1)


def test_a_retry_of_what_is_in_the_log_needs_nobodys_word() -> None:
    partition = partition_with()
    open_transaction(partition)
    end(partition)
    assert admit(partition, 0) == Appended(0, 1, -1)
    assert admit(partition, 1) is VERIFY_FIRST


def test_ttxn_3_a_marker_makes_earlier_words_worthless() -> None:
    partition = partition_with()
    asked = verified(partition)
    assert end(partition, committed=False) == Appended(0, 1, -1)
    assert admit(partition, 0, verified=asked) is ErrorCode.INVALID_TXN_STATE
    again = verified(partition)
    assert again is not asked
    assert admit(partition, 0, verified=asked) is ErrorCode.INVALID_TXN_STATE
    assert admit(partition, 0, verified=again) == Appended(1, 2, -1)


def test_a_word_is_good_for_one_epoch_and_one_leadership() -> None:
    partition = partition_with()
    asked = verified(partition)
    newer = verified(partition, epoch=1)
    assert admit(partition, 0, verified=asked) is ErrorCode.INVALID_TXN_STATE
    assert admit(partition, 0, verified=newer) is ErrorCode.INVALID_TXN_STATE
    assert verified(partition, epoch=1) is newer
    partition.stop_serving()
    partition.error = ErrorCode.NONE
    assert admit(partition, 0, epoch=1, verified=newer) is ErrorCode.INVALID_TXN_STATE


def test_requests_of_one_transaction_share_one_question() -> None:
    partition = partition_with()
    asked = verified(partition, 0)
    assert verified(partition, 1) is asked
    assert admit(partition, 0, verified=asked) == Appended(0, 1, -1)
    assert admit(partition, 1, verified=asked) == Appended(1, 2, -1)


def test_a_batch_that_was_sent_before_another_is_due_before_it_even_if_nobody_could_be_asked() -> None:
    """KAFKA-14920: the producer is not known here, so that any sequence could begin."""
    partition = partition_with()
    verified(partition, 3)
    asked = verified(partition, 4)
    assert admit(partition, 4, verified=asked) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert admit(partition, 3, verified=asked) == Appended(0, 1, -1)
    assert admit(partition, 4) == Appended(1, 2, -1)


def test_outside_of_its_transaction_a_producer_writes_nothing() -> None:
    partition = partition_with()
    open_transaction(partition)
    plain = batch(producer=(PID, 0, 1))
    assert partition.admit(memoryview(plain), NOW_MS) is ErrorCode.INVALID_TXN_STATE


def test_a_transaction_without_a_producer_is_no_batch() -> None:
    raw = batch(transactional=True)
    assert partition_with().admit(memoryview(raw), NOW_MS) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("committed", [True, False])
def test_readers_of_committed_records_wait_for_the_marker_and_for_what_began_before(committed: bool) -> None:
    partition = partition_with()
    partition.admit(memoryview(batch()), NOW_MS)
    open_transaction(partition)
    open_transaction(partition, pid=8)
    write(partition)
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 1)
    end(partition, pid=8, committed=committed)
    write(partition)
    assert (partition.high_watermark, partition.last_stable_offset) == (4, 1)
    end(partition, committed=committed)
    assert partition.last_stable_offset == 1  # assigned, and neither written nor committed
    write(partition)
    assert (partition.high_watermark, partition.last_stable_offset) == (5, 5)


def test_a_marker_that_is_written_and_not_committed_ends_nothing_for_readers() -> None:
    partition = partition_with()
    open_transaction(partition)
    write(partition)
    end(partition)
    partition.unwritten = ()
    partition.log_end_offset = 2
    partition.high_watermark = 1
    assert partition.last_stable_offset == 0
    partition.high_watermark = 2
    assert partition.last_stable_offset == 2


def test_the_last_stable_offset_is_never_below_the_log_start() -> None:
    partition = partition_with()
    open_transaction(partition)
    admit(partition, 1)
    write(partition)
    partition.log_start_moved(1)
    assert partition.last_stable_offset == 1


def test_markers_of_the_past_are_not_written() -> None:
    partition = partition_with()
    open_transaction(partition, epoch=3)
    assert end(partition, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(partition, epoch=4, coordinator_epoch=9) == Appended(1, 2, -1)
    assert end(partition, epoch=4, coordinator_epoch=8) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert end(partition, epoch=4, coordinator_epoch=9) == Appended(2, 3, -1)
    assert partition.assigned_end_offset == 3
    assert [read_header(raw).leader_epoch for raw, _ in partition.unwritten] == [7, 7, 7]


def test_a_marker_with_a_newer_epoch_fences_the_producer() -> None:
    partition = partition_with()
    open_transaction(partition)
    end(partition, epoch=1, committed=False)
    assert admit(partition, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert admit(partition, 0, epoch=1) is VERIFY_FIRST


def test_a_coordinators_records_need_no_word_but_one_that_is_given_must_be_good() -> None:
    partition = partition_with()
    raw = batch(transactional=True, producer=(PID, 0, -1))
    asked = verified(partition)
    end(partition)
    assert partition.admit_own(bytearray(raw), NOW_MS, asked) is ErrorCode.INVALID_TXN_STATE
    assert partition.admit_own(bytearray(raw), NOW_MS) == Appended(1, 2, -1)
    assert partition.admit_own(bytearray(raw), NOW_MS, asked) == Appended(2, 3, -1)  # in the one that is open
    old = batch(transactional=True, producer=(PID, -1, -1))
    assert partition.admit_own(old, NOW_MS) is ErrorCode.INVALID_PRODUCER_EPOCH
    plain = batch()
    assert partition.admit_own(plain, NOW_MS) == Appended(3, 4, -1)


def test_who_does_not_lead_admits_nothing_of_its_own_either() -> None:
    partition = partition_with()
    partition.stop_serving()
    assert end(partition) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_is_remembered_of_unanswered_questions_is_bounded() -> None:
    verifying: dict[int, Verified] = {}
    for producer_id in range(VERIFYING_MAX + 5):
        begin(verifying, producer_id, 0, 0, producer_id)
    assert len(verifying) == VERIFYING_MAX and min(verifying) == 5
    expire(verifying, 10_000, 10_000 - 20)
    assert min(verifying) == 21


def test_a_follower_knows_where_the_first_undecided_transaction_begins_when_it_leads() -> None:
    partition = partition_with()
    partition.stop_serving()
    log = partition.log
    header = read_header(batch(transactional=True, producer=(PID, 0, 0)))
    log.producers.record(header, 0, NOW_MS)
    log.log_end_offset = 1
    partition.follower_appended(1, 1, 0)
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    partition.truncated_to(0)
    log.producers.forget(PID)
    partition.follower_appended(1, 1, 0)
    assert partition.last_stable_offset == 1


def test_a_transaction_that_waited_for_its_sync_when_the_leadership_began_is_undecided_too() -> None:
    partition = partition_with()
    partition.stop_serving()
    log = partition.log
    partition.follower_appended(0, 0, 0)
    assert partition.last_stable_offset == 0
    header = read_header(batch(transactional=True, producer=(PID, 0, 0)))
    log.producers.record(header, 0, NOW_MS)
    log.log_end_offset = 1
    assert partition.lead(record(0, leader_epoch=9), 10, NOW_MS, nodes_with(0))
    partition.written_up_to(1)
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
