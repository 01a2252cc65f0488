from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from headrace.core.producers import NEVER, AbortedTransaction, Duplicate, ProducerTable
from headrace.errors import ErrorCode
from headrace.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader
from headrace.wire.markers import Marker

OK = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
SEQUENCES = 1 << 31
PID = 7
DAY_MS = 86_400_000


def batch(
    sequence: int, count: int = 1, *, epoch: int = 0, pid: int = PID, attributes: int = 0, timestamp: int = 1000
) -> BatchHeader:
    return BatchHeader(0, 100, -1, 2, 0, attributes, count - 1, timestamp, timestamp, pid, epoch, sequence, count)


def table_with(*batches: BatchHeader, now_ms: int = 0) -> ProducerTable:
    """The batches one after the other from offset 100 on."""
    table = ProducerTable()
    offset = 100
    for header in batches:
        table.record(header, offset, now_ms)
        offset += header.last_offset_delta + 1
    return table


def test_sequences_run_on_from_batch_to_batch() -> None:
    table = table_with(batch(0, 3))
    assert table.check(batch(3)) == OK
    assert table.check(batch(4)) == OUT_OF_ORDER
    assert table.check(batch(2)) == OUT_OF_ORDER


def test_an_unknown_producer_may_begin_anywhere() -> None:
    table = ProducerTable()
    assert table.check(batch(0)) == OK
    assert table.check(batch(12345, epoch=3)) == OK


def test_a_retry_of_one_of_the_last_five_batches_is_found_with_its_offset_and_time() -> None:
    table = table_with(*(batch(n * 10, 10, timestamp=5000 + n) for n in range(5)))
    for n in range(5):
        again = batch(n * 10, 10, timestamp=1)
        assert table.check(again) == Duplicate(100 + n * 10, 100 + n * 10 + 9, 5000 + n)


def test_a_retry_of_the_sixth_oldest_batch_is_out_of_order() -> None:
    table = table_with(*(batch(n * 10, 10) for n in range(6)))
    assert table.check(batch(0, 10)) == OUT_OF_ORDER
    assert isinstance(table.check(batch(10, 10)), Duplicate)


@pytest.mark.parametrize(("sequence", "count"), [(0, 5), (0, 11), (1, 9), (5, 5)])
def test_a_batch_that_only_overlaps_is_no_duplicate(sequence: int, count: int) -> None:
    table = table_with(batch(0, 10))
    assert table.check(batch(sequence, count)) == OUT_OF_ORDER


def test_zero_follows_the_highest_sequence() -> None:
    table = table_with(batch(SEQUENCES - 3, 3))
    assert table.check(batch(0)) == OK
    assert table.check(batch(SEQUENCES - 1)) == OUT_OF_ORDER
    assert table.check(batch(1)) == OUT_OF_ORDER


def test_a_batch_may_wrap_within_itself_and_is_still_known_again() -> None:
    wrapping = batch(SEQUENCES - 2, 5)
    table = table_with(wrapping)
    assert table.check(wrapping) == Duplicate(100, 104, 1000)
    assert table.check(batch(3)) == OK
    assert table.check(batch(2)) == OUT_OF_ORDER


def test_a_new_epoch_begins_at_zero() -> None:
    table = table_with(batch(0, 3))
    assert table.check(batch(3, epoch=1)) == OUT_OF_ORDER
    assert table.check(batch(0, epoch=1)) == OK
    table.record(batch(0, epoch=1), 200, 0)
    assert table.check(batch(1, epoch=1)) == OK


def test_an_older_epoch_is_fenced_even_for_a_batch_that_is_in_the_log() -> None:
    table = table_with(batch(0, 3), batch(0, epoch=1))
    assert table.check(batch(0, 3)) == FENCED
    assert table.check(batch(3)) == FENCED


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    table = table_with(batch(0), batch(1), batch(0, epoch=1))
    assert table.check(batch(1, epoch=1)) == OK
    table.record(batch(1, epoch=1), 300, 0)
    assert table.check(batch(1, epoch=1)) == Duplicate(300, 300, 1000)


def test_producers_do_not_know_of_each_other() -> None:
    table = table_with(batch(0, 3), batch(50, pid=8))
    assert table.check(batch(3)) == OK
    assert table.check(batch(51, pid=8)) == OK
    assert len(table) == 2


def test_batches_without_producer_id_touch_nothing() -> None:
    table = table_with(batch(-1, pid=-1))
    assert len(table) == 0


def test_a_producer_id_without_a_sequence_or_epoch_is_invalid() -> None:
    table = ProducerTable()
    assert table.check(batch(-1)) == ErrorCode.INVALID_RECORD
    assert table.check(batch(0, epoch=-1)) == ErrorCode.INVALID_RECORD


def test_a_replayed_log_is_believed_without_checks() -> None:
    table = table_with(batch(0, epoch=5), batch(17, epoch=3), batch(40, epoch=3))
    assert table.check(batch(41, epoch=3)) == OK


def marker(epoch: int = 0, count: int = 1, timestamp: int = 9000, pid: int = PID) -> BatchHeader:
    return batch(-1, count, epoch=epoch, pid=pid, attributes=CONTROL | TRANSACTIONAL, timestamp=timestamp)


def end(
    table: ProducerTable,
    offset: int = 200,
    *,
    pid: int = PID,
    epoch: int = 0,
    committed: bool = True,
    coordinator_epoch: int = 17,
    now_ms: int = 9000,
) -> None:
    ended = marker(epoch, timestamp=now_ms, pid=pid)
    table.record(ended, offset, now_ms, marker=Marker(committed, coordinator_epoch))


def test_a_marker_ends_the_transaction_and_leaves_the_sequences_alone() -> None:
    table = table_with(batch(0, 3, attributes=TRANSACTIONAL))
    assert table.first_open_offset == 100
    assert table.check(batch(3)) == ErrorCode.INVALID_TXN_STATE
    assert table.check(batch(3, attributes=TRANSACTIONAL)) == OK
    end(table)
    assert table.first_open_offset is None
    assert table.check(batch(3)) == OK
    assert isinstance(table.check(batch(0, 3)), Duplicate)
    producer = table.get(PID)
    assert producer is not None
    assert (producer.coordinator_epoch, producer.last_timestamp, producer.last_sequence) == (17, 9000, 2)


def test_a_marker_with_a_higher_epoch_fences_the_producer_and_begins_at_zero() -> None:
    table = table_with(batch(0, 3, attributes=TRANSACTIONAL))
    end(table, epoch=1)
    assert table.first_open_offset is None
    assert table.check(batch(3)) == FENCED
    assert table.check(batch(3, epoch=1)) == OUT_OF_ORDER
    assert table.check(batch(0, epoch=1)) == OK


def test_a_marker_without_a_transaction_ends_nothing() -> None:
    table = table_with(batch(0))
    end(table, committed=False)
    assert table.is_settled
    assert table.unindexed == []


def test_a_replayed_control_batch_ends_the_transaction_unless_it_was_emptied() -> None:
    table = table_with(batch(0, attributes=TRANSACTIONAL), marker(count=0))
    assert table.first_open_offset == 100
    end(table)
    assert table.first_open_offset is None


def test_a_transaction_is_undecided_until_its_marker_is_committed() -> None:
    table = table_with(batch(0, attributes=TRANSACTIONAL))
    assert table.first_undecided(300) == 100
    end(table, 200)
    assert not table.is_settled
    assert table.first_undecided(200) == 100
    assert table.first_undecided(201) == NEVER
    assert table.is_settled


def test_what_ended_earlier_waits_for_what_began_before() -> None:
    table = table_with(*(batch(0, pid=pid, attributes=TRANSACTIONAL) for pid in (5, 3, 4)))
    end(table, 200, pid=3)
    end(table, 201, pid=5, committed=False)
    assert [table.first_undecided(hw) for hw in (200, 201, 202)] == [100, 100, 102]
    end(table, 202, pid=4)
    assert [table.first_undecided(hw) for hw in (202, 203)] == [102, NEVER]


def test_an_aborted_transaction_is_told_with_the_offset_that_was_stable_then() -> None:
    table = table_with(*(batch(0, pid=pid, attributes=TRANSACTIONAL) for pid in (5, 3, 4)))
    end(table, 200, pid=3, committed=False)
    end(table, 201, pid=5, committed=True)
    end(table, 202, pid=4, committed=False)
    assert table.unindexed == [AbortedTransaction(3, 101, 200, 100), AbortedTransaction(4, 102, 202, 203)]


def test_what_was_open_at_an_offset_is_known_as_long_as_it_is_not_committed() -> None:
    table = table_with(batch(0, attributes=TRANSACTIONAL))
    end(table, 101)
    table.record(batch(1, attributes=TRANSACTIONAL), 102, 0)
    end(table, 103)
    assert [table.open_at(offset) for offset in (100, 101, 102, 103, 104)] == [{}, {7: 100}, {}, {7: 102}, {}]


def test_a_marker_of_the_past_is_refused() -> None:
    table = table_with(batch(0, epoch=3, attributes=TRANSACTIONAL))
    assert table.check_marker(marker(epoch=2), Marker(True, 5)) == FENCED
    end(table, epoch=4, coordinator_epoch=5)
    assert table.check_marker(marker(epoch=4), Marker(True, 4)) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert table.check_marker(marker(epoch=3), Marker(True, 6)) == FENCED
    assert table.check_marker(marker(epoch=4), Marker(True, 5)) == OK
    assert table.check_marker(marker(pid=99), Marker(True, 0)) == OK


def test_the_first_open_transaction_is_the_one_with_the_lowest_offset() -> None:
    table = table_with(*(batch(0, pid=pid, attributes=TRANSACTIONAL) for pid in (5, 3, 4)))
    table.record(batch(1, pid=5, attributes=TRANSACTIONAL), 103, 0)
    assert table.first_open_offset == 100
    end(table, pid=5)
    assert table.first_open_offset == 101
    end(table, pid=4)
    assert table.first_open_offset == 101


def test_a_producer_is_forgotten_when_it_was_idle_for_long_enough() -> None:
    table = table_with(batch(0, timestamp=5000), now_ms=1000)
    assert table.expire(5000 + DAY_MS - 1, DAY_MS) == 0
    assert table.expire(5000 + DAY_MS, DAY_MS) == 1
    assert len(table) == 0
    assert table.check(batch(777)) == OK


def test_a_producer_with_old_timestamps_lives_by_the_time_of_its_appends() -> None:
    table = table_with(batch(0, timestamp=0), now_ms=10 * DAY_MS)
    assert table.expire(11 * DAY_MS - 1, DAY_MS) == 0
    assert table.expire(11 * DAY_MS, DAY_MS) == 1


def test_a_marker_keeps_its_producer_alive() -> None:
    table = table_with(batch(0, attributes=TRANSACTIONAL))
    end(table, now_ms=2 * DAY_MS)
    assert table.expire(3 * DAY_MS - 1, DAY_MS) == 0


def test_tidem_8_nobody_is_forgotten_within_a_transaction() -> None:
    table = table_with(batch(0, attributes=TRANSACTIONAL), batch(0, pid=8))
    assert list(table.idle()) == [(1000, 8)]
    assert table.expire(100 * DAY_MS, DAY_MS) == 1
    assert table.get(PID) is not None
    end(table, now_ms=100 * DAY_MS)
    assert table.expire(101 * DAY_MS, DAY_MS) == 1


def test_a_forgotten_producer_may_begin_anywhere() -> None:
    table = table_with(batch(0), batch(0, pid=8, attributes=TRANSACTIONAL))
    for producer_id in (PID, 8, 9):
        table.forget(producer_id)
    assert len(table) == 0
    assert table.first_open_offset is None
    assert table.check(batch(5)) == OK


class AgainstEveryBatchEverSent(RuleBasedStateMachine):
    """The dumb twin keeps each producer's batches as lists of sequences, and compares lists."""

    def __init__(self) -> None:
        super().__init__()
        self.table = ProducerTable()
        self.log: dict[int, list[tuple[int, list[int], int]]] = {}
        self.end = 0

    def expected(self, header: BatchHeader) -> Duplicate | ErrorCode:
        known = self.log.get(header.producer_id)
        if not known:
            return OK
        epoch = known[-1][0]
        if header.producer_epoch != epoch:
            if header.producer_epoch < epoch:
                return FENCED
            return OK if header.base_sequence == 0 else OUT_OF_ORDER
        same_epoch = [(sequences, offset) for of, sequences, offset in known if of == epoch]
        for sequences, offset in same_epoch[-5:]:
            if sequences == list(sequences_of(header)):
                return Duplicate(offset, offset + len(sequences) - 1, offset)
        return OK if header.base_sequence == (same_epoch[-1][0][-1] + 1) % SEQUENCES else OUT_OF_ORDER

    @rule(
        pid=st.integers(0, 2),
        epoch_ahead=st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
        back=st.integers(0, 7),
        drift=st.sampled_from([0, 0, 0, 0, 1, -1]),
        count=st.integers(1, 4),
        fresh=st.booleans(),
    )
    def produce(self, pid: int, epoch_ahead: int, back: int, drift: int, count: int, fresh: bool) -> None:
        known = self.log.setdefault(pid, [])
        if not known:
            header = batch(SEQUENCES - 10, count, pid=pid, epoch=3)
        elif fresh:
            epoch, sequences, _ = known[-1]
            following = 0 if epoch_ahead > 0 else (sequences[-1] + 1 + drift) % SEQUENCES
            header = batch(following, count, pid=pid, epoch=max(0, epoch + epoch_ahead))
        else:
            epoch, sequences, _ = known[-min(back + 1, len(known))]
            header = batch((sequences[0] + drift) % SEQUENCES, len(sequences), pid=pid, epoch=epoch)
        answer = self.table.check(header)
        assert answer == self.expected(header)
        if answer == OK:
            # The timestamp tells which batch was found.
            self.table.record(header._replace(max_timestamp=self.end), self.end, now_ms=0)
            known.append((header.producer_epoch, list(sequences_of(header)), self.end))
            self.end += count

    @rule(pid=st.integers(0, 2))
    def forget(self, pid: int) -> None:
        self.table.forget(pid)
        self.log.pop(pid, None)


def sequences_of(header: BatchHeader) -> Iterator[int]:
    for number in range(header.record_count):
        yield (header.base_sequence + number) % SEQUENCES


AgainstEveryBatchEverSent.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAgainstEveryBatchEverSent = AgainstEveryBatchEverSent.TestCase
