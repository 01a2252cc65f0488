"""Tcomp-1: a compacted log against a dictionary, through transactions, tombstones, rounds, restarts and deaths.

Also the part of Tcomp-6 that is about what is left: nothing that was rolled back comes to light, nothing that was
committed is lost, and no transaction hangs after its producer's state was built from the batches that are left.
"""

import random
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.client.fetched import Aborted, ConsumerRecord, Fetched
from headrace.model import TopicPartition
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.memory_files import MemoryFiles
from headrace.wire.compression import Codec
from headrace.wire.markers import build_marker
from tests.storage.batches import TOPIC_ID
from tests.storage.compacting import DAY_MS, NOW_MS, appended, begun, keyed, roll, run

PLAIN, IDEMPOTENT = -1, 1
TRANSACTIONAL = (2, 3)
FOLDER = "/data/logs/t-0"

pairs = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"d", b"a key that is hashed, since it is long"]),
        st.none() | st.binary(max_size=60),
    ),
    min_size=1,
    max_size=6,
)


class Written(NamedTuple):
    key: bytes
    value: bytes | None
    producer_id: int


class CompactionMachine(RuleBasedStateMachine):
    log: Log

    @initialize(segment_bytes=st.sampled_from([300, 700, 5_000]), interval=st.sampled_from([0, 200]))
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.now_ms = NOW_MS
        self.files = MemoryFiles(lambda: self.now_ms)
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval, is_compacted=True)
        self.written: dict[int, Written] = {}
        self.aborted: set[int] = set()
        self.open: dict[int, int] = {}
        """First offset of each producer's transaction."""
        self.sequences: dict[int, int] = {}
        self.end = 0
        self.reopen()

    def reopen(self) -> None:
        self.directory = LogDir(self.files, "/data")
        self.log = self.directory.open_log("t", 0, TOPIC_ID, self.config)

    # Changes

    @rule(records=pairs, producer_id=st.sampled_from([PLAIN, IDEMPOTENT, *TRANSACTIONAL]), codec=st.sampled_from(Codec))
    def append(self, records: list[tuple[bytes, bytes | None]], producer_id: int, codec: Codec) -> None:
        is_transactional = producer_id in TRANSACTIONAL
        sequence = self.sequences.get(producer_id, 0)
        header = keyed(
            self.log,
            *records,
            timestamp=self.now_ms,
            producer=(-1, -1, -1) if producer_id < 0 else (producer_id, 0, sequence),
            codec=codec,
            transactional=is_transactional,
        )
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(records)
        if is_transactional:
            self.open.setdefault(producer_id, header.base_offset)
        for number, (key, value) in enumerate(records):
            self.written[header.base_offset + number] = Written(key, value, producer_id)
        self.end += len(records)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), committed=st.booleans())
    def end_transaction(self, data: st.DataObject, committed: bool) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.open)))
        appended(self.log, build_marker(producer_id, 0, committed, 0, self.now_ms))
        first_offset = self.open.pop(producer_id)
        if not committed:
            self.aborted |= {
                offset
                for offset, written in self.written.items()
                if offset >= first_offset and written.producer_id == producer_id
            }
        self.end += 1

    @rule(later_ms=st.sampled_from([0, 1_000, DAY_MS // 2, 2 * DAY_MS]))
    def pass_time(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.directory.empty_trash(self.now_ms)

    @precondition(lambda self: self.end)
    @rule()
    def compact_all(self) -> None:
        self.compact(1_000, 1 << 16)

    @precondition(lambda self: self.end)
    @rule(keys_max=st.sampled_from([1, 3]), chunk_bytes=st.sampled_from([1, 300]))
    def compact_some(self, keys_max: int, chunk_bytes: int) -> None:
        self.compact(keys_max, chunk_bytes)

    def compact(self, keys_max: int, chunk_bytes: int) -> None:
        roll(self.log)
        before = self.log.first_dirty_offset
        cleaning = begun(
            self.log, now_ms=self.now_ms, limit_offset=self.stable, keys_max=keys_max, chunk_bytes=chunk_bytes
        )
        if not cleaning.plan.sources or cleaning.plan.sources[-1].end_offset <= before:
            cleaning.interrupt()
            return
        assert before < run(self.log, cleaning) == self.log.first_dirty_offset

    @rule(offset=st.integers(0, 6))
    def delete_records(self, offset: int) -> None:
        self.log.advance_log_start(min(offset, self.stable))

    # Ends

    @rule(seed=st.sampled_from(["clean", "death", *range(10)]))
    def restart(self, seed: str | int) -> None:
        """A number is a power loss after a checkpoint: everything stays, whatever becomes of what was not synced."""
        if seed == "clean":
            assert self.directory.close() == []
        elif seed == "death":
            self.files.restart()
        else:
            if self.log.exists:
                job = self.log.flush_job()
                job.run()
                self.log.flushed(job)
            self.directory.checkpoint_job()()
            chance = random.Random(seed)
            self.files.lose_power(lambda: chance.random() < 0.5)
        self.reopen()

    @rule()
    def lose_snapshots(self) -> None:
        """Producers and transactions are known from what is left of the batches."""
        start = self.log.log_start_offset
        assert self.directory.close() == []
        if self.files.exists(FOLDER):
            for name in self.files.names(FOLDER):
                if name.endswith(".snapshot"):
                    self.files.remove(f"{FOLDER}/{name}")
        self.reopen()
        if not start:
            opened = min(self.open.values(), default=None)
            assert self.log.producers.first_open_offset == opened
            for producer_id, sequence in self.sequences.items():
                producer = self.log.producers.get(producer_id)
                assert producer is not None and producer.next_sequence == sequence

    # Looks

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def consumed(self) -> list[ConsumerRecord]:
        """As one that reads committed records gets them."""
        found: list[ConsumerRecord] = []
        offset = self.log.log_start_offset
        while offset < self.stable:
            data = self.log.read(offset, 400, self.stable, True)
            aborted = [Aborted(a.first_offset, a.producer_id) for a in self.log.aborted_in(offset, data)]
            fetched = Fetched(TopicPartition("t", 0), data, offset, aborted)
            while fetched.take(1_000, found):
                pass
            if fetched.position <= offset:
                break
            offset = fetched.position
        return found

    @invariant()
    def readers_learn_what_was_written(self) -> None:
        start, found = self.log.log_start_offset, self.consumed()
        newest: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, written in self.written.items():
            if offset < self.stable and offset not in self.aborted:
                newest[written.key] = offset, written.value
        seen: dict[bytes, tuple[int, bytes | None]] = {}
        for record in found:
            written = self.written[record.offset]
            assert record.offset not in self.aborted
            assert (record.key, record.value) == (written.key, written.value)
            seen[written.key] = record.offset, record.value
        for key, (offset, value) in newest.items():
            if offset >= start and not (value is None and key not in seen):
                assert seen[key] == (offset, value)
        assert [record.offset for record in found] == sorted({record.offset for record in found})

    @invariant()
    def offsets_stay(self) -> None:
        assert self.log.log_end_offset == self.end
        for segment, after in zip(list(self.log.segments), list(self.log.segments)[1:], strict=False):
            assert segment.end_offset == after.base_offset
            assert segment.size > 0


TestCompactionMachine = CompactionMachine.TestCase
TestCompactionMachine.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
