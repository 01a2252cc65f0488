from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.core.epochs import EpochList


def listed(epochs: EpochList) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in epochs.entries]


def test_an_empty_list_knows_nothing() -> None:
    epochs = EpochList()
    assert epochs.latest == -1
    assert listed(epochs) == []
    assert epochs.epoch_at(0) == -1
    assert epochs.end_offset_for(0, 10) == (-1, -1)
    assert epochs.end_offset_for(-1, 10) == (-1, -1)
    assert not epochs.truncate_from_end(0)
    assert not epochs.truncate_from_start(5)


def test_epoch_0_is_an_epoch_like_any_other() -> None:
    epochs = EpochList()
    assert epochs.assign(0, 0)
    assert epochs.latest == 0
    assert epochs.end_offset_for(0, 7) == (0, 7)


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    epochs = EpochList([(2, 10), (4, 20), (7, 30)])
    answers = {epoch: epochs.end_offset_for(epoch, 40) for epoch in range(-1, 9)}
    assert answers == {
        -1: (-1, -1),
        0: (0, 10),
        1: (1, 10),
        2: (2, 20),
        3: (2, 20),
        4: (4, 30),
        5: (4, 30),
        6: (4, 30),
        7: (7, 40),
        8: (-1, -1),
    }


def test_an_undefined_epoch_other_than_minus_one_is_undefined_too() -> None:
    assert EpochList([(2, 10)]).end_offset_for(-7, 40) == (-1, -1)


def test_the_latest_epoch_goes_on_without_a_new_entry() -> None:
    epochs = EpochList([(1, 5)])
    assert not epochs.assign(1, 9)
    assert not epochs.assign(1, 5)
    assert listed(epochs) == [(1, 5)]


def test_a_new_leader_epoch_without_records_replaces_an_older_one_at_the_same_offset() -> None:
    epochs = EpochList([(1, 0), (2, 10)])
    assert epochs.assign(3, 10)
    assert listed(epochs) == [(1, 0), (3, 10)]


def test_an_entry_that_contradicts_newer_ones_drops_them() -> None:
    epochs = EpochList([(1, 0), (3, 10), (5, 20)])
    assert epochs.assign(4, 15)
    assert listed(epochs) == [(1, 0), (3, 10), (4, 15)]
    assert epochs.assign(6, 5)
    assert listed(epochs) == [(1, 0), (6, 5)]
    assert epochs.assign(6, 3)
    assert listed(epochs) == [(1, 0), (6, 3)]


def test_truncation_at_the_log_end_still_drops_epochs_that_begin_there() -> None:
    epochs = EpochList([(1, 0), (2, 10)])
    assert not epochs.truncate_from_end(11)
    assert epochs.truncate_from_end(10)
    assert listed(epochs) == [(1, 0)]
    assert epochs.latest == 1


def test_the_epoch_that_holds_the_new_log_start_begins_there() -> None:
    epochs = EpochList([(1, 0), (2, 10), (4, 20)])
    assert epochs.truncate_from_start(15)
    assert listed(epochs) == [(2, 15), (4, 20)]
    assert not epochs.truncate_from_start(15)
    assert not epochs.truncate_from_start(7)
    assert epochs.truncate_from_start(20)
    assert listed(epochs) == [(4, 20)]
    assert epochs.truncate_from_start(100)
    assert listed(epochs) == [(4, 100)]
    assert epochs.latest == 4


def test_records_belong_to_the_last_epoch_that_began_at_or_before_them() -> None:
    epochs = EpochList([(1, 5), (3, 10)])
    assert [epochs.epoch_at(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 3, 3]


def test_a_cleared_list_is_empty() -> None:
    epochs = EpochList([(1, 5)])
    epochs.clear()
    assert (listed(epochs), epochs.latest) == ([], -1)


@pytest.mark.parametrize("entries", [[(1, 5), (1, 6)], [(2, 5), (1, 6)], [(1, 5), (2, 5)], [(1, 5), (2, 4)], [(-1, 0)]])
def test_entries_out_of_order_are_refused(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        EpochList(entries)


class AgainstTheEpochOfEveryOffset(RuleBasedStateMachine):
    """T5-3. The dumb twin is a log that holds the epoch of every record."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs = EpochList()
        self.log: dict[int, int] = {}
        self.start = 0
        self.end = 0
        self.leader_epoch = 0

    @rule(count=st.integers(0, 5), bump=st.integers(1, 3))
    def lead_and_write(self, count: int, bump: int) -> None:
        self.leader_epoch += bump
        self.epochs.assign(self.leader_epoch, self.end)
        for _ in range(count):
            self.epochs.assign(self.leader_epoch, self.end)
            self.log[self.end] = self.leader_epoch
            self.end += 1

    @rule(back=st.integers(0, 8))
    def truncate_the_end(self, back: int) -> None:
        self.end = max(self.start, self.end - back)
        self.log = {offset: epoch for offset, epoch in self.log.items() if offset < self.end}
        self.epochs.truncate_from_end(self.end)

    @rule(on=st.integers(0, 8))
    def delete_records(self, on: int) -> None:
        self.start = min(self.end, self.start + on)
        self.log = {offset: epoch for offset, epoch in self.log.items() if offset >= self.start}
        self.epochs.truncate_from_start(self.start)

    @invariant()
    def both_columns_rise(self) -> None:
        entries = self.epochs.entries
        for older, newer in pairwise(entries):
            assert older.epoch < newer.epoch and older.start_offset < newer.start_offset
        assert self.epochs.latest == (entries[-1].epoch if entries else -1)

    @invariant()
    def every_record_is_in_its_epoch(self) -> None:
        for offset, epoch in self.log.items():
            assert self.epochs.epoch_at(offset) == epoch

    @invariant()
    def the_end_of_an_epoch_is_after_its_last_record(self) -> None:
        for epoch in set(self.log.values()):
            found, end = self.epochs.end_offset_for(epoch, self.end)
            assert found == epoch
            assert end == max(offset for offset, of in self.log.items() if of == epoch) + 1


AgainstTheEpochOfEveryOffset.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestAgainstTheEpochOfEveryOffset = AgainstTheEpochOfEveryOffset.TestCase
