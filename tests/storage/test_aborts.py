"""Transactions in a log: what readers must leave out, and what is still open, whatever happened to the files."""

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.core.producers import NEVER, AbortedTransaction
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.memory_files import MemoryFiles
from headrace.storage.opening import open_log
from headrace.storage.producer_state import marker_of
from headrace.storage.shared import Shared
from headrace.wire.batch import BatchHeader, NewRecord, build, end_of, place, read_header
from headrace.wire.markers import build_marker
from tests.storage.batches import TOPIC_ID

NOW_MS = 1_000
DIRECTORY = "/data/t-0"
SMALL = LogConfig(segment_bytes=250)

Batch = tuple[bytearray, BatchHeader]


def placed(raw: bytearray, offset: int) -> Batch:
    place(raw, 0, offset, 0)
    return raw, read_header(raw)


def data(offset: int, pid: int, sequence: int, records: int = 1, *, transactional: bool = True) -> Batch:
    values = [NewRecord(NOW_MS, None, b"value") for _ in range(records)]
    raw = build(values, producer_id=pid, producer_epoch=0, base_sequence=sequence, transactional=transactional)
    return placed(raw, offset)


def marker(offset: int, pid: int, committed: bool, *, epoch: int = 0, coordinator_epoch: int = 1) -> Batch:
    return placed(build_marker(pid, epoch, committed, coordinator_epoch, NOW_MS), offset)


def lead(log: Log, *batches: Batch) -> None:
    """As a leader does: recorded when they are accepted, written together."""
    for raw, header in batches:
        ended = marker_of(raw) if header.is_control else None
        log.producers.record(header, header.base_offset, NOW_MS, log.log_end_offset, ended)
    log.append(batches, NOW_MS)


def follow(log: Log, *batches: Batch) -> None:
    log.append(batches, NOW_MS, is_fetched=True)


def aborted_between(log: Log, offset: int, end_offset: int) -> list[tuple[int, int]]:
    """What a reader is told with each of its fetches, together."""
    found: dict[tuple[int, int], None] = {}
    while offset < end_offset:
        records = log.read(offset, 1 << 20, end_offset, True)
        found.update(((a.producer_id, a.first_offset), None) for a in log.aborted_in(offset, records))
        offset = end_of(records)
    return list(found)


def small_log(files: MemoryFiles) -> Log:
    """Three transactions over several segments: 7 aborted, 8 committed, 9 open. Markers at 4 and 5."""
    log = open_log(Shared(files), DIRECTORY, TOPIC_ID, SMALL)
    lead(log, data(0, 7, 0))
    lead(log, data(1, 8, 0))
    lead(log, data(2, 9, 0))
    lead(log, data(3, 7, 1))
    lead(log, marker(4, 7, False))
    lead(log, marker(5, 8, True))
    lead(log, data(6, 9, 1))
    assert len(log.segments) > 2
    return log


def reopened(files: MemoryFiles, *, is_clean: bool = False) -> Log:
    files.restart()
    return open_log(Shared(files), DIRECTORY, TOPIC_ID, SMALL, is_clean=is_clean)


def index_files(files: MemoryFiles) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in files.names(DIRECTORY) if name.endswith(".txnindex")]


def test_an_abort_is_in_the_index_of_the_segment_of_its_marker() -> None:
    files = MemoryFiles()
    log = small_log(files)
    (path,) = index_files(files)
    holder = log.segments[log.segments.index_of(4)]
    assert path == f"{DIRECTORY}/{holder.base_offset:020d}.txnindex"
    assert holder.aborted.overlapping(0, 9) == ([AbortedTransaction(7, 0, 4, 1)], False)
    assert aborted_between(log, 0, 7) == [(7, 0)]
    assert log.aborted_in(0, log.read(0, 1, 7, True)) == [AbortedTransaction(7, 0, 4, 1)]  # also far from its marker
    assert log.aborted_in(1, log.read(5, 1 << 20, 7, True)) != []
    assert log.aborted_in(5, log.read(5, 1 << 20, 7, True)) == []


def test_of_what_began_before_the_local_part_only_what_ends_in_it_is_told() -> None:
    """For who reads what comes before it in a tier, whose indexes have all others."""
    log = small_log(MemoryFiles())
    lead(log, data(7, 7, 2), marker(8, 7, False))
    assert log.aborted_across_local_start() == []
    log.segments.drop_first(log.segments.index_of(3))
    assert 0 < log.local_log_start_offset <= 3
    assert log.aborted_across_local_start() == [AbortedTransaction(7, 0, 4, 1)]
    log.segments.drop_first(log.segments.index_of(7))
    assert 4 < log.local_log_start_offset <= 7
    assert log.aborted_across_local_start() == []


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_changes_nothing(is_clean: bool) -> None:
    files = MemoryFiles()
    log = small_log(files)
    if is_clean:
        log.close()
    again = reopened(files, is_clean=is_clean)
    assert aborted_between(again, 0, 7) == [(7, 0)]
    assert again.producers.first_undecided(7) == 2
    producer = again.producers.get(7)
    assert producer is not None and producer.coordinator_epoch == 1
    lead(again, marker(7, 9, False))
    assert aborted_between(again, 0, 8) == [(7, 0), (9, 2)]
    assert again.producers.first_undecided(8) == NEVER


@pytest.mark.parametrize("harm", ["deleted", "torn", "junk", "stale"])
def test_after_a_crash_the_index_is_what_the_batches_say(harm: str) -> None:
    files = MemoryFiles()
    log = small_log(files)
    (path,) = index_files(files)
    if harm == "deleted":
        files.remove(path)
    elif harm == "torn":
        files.open(path).truncate(20)
    elif harm == "junk":
        files.open(path).write(0, [b"\xff" * 34])
    else:
        files.open(path).write(34, [bytes(34)])
        other = files.create(f"{DIRECTORY}/{log.segments[0].base_offset:020d}.txnindex")
        other.write(0, [b"\xff" * 70])
    again = reopened(files)
    assert aborted_between(again, 0, 7) == [(7, 0)]
    assert [len(files.read(path)) for path in index_files(files) if files.size(path)] == [34]


def test_an_index_that_somebody_spoils_while_it_is_in_use_is_written_anew() -> None:
    files = MemoryFiles()
    small_log(files).close()
    (path,) = index_files(files)
    files.open(path).write(0, [b"\xff" * 34])
    again = reopened(files, is_clean=True)
    assert aborted_between(again, 0, 7) == [(7, 0)]
    assert files.size(path) == 34
    assert aborted_between(reopened(files, is_clean=True), 0, 7) == [(7, 0)]


def test_what_is_cut_off_is_open_again_and_in_no_index() -> None:
    files = MemoryFiles()
    log = small_log(files)
    log.truncate_to(4)
    assert log.producers.first_undecided(4) == 0
    assert aborted_between(log, 0, 4) == []
    follow(log, marker(4, 7, True))
    assert log.producers.first_undecided(5) == 1
    assert aborted_between(log, 0, 5) == []
    log.truncate_to(5)
    log.truncate_to(4)
    follow(log, marker(4, 7, False))
    assert aborted_between(log, 0, 5) == [(7, 0)]


def test_markers_accepted_together_with_a_roll_between_them_are_indexed_where_they_lie() -> None:
    """And the snapshot of that roll says what was open then, not what was accepted behind it."""
    files = MemoryFiles()
    log = open_log(Shared(files), DIRECTORY, TOPIC_ID, LogConfig(segment_bytes=160))
    lead(
        log, data(0, 7, 0), data(1, 8, 0), marker(2, 8, False), marker(3, 7, False), data(4, 7, 1), marker(5, 7, False)
    )
    by_segment = [[a.last_offset for a in segment.aborted.overlapping(0, 99)[0]] for segment in log.segments]
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 2 and [o for offsets in by_segment for o in offsets] == [2, 3, 5]
    assert [
        [o for o in (2, 3, 5) if base <= o < end] for base, end in zip(bases, [*bases[1:], 6], strict=True)
    ] == by_segment
    assert aborted_between(log, 0, 6) == [(8, 1), (7, 0), (7, 4)]
    # The power goes after the first roll: everything behind it is lost, its snapshot is not.
    roll = bases[1]
    for path in [f"{DIRECTORY}/{name}" for name in files.names(DIRECTORY)]:
        if path.endswith(".log") and int(path[-24:-4]) >= roll:
            files.open(path).truncate(0)
    again = reopened(files)
    assert again.log_end_offset == roll
    assert again.producers.open_at(roll) == {p: o for p, o, m in ((7, 0, 3), (8, 1, 2)) if o < roll <= m}


def test_an_index_below_the_recovery_point_survives_a_power_loss() -> None:
    files = MemoryFiles()
    files.make_directory("/data")
    files.sync_directory("/")
    log = small_log(files)
    job = log.flush_job()
    job.run()
    log.flushed(job)
    assert log.segments.index_of(4) < log.segments.index_of(log.recovery_point)
    files.lose_power()
    again = open_log(Shared(files), DIRECTORY, TOPIC_ID, SMALL, recovery_point=7)
    assert again.log_end_offset == 7
    assert aborted_between(again, 0, 7) == [(7, 0)]


def test_retention_takes_an_index_with_its_segment() -> None:
    files = MemoryFiles()
    log = small_log(files)
    log.advance_log_start(6)
    assert index_files(files) == []
    assert log.producers.first_undecided(7) == 2


class Written(NamedTuple):
    raw: bytes
    header: BatchHeader


class TransactionsMachine(RuleBasedStateMachine):
    """A log against a list of its batches, from which everything is worked out anew."""

    log: Log

    @initialize(segment_bytes=st.sampled_from([200, 600, 5_000]))
    def begin(self, segment_bytes: int) -> None:
        self.files = MemoryFiles(lambda: NOW_MS)
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=100)
        self.batches: list[Written] = []
        self.may_come_back = False
        self.open()

    def open(self) -> None:
        self.directory = LogDir(self.files, "/data")
        self.log = self.directory.open_log("t", 0, TOPIC_ID, self.config)

    @property
    def end(self) -> int:
        return self.batches[-1].header.last_offset + 1 if self.batches else 0

    @rule(
        wanted=st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["data", "data", "commit", "abort"])), max_size=6),
        fetched=st.booleans(),
    )
    def append(self, wanted: list[tuple[int, str]], fetched: bool) -> None:
        made: list[Batch] = []
        for pid, kind in wanted:
            known = sum(b.header.record_count for b in self.batches if b.header.producer_id == pid)
            raw, header = data(self.end, pid, known) if kind == "data" else marker(self.end, pid, kind == "commit")
            made.append((raw, header))
            self.batches.append(Written(bytes(raw), header))
        if made:
            (follow if fetched else lead)(self.log, *made)

    @rule()
    def flush(self) -> None:
        job = self.log.flush_job()
        job.run()
        self.log.flushed(job)
        self.directory.checkpoint_job()()
        self.may_come_back = False

    @rule(offset=st.integers(0, 80))
    def truncate(self, offset: int) -> None:
        if 0 < offset < self.end:
            self.may_come_back = True
            self.log.truncate_to(offset)
            self.batches = [b for b in self.batches if b.header.last_offset < offset]

    @rule()
    def restart_cleanly(self) -> None:
        assert self.directory.close() == []
        self.may_come_back = False
        self.open()

    @rule()
    def die(self) -> None:
        self.files.restart()
        self.open()
        assert self.log.log_end_offset == self.end

    @precondition(lambda self: not self.may_come_back)
    @rule(seed=st.none() | st.integers(0, 2**32))
    def lose_power(self, seed: int | None) -> None:
        chance = random.Random(seed)
        self.files.lose_power(None if seed is None else lambda: chance.random() < 0.7)
        self.open()
        self.batches = [b for b in self.batches if b.header.last_offset < self.log.log_end_offset]
        assert self.log.log_end_offset == self.end

    def expected(self) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
        """What is open, and what was aborted: producer, first offset, marker."""
        opened: dict[int, int] = {}
        aborted = []
        for raw, header in self.batches:
            pid = header.producer_id
            if not header.is_control:
                opened.setdefault(pid, header.base_offset)
            elif pid in opened:
                first = opened.pop(pid)
                ended = marker_of(raw)
                assert ended is not None
                if not ended.committed:
                    aborted.append((pid, first, header.base_offset))
        return opened, aborted

    @invariant()
    def transactions_agree(self) -> None:
        opened, aborted = self.expected()
        assert self.log.producers.open_at(self.end) == opened
        assert self.log.producers.first_undecided(self.end) == min(opened.values(), default=NEVER)
        assert self.log.producers.unindexed == []
        self.readers_agree(aborted)

    def readers_agree(self, aborted: Sequence[tuple[int, int, int]]) -> None:
        for offset in range(0, self.end, 3):
            records = self.log.read(offset, 400, self.end, True)
            found = self.log.aborted_in(offset, records)
            end = end_of(records)
            assert [a[:3] for a in found] == [a for a in aborted if a[2] >= offset and a[1] < end]


TestTransactions = TransactionsMachine.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
