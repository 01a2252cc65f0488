"""What a start after a crash keeps, cuts and refuses; and Tidem-6, what it knows of producers."""

import pytest

from headrace.core.producers import Duplicate
from headrace.errors import CorruptLog, ErrorCode
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.memory_files import MemoryFiles
from headrace.storage.opening import open_log
from headrace.storage.shared import Shared
from headrace.wire.batch import BatchHeader
from tests.storage.batches import TOPIC_ID, batch, offsets_in

CONFIG = LogConfig(segment_bytes=320, index_interval_bytes=100)
DIRECTORY = "/data/logs/t-0"


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/data/logs")
    files.sync_directory("/")
    files.sync_directory("/data")
    return files


@pytest.fixture
def log(files: MemoryFiles) -> Log:
    """Ten batches of two records, in several segments, never synced."""
    log = open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG)
    for _ in range(10):
        log.append([batch(log.log_end_offset, 2)], 1_000)
    assert len(log.segments) == 4
    return log


def crash(files: MemoryFiles, recovery_point: int = 0) -> Log:
    files.restart()
    return open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG, recovery_point=recovery_point)


def damage(files: MemoryFiles, log: Log, offset: int, at: int, replacement: bytes) -> None:
    """Overwrites bytes of the batch that holds `offset`."""
    segment = log.segments[log.segments.index_of(offset)]
    found = segment.locate(offset)
    assert found is not None
    files.open(segment.log.path).write(found[0] + at, [replacement])


@pytest.mark.usefixtures("log")
def test_whole_batches_stay_and_indexes_are_made_anew(files: MemoryFiles) -> None:
    again = crash(files)
    assert again.log_end_offset == 20
    assert again.recovery is not None and (again.recovery.bytes_cut, again.recovery.reason) == (0, None)
    assert [offsets_in(again.read(offset, 1, 20, True))[0][0] for offset in range(20)] == [o & ~1 for o in range(20)]


@pytest.mark.parametrize("kept_bytes", [1, 11, 17, 60, 61, 80])
def test_a_torn_last_batch_is_cut(files: MemoryFiles, log: Log, kept_bytes: int) -> None:
    active = log.segments.active
    assert active is not None
    raw, _ = batch(20, 2)
    active.log.write(active.size, [raw[:kept_bytes]])
    again = crash(files)
    assert again.log_end_offset == 20
    assert again.recovery is not None
    assert (again.recovery.bytes_cut, again.recovery.is_torn_tail) == (kept_bytes, True)
    assert files.size(active.log.path) == active.size
    again.append([batch(20, 2, epoch=1)], 1_000)
    assert crash(files).log_end_offset == 22


DAMAGES = {
    "checksum": (70, b"\xff\xff", "fails its checksum"),
    "magic": (16, b"\x01", "magic 1"),
    "offset that goes back": (7, b"\x01", "offset 1 where 12 is due"),
    "offset beyond the next segment": (0, b"\x00\x00\x01", "which its segment cannot hold"),
    "length": (8, b"\x00\x00\x00\x05", "incomplete"),
    "leader epoch that goes back": (12, b"\xff\xff\xff\xff", "leader epoch -1 follows 0"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_above_the_recovery_point_ends_the_log_there(files: MemoryFiles, log: Log, kind: str) -> None:
    at, replacement, reason = DAMAGES[kind]
    damage(files, log, 12, at, replacement)
    again = crash(files, recovery_point=12)
    assert again.log_end_offset == 12
    assert again.recovery is not None and again.recovery.reason is not None and reason in again.recovery.reason
    assert again.recovery.segments_dropped == 1
    assert not again.recovery.is_torn_tail
    assert offsets_in(again.read(11, 1_000, 12, True)) == [(10, 11)]


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_below_the_recovery_point_is_for_somebody_to_look_at(files: MemoryFiles, log: Log, kind: str) -> None:
    at, replacement, reason = DAMAGES[kind]
    damage(files, log, 12, at, replacement)
    before = {name: files.read(f"{DIRECTORY}/{name}") for name in files.names(DIRECTORY) if name.endswith(".log")}
    with pytest.raises(CorruptLog, match=reason):
        crash(files, recovery_point=14)
    after = {name: files.read(f"{DIRECTORY}/{name}") for name in files.names(DIRECTORY) if name.endswith(".log")}
    assert after == before


def test_what_was_cut_does_not_come_back(files: MemoryFiles, log: Log) -> None:
    log.close()
    damage(files, log, 4, 70, b"\xff\xff")
    assert crash(files).log_end_offset == 4
    files.lose_power()
    again = open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG)
    assert again.log_end_offset == 4
    assert again.recovery is not None and again.recovery.bytes_cut == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_whose_first_segments_are_gone_tells_which_offsets_it_lost(
    files: MemoryFiles, log: Log, is_clean: bool
) -> None:
    first, second, *_ = log.segments
    log.close()
    for name in files.names(DIRECTORY):
        if name.startswith(f"{first.base_offset:020d}."):
            files.remove(f"{DIRECTORY}/{name}")
    found = open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG, is_clean=is_clean)
    assert found.lost_beginning == range(second.base_offset)
    assert found.log_start_offset == second.base_offset


def test_a_log_that_was_deleted_from_lost_nothing(files: MemoryFiles, log: Log) -> None:
    log.advance_log_start(log.segments[2].base_offset)
    assert crash(files).lost_beginning is None


@pytest.mark.usefixtures("log")
def test_a_log_that_ends_before_its_recovery_point_has_lost_something(files: MemoryFiles) -> None:
    with pytest.raises(CorruptLog, match="ends at offset 20"):
        crash(files, recovery_point=22)


@pytest.mark.parametrize(("recovery_point", "is_lost"), [(6, False), (18, True)])
def test_a_segment_that_is_missing_ends_the_log(
    files: MemoryFiles, log: Log, recovery_point: int, is_lost: bool
) -> None:
    files.remove(log.segments[2].log.path)
    if is_lost:
        # Everything below was scanned and synced once: recovery begins above the hole, and does not see it.
        assert crash(files, recovery_point).log_end_offset == 20
    else:
        again = crash(files, recovery_point)
        assert again.log_end_offset == 12
        assert again.recovery is not None and again.recovery.reason == "offsets 12 to 17 are missing"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_zeros_behind_the_last_entry_of_an_index_are_no_entries(files: MemoryFiles, log: Log, suffix: str) -> None:
    """As Apache Kafka leaves them when it is killed, whose indexes are as long as they may become."""
    log.close()
    for segment in log.segments:
        path = segment.log.path.removesuffix(".log") + suffix
        files.open(path).write(files.size(path), [bytes(1200)])
    again = open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG, is_clean=True)
    assert again.log_end_offset == 20
    assert [offsets_in(again.read(offset, 1, 20, True))[0][0] for offset in range(20)] == [o & ~1 for o in range(20)]
    assert again.find_time(1_001, 20) == (1_001, 1, 0)
    again.append([batch(20, 2, epoch=1)], 1_000)
    again.close()
    assert all(files.size(f"{DIRECTORY}/{name}") < 100 for name in files.names(DIRECTORY) if name.endswith("index"))


def test_indexes_of_another_log_are_not_believed(files: MemoryFiles, log: Log) -> None:
    log.close()
    entries = b"".join(n.to_bytes(4, "big") + (n * 31).to_bytes(4, "big") for n in range(1, 6))
    files.replace(f"{DIRECTORY}/00000000000000000000.index", entries)
    again = open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG, is_clean=True)
    assert [offsets_in(again.read(offset, 1, 20, True))[0][0] for offset in range(6)] == [0, 0, 2, 2, 4, 4]


def test_missing_indexes_and_epochs_are_built_from_the_log(files: MemoryFiles, log: Log) -> None:
    log.append([batch(20, 2, epoch=4)], 1_000)
    log.close()
    for name in files.names(DIRECTORY):
        if name.endswith(("index", "checkpoint")):
            files.remove(f"{DIRECTORY}/{name}")
    again = open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG, is_clean=True)
    assert again.epochs.entries == ((0, 0), (4, 20))
    assert offsets_in(again.read(13, 1, 22, True)) == [(12, 13)]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_segment_that_lost_its_content_is_not_passed_over_in_silence(
    files: MemoryFiles, log: Log, is_clean: bool
) -> None:
    files.open(log.segments[1].log.path).truncate(0)
    files.restart()
    with pytest.raises(CorruptLog, match="is empty"):
        open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG, recovery_point=20, is_clean=is_clean)


def test_offsets_that_compaction_took_from_the_end_of_a_segment_do_not_stop_a_reader(
    files: MemoryFiles, log: Log
) -> None:
    first, second = log.segments[0], log.segments[1]
    found = first.locate(second.base_offset - 1)
    assert found is not None
    files.open(first.log.path).truncate(found[0])
    for suffix in ("index", "timeindex"):
        files.remove(f"{DIRECTORY}/{0:020d}.{suffix}")
    files.restart()
    again = open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG, is_clean=True)
    assert offsets_in(again.read(second.base_offset - 1, 1, 20, True))[0][0] == second.base_offset
    assert again.read(second.base_offset - 1, 1, second.base_offset, True) == b""


@pytest.mark.usefixtures("log")
def test_files_that_are_not_named_as_ours_are_nobodys(files: MemoryFiles) -> None:
    for name in ("0.log", "notes.log", "7.snapshot", f"{0:021d}.log"):
        files.create(f"{DIRECTORY}/{name}")
    again = crash(files)
    assert (again.log_end_offset, [segment.base_offset for segment in again.segments]) == (20, [0, 6, 12, 18])
    again.close()
    assert {"0.log", "notes.log", "7.snapshot"} <= set(files.names(DIRECTORY))


@pytest.mark.usefixtures("log")
def test_an_index_without_a_log_is_removed(files: MemoryFiles) -> None:
    for suffix in (".index", ".timeindex", ".txnindex"):
        files.create(f"{DIRECTORY}/{99:020d}{suffix}")
    crash(files)
    assert not [name for name in files.names(DIRECTORY) if "99." in name]


@pytest.mark.usefixtures("log")
def test_an_empty_segment_that_apache_kafkas_compaction_was_about_to_use_replaces_nothing(files: MemoryFiles) -> None:
    files.create(f"{DIRECTORY}/{0:020d}.log.swap")
    assert crash(files).log_end_offset == 20
    assert not files.exists(f"{DIRECTORY}/{0:020d}.log.swap")


@pytest.mark.usefixtures("log")
def test_records_deleted_beyond_what_a_crash_left_begin_anew_at_that_offset(files: MemoryFiles) -> None:
    files.restart()
    again = open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG, log_start_offset=30)
    assert (again.log_start_offset, again.log_end_offset) == (30, 30)
    again.append([batch(30, 1, epoch=1)], 1_000)
    assert offsets_in(again.read(30, 1_000, 31, True)) == [(30, 30)]


# Tidem-6


def idempotent(log: Log, producer_id: int, sequence: int, records: int) -> BatchHeader:
    raw, header = batch(log.log_end_offset, records, producer=(producer_id, 0, sequence))
    assert log.producers.check(header) is ErrorCode.NONE
    log.producers.record(header, header.base_offset, 0)
    log.append([(raw, header)], 1_000)
    return header


@pytest.mark.parametrize("snapshots", ["intact", "newest corrupt", "all corrupt", "deleted", "torn"])
@pytest.mark.parametrize("is_clean", [False, True])
def test_tidem_6_producers_get_the_same_answers_after_a_restart(
    files: MemoryFiles, snapshots: str, is_clean: bool
) -> None:
    log = open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG)
    sent = {producer_id: [idempotent(log, producer_id, 0, 2)] for producer_id in (1, 2)}
    for step in range(1, 8):
        for producer_id in (1, 2):
            sent[producer_id].append(idempotent(log, producer_id, 2 * step, 2))
    if is_clean:
        log.close()
    names = [name for name in files.names(DIRECTORY) if name.endswith(".snapshot")]
    assert len(names) > 2
    for name in names if snapshots != "newest corrupt" else names[-1:]:
        path = f"{DIRECTORY}/{name}"
        if snapshots == "deleted":
            files.remove(path)
        elif snapshots == "torn":
            files.open(path).truncate(files.size(path) - 3)
        elif snapshots != "intact":
            files.open(path).write(files.size(path) - 5, [b"\x55"])
    again = open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG, is_clean=is_clean)
    for producer_id, batches in sent.items():
        for header in batches[-5:]:
            assert again.producers.check(header) == Duplicate(header.base_offset, header.last_offset, 1_001)
        assert again.producers.check(batches[-6]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        idempotent(again, producer_id, 16, 1)


def test_producers_outlive_their_records_through_a_power_loss(files: MemoryFiles) -> None:
    log = open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG)
    for sequence in range(9):
        idempotent(log, 1, sequence, 1)
    job = log.flush_job()
    job.run()
    log.flushed(job)
    log.config = LogConfig(retention_bytes=0)
    assert log.enforce_retention(1_000, 9) == 3
    files.lose_power()
    again = open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG, recovery_point=9)
    assert (again.log_start_offset, again.log_end_offset) == (9, 9)
    producer = again.producers.get(1)
    assert producer is not None and producer.next_sequence == 9


@pytest.mark.parametrize("epoch", [0, 1])
def test_producers_with_more_than_a_window_behind_a_roll_are_known_when_that_is_lost(
    files: MemoryFiles, epoch: int
) -> None:
    log = open_log(Shared(files), DIRECTORY, TOPIC_ID, LogConfig(segment_bytes=250))
    for sequence in range(3):
        idempotent(log, 1, sequence, 1)
    together = []
    first = 0 if epoch else 3
    for number in range(7):
        raw, header = batch(3 + number, 1, producer=(1, epoch, first + number))
        log.producers.record(header, header.base_offset, 0, log.log_end_offset)
        together.append((raw, header))
    log.append(together, 1_000)
    assert log.segments[1].base_offset == 3
    assert log.producers.check(together[1][1]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    files.open(log.segments[1].log.path).truncate(0)
    again = crash(files)
    assert again.log_end_offset == 3
    producer = again.producers.get(1)
    assert producer is not None and (producer.epoch, producer.next_sequence) == (0, 3)


def test_a_snapshot_of_batches_that_were_cut_off_is_never_taken_for_that_of_later_ones(files: MemoryFiles) -> None:
    """Not even when the power fails right after the log has grown beyond it again."""
    log = open_log(Shared(files), DIRECTORY, TOPIC_ID, CONFIG)
    for sequence in range(8):
        idempotent(log, 1, sequence, 1)
    damage(files, log, 2, 70, b"\xff\xff")
    log.close()
    files.restart()
    cut = open_log(Shared(files), DIRECTORY, TOPIC_ID, LogConfig())
    assert cut.log_end_offset == 2
    for sequence in range(5):
        idempotent(cut, 2, sequence, 1)
    job = cut.flush_job()
    job.run()
    files.lose_power()
    again = open_log(Shared(files), DIRECTORY, TOPIC_ID, LogConfig())
    assert again.log_end_offset == 7
    cut_off, later = again.producers.get(1), again.producers.get(2)
    assert cut_off is not None and cut_off.next_sequence == 2
    assert later is not None and later.next_sequence == 5


def test_snapshots_are_kept_for_live_segments_and_removed_with_them(files: MemoryFiles, log: Log) -> None:
    def snapshot_offsets() -> list[int]:
        return [int(name[:20]) for name in files.names(DIRECTORY) if name.endswith(".snapshot")]

    assert snapshot_offsets() == [6, 12, 18]
    log.advance_log_start(19)
    assert snapshot_offsets() == [12, 18]
    log.truncate_to(18)
    assert snapshot_offsets() == [12, 18]
    log.truncate_fully_and_start_at(0)
    assert snapshot_offsets() == []
