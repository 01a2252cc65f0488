"""What compaction keeps and what it drops: keys, tombstones, producers, transactions, and which segments become one."""

import pytest

from headrace.core.producers import Duplicate
from headrace.errors import CorruptLog, ErrorCode
from headrace.storage.cleaning import Rewritten, Source, Step, clean, groups
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.memory_files import MemoryFiles
from headrace.storage.opening import open_log
from headrace.storage.segment import RELATIVE_OFFSET_MAX
from headrace.storage.shared import Shared
from headrace.wire.batch import CRC_AT, DELETE_HORIZON, crc_of
from headrace.wire.compression import Codec
from headrace.wire.markers import build_marker
from tests.storage.batches import TOPIC_ID
from tests.storage.compacting import (
    DAY_MS,
    NOW_MS,
    appended,
    batches_in,
    begun,
    compact,
    dirt,
    keyed,
    records_in,
    roll,
    run,
)

CONFIG = LogConfig(segment_bytes=1_000, index_interval_bytes=100, is_compacted=True)
DIRECTORY = "/data/logs/t-0"


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles(lambda: NOW_MS)
    files.make_directory("/data/logs")
    return files


@pytest.fixture
def log(files: MemoryFiles) -> Log:
    return opened(files)


def opened(files: MemoryFiles) -> Log:
    return open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG)


def reopened(files: MemoryFiles) -> Log:
    """After a death, without any snapshot of producers."""
    files.restart()
    for name in files.names(DIRECTORY):
        if name.endswith(".snapshot"):
            files.remove(f"{DIRECTORY}/{name}")
    return opened(files)


def assert_death_costs_nothing(files: MemoryFiles, log: Log) -> None:
    before = records_in(log)
    assert records_in(reopened(files)) == before


def again(log: Log, later_ms: int) -> None:
    """Another round, so much later; something has to be dirty for it."""
    keyed(log, (b"other", b"%d" % log.log_end_offset))
    roll(log)
    compact(log, now_ms=NOW_MS + later_ms)


@pytest.mark.parametrize("codec", Codec)
def test_the_newest_record_of_each_key_stays_at_its_offset(log: Log, codec: Codec) -> None:
    keyed(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), codec=codec)
    keyed(log, (b"a", b"2"), (b"a", b"3"), codec=codec)
    keyed(log, (b"c", b"2"), (b"x" * 100, b"1"), codec=codec)
    roll(log)
    assert compact(log) == 7
    assert records_in(log) == [(1, b"b", b"1"), (4, b"a", b"3"), (5, b"c", b"2"), (6, b"x" * 100, b"1")]
    assert [header.codec for header, _ in batches_in(log)] == [codec] * 3
    assert (log.log_start_offset, log.log_end_offset, log.first_dirty_offset) == (0, 7, 7)


def test_the_active_segment_and_what_is_not_committed_synced_or_old_enough_are_left_alone(log: Log) -> None:
    for number in range(4):
        keyed(log, (b"a", b"%d" % number), timestamp=NOW_MS + number)
        roll(log)
    keyed(log, (b"a", b"active"))
    assert dirt(log).end_offset == 4
    assert dirt(log, limit_offset=2).end_offset == 2
    assert dirt(log, now_ms=NOW_MS + 1_002, lag_min=1_000).end_offset == 3
    log.recovery_point = 1
    assert dirt(log).end_offset == 1


def test_a_log_is_dirty_enough_by_its_share_or_by_its_age(log: Log) -> None:
    for _ in range(4):
        keyed(log, (b"a", b"1"))
        roll(log)
    assert dirt(log).ratio == 1
    compact(log)
    for number in range(10):
        keyed(log, (b"%d" % number, bytes(20)))
    roll(log)
    assert dirt(log).is_enough(0.5) and not dirt(log).is_enough(0.99)
    assert not dirt(log, now_ms=NOW_MS + 900, lag_max=1_000).is_enough(0.99)
    assert dirt(log, now_ms=NOW_MS + 1_100, lag_max=1_000).is_enough(0.99)
    compact(log)
    assert not dirt(log, now_ms=NOW_MS + 1_100, lag_max=1_000).is_enough(0)


def test_tcomp_3_a_tombstone_stays_for_its_time_after_the_first_round_that_met_it(log: Log) -> None:
    keyed(log, (b"a", b"1"), (b"b", b"1"))
    # Its own timestamp is of no account.
    keyed(log, (b"a", None), (b"b", b"2"), timestamp=5)
    roll(log)
    compact(log)
    assert records_in(log) == [(2, b"a", None), (3, b"b", b"2")]
    ((header, records),) = batches_in(log)
    assert header.attributes & DELETE_HORIZON and header.base_timestamp == NOW_MS + DAY_MS
    assert [record.timestamp for record in records] == [5, 6]
    again(log, DAY_MS - 1)
    assert (2, b"a", None) in records_in(log)
    again(log, DAY_MS)
    assert [(key, value) for _, key, value in records_in(log)] == [(b"b", b"2"), (b"other", b"5")]


def test_records_without_a_key_go_and_batches_that_nobody_can_read_stay(log: Log) -> None:
    keyed(log, (None, b"1"), (b"a", b"1"))
    header = keyed(log, (b"b", b"1"))
    raw = bytearray(log.read(header.base_offset, 1_000, 3, True))
    raw[61:] = b"\xff" * (len(raw) - 61)
    raw[CRC_AT : CRC_AT + 4] = crc_of(raw, 0, len(raw)).to_bytes(4, "big")
    appended(log, raw)
    keyed(log, (b"b", b"2"))
    roll(log)
    compact(log)
    assert [header.base_offset for _, header in log.segments.headers_from(0)] == [0, 3, 4]


def test_a_damaged_batch_ends_the_round_and_changes_nothing(files: MemoryFiles, log: Log) -> None:
    keyed(log, (b"a", b"1"))
    keyed(log, (b"a", b"2"))
    roll(log)
    files.open(log.segments[0].log.path).write(64, [b"\xff"])
    before = files.names(DIRECTORY)
    cleaning = begun(log)
    with pytest.raises(CorruptLog, match="checksum"):
        run(log, cleaning)
    cleaning.interrupt()
    assert files.names(DIRECTORY) == before


def test_keys_that_do_not_fit_into_memory_take_several_rounds(log: Log) -> None:
    for number in range(12):
        keyed(log, (b"%d" % (number % 6), b"%d" % number))
    roll(log)
    ends = []
    while dirt(log).cleanable_bytes:
        ends.append(compact(log, keys_max=4, chunk_bytes=100))
    assert ends == sorted(set(ends)) and len(ends) > 1 and ends[-1] == 12
    assert [offset for offset, _, _ in records_in(log)] == list(range(6, 12))


# Producers


def test_tcomp_5_a_producer_that_was_idle_goes_on(files: MemoryFiles, log: Log) -> None:
    keyed(log, (b"a", b"1"), producer=(7, 0, 0))
    last = keyed(log, (b"a", b"2"), (b"b", b"2"), producer=(7, 0, 1))
    keyed(log, (b"a", b"3"), (b"b", b"3"))
    keyed(log, (b"a", b"4"))
    roll(log)
    compact(log)
    kept = {header.base_offset: header for header, _ in batches_in(log)}
    assert set(kept) == {1, 3, 5}
    assert kept[1].record_count == 0 and kept[1].last_sequence == 2
    for known in (log, reopened(files)):
        assert isinstance(known.producers.check(last), Duplicate)
        assert known.producers.check(last._replace(base_sequence=3)) is ErrorCode.NONE
    known.producers.forget(7)
    again(known, 0)
    assert 1 not in {header.base_offset for header, _ in batches_in(known)}


# Transactions


def test_tcomp_6_what_was_rolled_back_goes_what_was_committed_stays_and_markers_outlive_them(
    files: MemoryFiles, log: Log
) -> None:
    keyed(log, (b"a", b"old"))
    keyed(log, (b"a", b"rolled back"), producer=(2, 0, 0), transactional=True)
    keyed(log, (b"b", b"committed"), producer=(3, 0, 0), transactional=True)
    roll(log)
    appended(log, build_marker(2, 0, False, 0, NOW_MS))
    appended(log, build_marker(3, 0, True, 0, NOW_MS))
    roll(log)
    # Producers that have gone are not in the way.
    log.producers.forget(2)
    log.producers.forget(3)
    compact(log, limit_offset=3)
    assert records_in(log) == [(0, b"a", b"old"), (2, b"b", b"committed")]
    again(log, 0)
    assert [header.base_offset for header, _ in batches_in(log) if header.is_control] == [3, 4]
    again(log, DAY_MS)
    # Nothing is left of the one that was rolled back: a round has seen it, and a day has passed since.
    assert [header.base_offset for header, _ in batches_in(log) if header.is_control] == [4]
    keyed(log, (b"b", b"newer"))
    roll(log)
    compact(log, now_ms=NOW_MS + DAY_MS)
    again(log, DAY_MS + 1)
    assert [header.base_offset for header, _ in batches_in(log) if header.is_control] == [4]
    again(log, 3 * DAY_MS)
    assert not [header for header, _ in batches_in(log) if header.is_control]
    assert reopened(files).producers.first_open_offset is None


def test_an_emptied_batch_of_a_transaction_keeps_its_marker(files: MemoryFiles, log: Log) -> None:
    keyed(log, (b"a", b"1"), producer=(2, 0, 0), transactional=True)
    appended(log, build_marker(2, 0, True, 0, NOW_MS))
    keyed(log, (b"a", b"2"))
    roll(log)
    for days in range(4):
        again(log, days * DAY_MS)
    assert [(h.base_offset, h.record_count) for h, _ in batches_in(log) if h.is_transactional] == [(0, 0), (1, 1)]
    assert reopened(files).producers.first_open_offset is None


def test_the_index_of_aborted_transactions_knows_those_of_which_something_is_left(log: Log) -> None:
    keyed(log, (b"a", b"1"), producer=(2, 0, 0), transactional=True)
    appended(log, build_marker(2, 0, False, 0, NOW_MS))
    roll(log)
    compact(log)
    assert log.segments[0].aborted.overlapping(0, 9)[0]
    log.producers.forget(2)
    again(log, 0)
    again(log, 1)
    assert not log.segments[0].aborted.size


# Segments


def test_small_segments_become_one(files: MemoryFiles, log: Log) -> None:
    for number in range(30):
        keyed(log, (b"%d" % (number % 3), b"%d" % number))
        roll(log)
    assert len(log.segments) == 31
    compact(log)
    assert len(log.segments) == 4
    again(log, 0)
    assert [segment.base_offset for segment in log.segments] == [0, 31]
    assert [key for _, key, _ in records_in(log)] == [b"0", b"1", b"2", b"other"]
    assert_death_costs_nothing(files, log)


def test_tcomp_9_segments_that_are_too_far_apart_stay_apart(files: MemoryFiles, log: Log) -> None:
    far = RELATIVE_OFFSET_MAX + 10
    keyed(log, (b"a", b"1"))
    roll(log)
    keyed(log, (b"b", b"1"), at=far)
    keyed(log, (b"b", b"2"))
    roll(log)
    keyed(log, (b"c", b"1"), at=2 * far)
    roll(log)
    compact(log)
    again(log, 0)
    assert [segment.base_offset for segment in log.segments][:2] == [0, far]
    assert [offset for offset, _, _ in records_in(log)][:3] == [0, far + 1, 2 * far]
    assert_death_costs_nothing(files, log)


def test_a_group_is_bounded_by_bytes_by_indexes_and_by_offsets() -> None:
    def bases(sources: list[Source], config: LogConfig) -> list[list[int]]:
        return [[source.base_offset for source in group] for group in groups(sources, config, 1 << 62)]

    small = [Source(number * 10, number * 10 + 10, 100, 40) for number in range(5)]
    assert bases(small, LogConfig(segment_bytes=300)) == [[0, 10, 20], [30, 40]]
    assert bases(small, LogConfig(index_bytes_max=80)) == [[0, 10], [20, 30], [40]]
    reaching = [
        Source(0, 5, 1, 1),
        Source(5, RELATIVE_OFFSET_MAX + 1, 1, 1),
        Source(RELATIVE_OFFSET_MAX + 1, 1 << 40, 1, 1),
    ]
    assert bases(reaching, LogConfig()) == [[0, 5], [RELATIVE_OFFSET_MAX + 1]]


# Interruptions


@pytest.mark.parametrize("nth", range(4))
def test_tcomp_8_a_log_that_is_cut_during_a_round_keeps_what_is_before_the_cut(
    files: MemoryFiles, log: Log, nth: int
) -> None:
    for number in range(20):
        keyed(log, (b"%d" % (number % 4), bytes(100)))
    roll(log)
    keyed(log, (b"a", b"1"), (b"a", b"2"))
    cleaning = begun(log)
    made = 0

    def between(step: Step) -> None:
        nonlocal made
        made += isinstance(step, Rewritten)
        if made > nth // 2:
            if nth % 2:
                log.truncate_to(21)
            else:
                log.truncate_to(10)

    run(log, cleaning, between)
    assert log.cleaning is None and not cleaning.is_wanted
    assert log.first_dirty_offset == 0
    end = log.log_end_offset
    assert end == (20 if nth % 2 else 10)
    assert not [name for name in files.names(DIRECTORY) if name.endswith((".cleaned", ".swap"))]
    newest = {key: offset for offset, key, _ in records_in(log)}
    assert newest == {b"%d" % (offset % 4): offset for offset in range(end - 4, end)}
    keyed(log, (b"0", b"new"))
    roll(log)
    compact(log)
    assert {key: offset for offset, key, _ in records_in(log)}[b"0"] == end
    assert_death_costs_nothing(files, log)


@pytest.mark.parametrize("moves", range(4))
def test_a_cut_in_the_middle_of_a_swap_finishes_it_first(files: MemoryFiles, log: Log, moves: int) -> None:
    for number in range(20):
        keyed(log, (b"%d" % (number % 4), bytes(100)))
    roll(log)
    cleaning = begun(log)

    def between(step: Step) -> None:
        if isinstance(step, Rewritten):
            cleaning.begin_swap(step)
            for _ in range(moves):
                cleaning.move()
            log.truncate_to(log.log_end_offset - 1)

    run(log, cleaning, between)
    assert not cleaning.is_swapping
    assert not [name for name in files.names(DIRECTORY) if name.endswith((".cleaned", ".swap"))]
    assert [offset for offset, _, _ in records_in(log)][-3:] == [16, 17, 18]
    assert_death_costs_nothing(files, log)


@pytest.mark.parametrize("offset", [5, 10, 20])
def test_segments_that_are_dropped_end_a_round_only_if_it_still_needs_them(
    files: MemoryFiles, log: Log, offset: int
) -> None:
    for number in range(40):
        keyed(log, (b"%d" % (number % 30), bytes(100)))
    roll(log)
    cleaning = begun(log)
    made: list[Rewritten] = []

    def between(step: Step) -> None:
        if isinstance(step, Rewritten):
            made.append(step)
            if len(made) == 3:
                # The one before is in its place; this one is not even on its way.
                log.advance_log_start(offset)

    run(log, cleaning, between)
    assert made[1].end_offset == 10
    assert cleaning.is_wanted == (offset <= 10)
    assert [found for found, _, _ in records_in(log)] == [*range(max(offset, 10), 40)]
    assert_death_costs_nothing(files, log)


def test_segments_are_dropped_while_others_are_put_in_their_place(files: MemoryFiles, log: Log) -> None:
    for number in range(12):
        keyed(log, (b"%d" % number, bytes(100)))
        roll(log)
    cleaning = begun(log)
    made = next(step for step in clean(files, cleaning.plan) if isinstance(step, Rewritten))
    assert made.end_offset > 2
    cleaning.begin_swap(made)
    log.advance_log_start(2)
    assert not cleaning.is_swapping and cleaning.is_wanted
    assert [segment.base_offset for segment in log.segments][:2] == [0, made.end_offset]
    assert [found for found, _, _ in records_in(log)] == list(range(2, 12))


def test_another_policy_ends_a_round(log: Log) -> None:
    keyed(log, (b"a", b"1"))
    roll(log)
    cleaning = begun(log)
    log.config = LogConfig()
    assert not cleaning.is_wanted


def test_a_follower_begins_segments_where_the_last_one_ended_though_offsets_are_left_out(files: MemoryFiles) -> None:
    log = open_log(Shared(files), DIRECTORY, TOPIC_ID, LogConfig(segment_bytes=100))
    for offset in (0, 10, 50, 51):
        keyed(log, (b"a", bytes(50)), at=offset)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 11, 51]
    again = reopened(files)
    assert again.log_end_offset == 52 and [offset for offset, _, _ in records_in(again)] == [0, 10, 50, 51]


def test_a_cut_between_batches_ends_the_log_with_the_last_batch(files: MemoryFiles, log: Log) -> None:
    for offset in (0, 10, 50):
        keyed(log, (b"a", b"1"), at=offset)
    roll(log)
    log.truncate_to(30)
    assert log.log_end_offset == 11 == log.recovery_point
    assert reopened(files).log_end_offset == 11
