"""A log against a list of batches, through appends, cuts, restarts, process deaths and power losses."""

import random
from itertools import takewhile
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.core.epochs import EpochList
from headrace.core.producers import ProducerTable
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.memory_files import MemoryFiles
from headrace.wire.batch import BatchHeader
from tests.storage.batches import TOPIC_ID, batch, offsets_in

offsets = st.integers(0, 400)


class Written(NamedTuple):
    raw: bytes
    header: BatchHeader

    @property
    def first(self) -> int:
        return self.header.base_offset

    @property
    def last(self) -> int:
        return self.header.last_offset


class LogMachine(RuleBasedStateMachine):
    log: Log

    @initialize(interval=st.sampled_from([0, 100, 300]), segment_bytes=st.sampled_from([300, 1000, 5000]))
    def begin(self, interval: int, segment_bytes: int) -> None:
        self.now_ms = 10_000
        self.may_come_back = False
        """Whether records were cut off, and that is not on the disk yet."""
        self.files = MemoryFiles(lambda: self.now_ms)
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval, segment_ms=5_000)
        self.batches: list[Written] = []
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.open()

    def open(self) -> None:
        self.directory = LogDir(self.files, "/data")
        self.log = self.directory.open_log("t", 0, TOPIC_ID, self.config)

    # Changes

    @rule(
        sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 200)), min_size=1, max_size=9),
        new_epoch=st.booleans(),
        producer_id=st.sampled_from([-1, 1, 2]),
        older_ms=st.integers(0, 8_000),
    )
    def append(self, sizes: list[tuple[int, int]], new_epoch: bool, producer_id: int, older_ms: int) -> None:
        self.now_ms += 100
        self.epoch += new_epoch
        made = []
        written_end = self.end
        for records, length in sizes:
            sequence = self.sequences.get(producer_id, 0)
            raw, header = batch(
                self.end,
                records,
                epoch=self.epoch,
                timestamp=self.now_ms - older_ms,
                value=bytes(length),
                producer=(-1, -1, -1) if producer_id < 0 else (producer_id, 0, sequence),
            )
            self.sequences[producer_id] = sequence + records
            self.log.producers.record(header, header.base_offset, self.now_ms, written_end)
            made.append((raw, header))
            self.batches.append(Written(bytes(raw), header))
            self.end += records
        self.log.append(made, self.now_ms)

    @rule()
    def flush(self) -> None:
        job = self.log.flush_job()
        job.run()
        self.log.flushed(job)
        assert self.log.recovery_point == self.end
        self.may_come_back = False

    @rule()
    def checkpoint(self) -> None:
        self.directory.checkpoint_job()()

    @rule(offset=offsets)
    def delete_records(self, offset: int) -> None:
        self.log.advance_log_start(min(offset, self.end))
        self.start = max(self.start, min(offset, self.end))

    @rule(offset=offsets)
    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self.epoch = max(self.epoch, 0)
        if offset < self.end:
            self.may_come_back = True
            kept = [written for written in self.batches if written.last < offset and offset > self.start]
            dropped = self.batches[len(kept)] if len(kept) < len(self.batches) else None
            self.end = min(offset, dropped.first if dropped else offset) if offset > self.start else offset
            self.batches = kept
            self.start = min(self.start, self.end)
        self.producers_begin_anew()

    @rule(kept=st.integers(0, 3_000))
    def retain_bytes(self, kept: int) -> None:
        self.log.config = LogConfig(retention_ms=-1, retention_bytes=kept, segment_bytes=self.config.segment_bytes)
        sizes = [(segment.base_offset, segment.size) for segment in self.log.segments]
        dropped = self.log.enforce_retention(self.now_ms, self.end)
        self.log.config = self.config
        excess = sum(size for _, size in sizes) - kept
        expected = 0
        for _, size in sizes:
            if not size or excess < size:
                break
            excess -= size
            expected += 1
        assert dropped == expected
        self.start = max(self.start, self.log.segments[0].base_offset) if expected else self.start

    @rule(age_ms=st.integers(0, 10_000))
    def retain_time(self, age_ms: int) -> None:
        start = self.start
        self.log.config = LogConfig(retention_ms=age_ms, segment_bytes=self.config.segment_bytes)
        self.log.enforce_retention(self.now_ms, self.end)
        self.log.config = self.config
        self.start = max(self.start, self.log.segments[0].base_offset) if len(self.log.segments) else self.start
        # Nothing young enough is gone, and of the oldest segment something is.
        for written in self.batches:
            if start <= written.first and written.last < self.start:
                assert self.now_ms - written.header.max_timestamp > age_ms
        if len(self.log.segments) and self.log.segments[0].size:
            assert self.now_ms - self.log.segments[0].newest_ms() <= age_ms

    @rule(later_ms=st.integers(0, 10_000))
    def roll_by_age(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.log.roll_if_old(self.now_ms)
        self.directory.empty_trash(self.now_ms)

    # Ends

    @rule()
    def restart_cleanly(self) -> None:
        assert self.directory.close() == []
        self.may_come_back = False
        self.open()
        assert self.log.recovery is None

    @rule(torn_bytes=st.integers(0, 80), garbage=st.booleans())
    def die(self, torn_bytes: int, garbage: bool) -> None:
        """A process death keeps what was written, and perhaps a piece of what was being written."""
        active = self.log.segments.active
        if active is not None:
            raw, _ = batch(self.end, 3, epoch=self.epoch)
            active.log.write(active.size, [bytes(torn_bytes) if garbage else raw[:torn_bytes]])
        self.files.restart()
        self.open()
        self.end_may_be_anything_from(self.end)

    @precondition(lambda self: not self.may_come_back)
    @rule(seed=st.none() | st.integers(0, 2**32))
    def lose_power(self, seed: int | None) -> None:
        promised = self.log.recovery_point
        chance = random.Random(seed)
        self.files.lose_power(None if seed is None else lambda: chance.random() < 0.7)
        self.open()
        self.end_may_be_anything_from(promised)

    def end_may_be_anything_from(self, promised: int) -> None:
        """The log holds a prefix, and everything that was promised."""
        assert promised <= self.log.log_end_offset <= max(self.end, self.log.log_start_offset)
        self.start = self.log.log_start_offset
        self.end = self.log.log_end_offset
        self.batches = [written for written in self.batches if written.last < self.end]
        self.producers_begin_anew()

    def producers_begin_anew(self) -> None:
        table = self.expected_producers()
        for producer_id in (1, 2):
            producer = table.get(producer_id)
            self.sequences[producer_id] = producer.next_sequence if producer is not None else 0

    # Looks

    @rule(offset=offsets, bytes_max=st.integers(0, 2_000), limit=offsets, at_least_one=st.booleans())
    def read(self, offset: int, bytes_max: int, limit: int, at_least_one: bool) -> None:
        limit = min(limit, self.end)
        offset = min(max(offset, self.start), self.end)
        found = offsets_in(self.log.read(offset, bytes_max, limit, at_least_one))
        below_limit = takewhile(lambda written: written.first < limit, self.batches)
        expected = [w for w in below_limit if w.last >= offset] if offset < limit else []
        assert found == [(w.first, w.last) for w in expected[: len(found)]]
        size = sum(len(w.raw) for w in expected[: len(found)])
        assert size <= bytes_max or (at_least_one and len(found) == 1)
        if len(found) < len(expected):
            left_out = expected[len(found)]
            bases = {segment.base_offset for segment in self.log.segments}
            fits = size + len(left_out.raw) <= bytes_max or (at_least_one and not found)
            assert not fits or (found and left_out.first in bases)

    @rule(offset=offsets, steps=st.lists(st.integers(1, 900), max_size=8))
    def read_on(self, offset: int, steps: list[int]) -> None:
        """As a consumer does, each read where the last one ended."""
        offset = min(max(offset, self.start), self.end)
        for bytes_max in steps:
            data = self.log.read(offset, bytes_max, self.end, True)
            wanted = [w for w in self.batches if w.last >= offset]
            found = offsets_in(data)
            assert bytes(data) == b"".join(w.raw for w in wanted[: len(found)])
            assert bool(found) == bool(wanted)
            if found:
                offset = found[-1][1] + 1

    @rule(offset=offsets, limit=offsets)
    def estimate(self, offset: int, limit: int) -> None:
        limit = min(limit, self.end)
        offset = max(offset, self.start)
        estimate = self.log.readable_bytes(offset, limit)
        exact = sum(len(w.raw) for w in self.batches if w.last >= offset and w.first < limit)
        if estimate is None:
            assert len(self.log.segments) > 1
        elif offset < limit:
            assert estimate >= exact

    @rule(timestamp=st.integers(0, 60_000), limit=offsets)
    def find_time(self, timestamp: int, limit: int) -> None:
        limit = min(limit, self.end)
        records = [
            (w.header.base_timestamp + delta, w.first + delta, w.header.leader_epoch)
            for w in self.batches
            for delta in range(w.header.record_count)
            if self.start <= w.first + delta < limit
        ]
        assert self.log.find_time(timestamp, limit) == next((r for r in records if r[0] >= timestamp), None)
        newest = max(records, key=lambda r: (r[0], -r[1]), default=None)
        assert self.log.max_timestamp(limit) == newest

    # Always

    def expected_producers(self) -> ProducerTable:
        table = ProducerTable()
        for written in self.batches:
            table.record(written.header, written.first, self.now_ms)
        return table

    @invariant()
    def ends_agree(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert self.log.recovery_point <= self.end

    @invariant()
    def epochs_agree(self) -> None:
        expected = EpochList()
        for written in self.batches:
            expected.assign(written.header.leader_epoch, written.first)
        if self.batches:
            expected.truncate_from_start(self.start)
            assert self.log.epochs.latest == expected.latest or self.start >= self.end
            for offset in range(self.start, self.end):
                assert self.log.epochs.epoch_at(offset) == expected.epoch_at(offset)

    @invariant()
    def producers_agree(self) -> None:
        expected = self.expected_producers()
        first_offset = self.log.segments[0].base_offset if len(self.log.segments) else self.end
        for producer_id in (1, 2):
            known, wanted = self.log.producers.get(producer_id), expected.get(producer_id)
            if known is not None:
                assert wanted is not None and known.batches[-1] == wanted.batches[-1]
            elif wanted is not None:
                # Only of a producer that has nothing left in the log may nothing be known.
                assert wanted.batches[-1].last_offset < first_offset


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
