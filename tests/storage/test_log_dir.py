"""A data directory: who may use it, what it remembers, and what a start has to look at."""

import errno
import json
import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from headrace.errors import CorruptLog
from headrace.model import TopicPartition
from headrace.storage import trash
from headrace.storage.checkpoints import CorruptCheckpoint
from headrace.storage.errors import InUse, WrongFormat
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.memory_files import MemoryFiles
from headrace.storage.os_files import OsFiles
from headrace.storage.properties import MetaProperties
from headrace.storage.state_file import decode_state
from headrace.storage.trash import REMOVED_AT_ONCE_MAX, RETRY_MS
from tests.storage.batches import TOPIC_ID, batch, offsets_in

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
OTHER_ID = bytes(reversed(TOPIC_ID))


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        log.append([batch(log.log_end_offset, 2, epoch=max(log.epochs.latest, 0))], 1_000)


def with_logs(files: MemoryFiles, count: int, batches: int = 3) -> LogDir:
    directory = LogDir(files, "/data")
    for number in range(count):
        fill(directory.open_log("t", number, TOPIC_ID, CONFIG), batches)
    return directory


def offsets_file(files: MemoryFiles, name: str) -> list[str]:
    return files.read(f"/data/logs/{name}-checkpoint").decode().splitlines()


def test_a_second_opener_is_told_in_one_sentence(tmp_path: Path) -> None:
    first = LogDir(OsFiles(open_files_max=10), str(tmp_path))
    with pytest.raises(InUse, match="is running on"):
        LogDir(OsFiles(open_files_max=10), str(tmp_path))
    first.close()
    LogDir(OsFiles(open_files_max=10), str(tmp_path)).abandon()


def test_a_start_after_a_clean_stop_touches_no_partition(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_logs(files, 20).close() == []
    touched: list[str] = []
    enter = files.enter

    def note(operation: str, path: str, size: int = 0, life: int | None = None) -> int:
        if "/t-" in path:
            touched.append(path)
        return enter(operation, path, size, life)

    monkeypatch.setattr(files, "enter", note)
    directory = LogDir(files, "/data")
    assert directory.was_clean
    assert len(directory.partitions) == 20
    remembered = directory.remembered("t", 7)
    assert remembered is not None
    assert (remembered.log_start_offset, remembered.log_end_offset, remembered.high_watermark) == (0, 6, 6)
    assert remembered.topic_id == directory.topic_id_of("t", 7) == TOPIC_ID
    assert touched == []
    log = directory.open_log("t", 7, TOPIC_ID, CONFIG)
    assert (log.log_end_offset, log.recovery, log.recovery_point, log.size_bytes) == (6, None, 6, remembered.size_bytes)
    assert not [path for path in touched if path.endswith(".log")]


def test_the_clean_mark_goes_before_the_first_change_and_with_nothing_else(files: MemoryFiles) -> None:
    marker = "/data/logs/.kafka_cleanshutdown"
    with_logs(files, 1).close()
    assert json.loads(files.read(marker)) == {"version": 0, "brokerEpoch": -1}
    directory = LogDir(files, "/data")
    log = directory.open_log("t", 0, TOPIC_ID, CONFIG)
    assert files.exists(marker)
    # Durable before the write: the power goes at the write itself.
    files.fail("write", "*.log", errno.EIO)
    with pytest.raises(OSError):
        fill(log, 1)
    files.lose_power()
    assert not files.exists(marker)
    assert not LogDir(files, "/data").was_clean


def test_a_run_without_a_change_stays_clean_even_if_it_is_killed(files: MemoryFiles) -> None:
    with_logs(files, 2).close()
    for _ in range(2):
        directory = LogDir(files, "/data")
        assert directory.was_clean
        log = directory.open_log("t", 0, TOPIC_ID, CONFIG)
        assert offsets_in(log.read(0, 1_000, 6, True)) == [(0, 1), (2, 3), (4, 5)]
        files.restart()
    directory = LogDir(files, "/data")
    assert directory.close() == []
    assert LogDir(files, "/data").was_clean


def test_what_was_not_opened_is_remembered_from_stop_to_stop(files: MemoryFiles) -> None:
    with_logs(files, 3).close()
    for number in (0, 1):
        directory = LogDir(files, "/data")
        fill(directory.open_log("t", number, TOPIC_ID, CONFIG), 1)
        directory.close()
    directory = LogDir(files, "/data")
    ends = [directory.remembered("t", number) for number in range(3)]
    assert [end.log_end_offset if end else None for end in ends] == [8, 8, 6]


def test_after_a_kill_only_what_was_touched_since_the_last_clean_stop_is_scanned(files: MemoryFiles) -> None:
    with_logs(files, 3).close()
    directory = LogDir(files, "/data")
    fill(directory.open_log("t", 1, TOPIC_ID, CONFIG), 5)
    files.restart()
    directory = LogDir(files, "/data")
    assert directory.remembered("t", 0) is None
    recovered = [directory.open_log("t", number, TOPIC_ID, CONFIG).recovery is not None for number in range(3)]
    assert recovered == [False, True, False]
    assert directory.open_log("t", 1, TOPIC_ID, CONFIG).log_end_offset == 16


def test_checkpoints_are_kafkas_and_recovery_begins_there(files: MemoryFiles) -> None:
    directory = with_logs(files, 2)
    log = directory.open_log("t", 0, TOPIC_ID, CONFIG)
    job = log.flush_job()
    job.run()
    log.flushed(job)
    log.advance_log_start(3)
    directory.checkpoint_job({TopicPartition("t", 1): 4})()
    assert offsets_file(files, "recovery-point-offset") == ["0", "2", "t 0 6", "t 1 0"]
    assert offsets_file(files, "log-start-offset") == ["0", "1", "t 0 3"]
    assert offsets_file(files, "replication-offset") == ["0", "2", "t 0 6", "t 1 4"]
    files.restart()
    directory = LogDir(files, "/data")
    assert directory.checkpointed_high_watermark("t", 1) == 4
    log = directory.open_log("t", 0, TOPIC_ID, CONFIG)
    assert (log.log_start_offset, log.recovery_point) == (3, 6)


def test_an_older_checkpoint_never_overwrites_a_newer_one(files: MemoryFiles) -> None:
    directory = with_logs(files, 1)
    old = directory.checkpoint_job({TopicPartition("t", 0): 1})
    directory.checkpoint_job({TopicPartition("t", 0): 2})()
    old()
    assert offsets_file(files, "replication-offset") == ["0", "1", "t 0 2"]


def test_cutting_below_the_recovery_point_lowers_it_on_the_disk_first(files: MemoryFiles) -> None:
    directory = with_logs(files, 1)
    log = directory.open_log("t", 0, TOPIC_ID, CONFIG)
    job = log.flush_job()
    job.run()
    log.flushed(job)
    directory.checkpoint_job()()
    log.truncate_to(2)
    assert offsets_file(files, "recovery-point-offset") == ["0", "1", "t 0 2"]
    files.restart()
    assert LogDir(files, "/data").open_log("t", 0, TOPIC_ID, CONFIG).log_end_offset == 2


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", ".headrace-state"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"HRLS", b"0\nmany\n"])
def test_a_damaged_file_beside_the_logs_costs_a_scan_and_nothing_else(
    files: MemoryFiles, name: str, content: bytes
) -> None:
    with_logs(files, 1).close()
    files.replace(f"/data/logs/{name}", content)
    directory = LogDir(files, "/data")
    log = directory.open_log("t", 0, TOPIC_ID, CONFIG)
    assert log.log_end_offset == 6
    assert offsets_in(log.read(5, 1_000, 6, True)) == [(4, 5)]


def test_what_an_older_program_remembered_is_read_except_for_what_it_did_not_know(files: MemoryFiles) -> None:
    with_logs(files, 1).close()
    path = "/data/logs/.headrace-state"
    ((name, newer),) = (decode_state(files.read(path), path) or {}).items()
    topic = name.topic.encode()
    body = struct.pack(">IH", 1, len(topic)) + topic + struct.pack(">i16sqqqqqq", name.partition, *newer[:-2])
    files.replace(path, b"HRLS\0\1" + struct.pack(">I", crc32c(body)) + body)
    older = LogDir(files, "/data").remembered(*name)
    assert older == newer._replace(undecided_from=-1, local_log_start_offset=-1) != newer


def test_a_newer_format_is_refused_with_both_numbers(files: MemoryFiles) -> None:
    with_logs(files, 1).close()
    state = files.read("/data/logs/.headrace-state")
    files.replace("/data/logs/.headrace-state", state[:4] + b"\x00\x04" + state[6:])
    with pytest.raises(WrongFormat, match="version 4; this program knows 3"):
        LogDir(files, "/data")


def test_whose_directory_it_is_is_remembered(files: MemoryFiles) -> None:
    directory = LogDir(files, "/data")
    assert directory.read_meta() is None
    meta = MetaProperties("a cluster", 3, OTHER_ID, {"headrace.incarnation": "5"})
    directory.write_meta(meta)
    files.lose_power()
    directory = LogDir(files, "/data")
    assert directory.read_meta() == meta
    files.replace("/data/meta.properties", b"")
    with pytest.raises(CorruptCheckpoint, match=r"/data/meta.properties is damaged: .* version None"):
        directory.read_meta()


# Topics that come and go


def test_a_deleted_log_is_renamed_and_its_name_is_free_at_once(files: MemoryFiles) -> None:
    directory = with_logs(files, 1)
    directory.delete_log("t", 0, "00ff", 60_000)
    assert not directory.exists("t", 0)
    fill(directory.open_log("t", 0, OTHER_ID, CONFIG), 1)
    assert directory.exists("t", 0)
    assert directory.topic_id_of("t", 0) == OTHER_ID
    assert "t-0.00ff-delete" in files.names("/data/logs")
    directory.close()
    # Whoever did not get to it last time does so now.
    directory = LogDir(files, "/data")
    assert directory.partitions == [("t", 0)]
    directory.empty_trash(0)
    assert "t-0.00ff-delete" not in files.names("/data/logs")


def test_deleting_a_log_that_was_never_opened_forgets_it(files: MemoryFiles) -> None:
    with_logs(files, 2).close()
    directory = LogDir(files, "/data")
    directory.delete_log("t", 0, "1", 60_000)
    assert directory.remembered("t", 0) is None
    assert directory.open_log("t", 0, OTHER_ID, CONFIG).log_end_offset == 0
    directory.close()
    assert LogDir(files, "/data").partitions == [("t", 1)]


def test_names_as_long_as_they_may_be_can_still_be_deleted(tmp_path: Path) -> None:
    directory = LogDir(OsFiles(open_files_max=10), str(tmp_path))
    topic = "x" * 249
    fill(directory.open_log(topic, 0, TOPIC_ID, CONFIG), 1)
    directory.delete_log(topic, 0, "f" * 32, 0)
    directory.empty_trash(0)
    assert not [name for name in (tmp_path / "logs").iterdir() if name.is_dir()]
    directory.close()


def test_what_is_deleted_stays_for_its_delay(files: MemoryFiles) -> None:
    directory = with_logs(files, 2)
    directory.delete_log("t", 0, "1", 60_000)
    directory.delete_log("t", 1, "1", 5_000)
    gone = []
    for now_ms in (1_000, 5_999, 6_000, 60_999, 61_000):
        assert not directory.empty_trash(now_ms)
        gone.append(2 - sum(files.exists(f"/data/logs/t-{number}.1-delete") for number in (0, 1)))
    assert gone == [0, 0, 1, 1, 2]


def test_much_that_is_due_goes_in_portions(files: MemoryFiles) -> None:
    directory = with_logs(files, 0)
    fill(log := directory.open_log("t", 0, TOPIC_ID, LogConfig(segment_bytes=1, file_delete_delay_ms=0)), 100)
    log.advance_log_start(198)
    assert directory.empty_trash(0)
    portions = 1
    while directory.empty_trash(0):
        portions += 1
    assert portions == 99 * 3 // REMOVED_AT_ONCE_MAX
    assert not directory.has_trash


def test_the_trash_is_bounded(files: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trash, "WAITING_MAX", 2)
    directory = with_logs(files, 4)
    for number in range(4):
        directory.delete_log("t", number, "1", 60_000 + number)
    directory.empty_trash(0)
    assert [name for name in files.names("/data/logs") if name.endswith("-delete")] == [
        "t-2.1-delete",
        "t-3.1-delete",
    ]


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_a_run_left_in_the_trash_the_next_one_removes_without_a_delay(files: MemoryFiles, is_clean: bool) -> None:
    directory = with_logs(files, 3, batches=9)
    directory.open_log("t", 1, TOPIC_ID, CONFIG).advance_log_start(17)
    directory.delete_log("t", 2, "1", 60_000)
    directory.empty_trash(0)
    assert [name for name in files.names("/data/logs/t-1") if name.endswith(".log.deleted")]
    if is_clean:
        assert directory.close() == []
    else:
        files.restart()
    directory = LogDir(files, "/data")
    log = directory.open_log("t", 1, TOPIC_ID, CONFIG)
    assert (log.log_end_offset, log.recovery is None) == (18, is_clean)
    directory.empty_trash(0)
    assert not [name for name in files.names("/data/logs/t-1") if name.endswith(".deleted")]
    assert not files.exists("/data/logs/t-2.1-delete")


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_directory_of_another_topic_is_told_by_its_id_and_can_be_set_aside(
    files: MemoryFiles, is_clean: bool
) -> None:
    with_logs(files, 3).close()
    if not is_clean:
        files.remove("/data/logs/.kafka_cleanshutdown")
    directory = LogDir(files, "/data")
    assert directory.topic_id_of("t", 1) == TOPIC_ID
    with pytest.raises(CorruptLog, match="another topic"):
        directory.open_log("t", 1, OTHER_ID, CONFIG)
    assert directory.set_aside("t", 1, "77").endswith("/t-1.77-stray")
    assert directory.open_log("t", 1, OTHER_ID, CONFIG).log_end_offset == 0


def test_a_topic_made_again_is_not_measured_by_the_checkpoints_of_its_predecessor(files: MemoryFiles) -> None:
    directory = with_logs(files, 1, batches=20)
    log = directory.open_log("t", 0, TOPIC_ID, CONFIG)
    job = log.flush_job()
    job.run()
    log.flushed(job)
    late = directory.checkpoint_job()
    directory.checkpoint_job()()
    directory.delete_log("t", 0, "1", 60_000)
    late()
    fill(directory.open_log("t", 0, OTHER_ID, CONFIG), 1)
    files.restart()
    log = LogDir(files, "/data").open_log("t", 0, OTHER_ID, CONFIG)
    assert (log.log_end_offset, log.recovery_point) == (2, 0)


def test_what_cannot_be_removed_is_tried_again(files: MemoryFiles) -> None:
    directory = with_logs(files, 2)
    for number in (0, 1):
        directory.delete_log("t", number, "1", 0)
    files.fail("remove", "*", errno.EIO)
    with pytest.raises(OSError):
        directory.empty_trash(0)
    # The other one went, and the one that did not is not tried over and over.
    assert len([name for name in files.names("/data/logs") if name.endswith("-delete")]) == 1
    directory.empty_trash(1)
    assert directory.has_trash
    directory.empty_trash(1 + RETRY_MS)
    assert not directory.has_trash
    assert not [name for name in files.names("/data/logs") if name.endswith("-delete")]


def test_files_that_are_no_partitions_are_left_alone(files: MemoryFiles) -> None:
    LogDir(files, "/data").close()
    for name in ("lost+found", "t-", "-1", "t-x", "t-1.77-stray", "t-1.1-future", "t-00", "ü-1", "t-99999999999"):
        files.make_directory(f"/data/logs/{name}")
    files.create("/data/logs/notes-2")
    assert LogDir(files, "/data").partitions == []


def test_space_is_held_back_and_given_back(files: MemoryFiles) -> None:
    directory = LogDir(files, "/data")
    directory.keep_reserve(5_000)
    assert files.size("/data/.headrace-reserve") == 5_000
    directory.release_reserve()
    directory.release_reserve()
    assert not files.exists("/data/.headrace-reserve")
    directory.keep_reserve(0)


@pytest.mark.parametrize("operation", ["create", "write", "sync", "remove", "sync_directory"])
def test_a_probe_says_no_whatever_fails(files: MemoryFiles, operation: str) -> None:
    directory = LogDir(files, "/data")
    assert directory.probe()
    files.fail(operation, "/data/logs*", errno.EIO)
    assert not directory.probe()
    assert directory.probe()


@pytest.mark.parametrize("count", [2, 40])
def test_after_a_clean_stop_the_power_may_go(files: MemoryFiles, count: int) -> None:
    assert with_logs(files, count).close() == []
    files.lose_power()
    directory = LogDir(files, "/data")
    assert directory.was_clean
    for number in range(count):
        log = directory.open_log("t", number, TOPIC_ID, CONFIG)
        assert log.recovery is None
        assert offsets_in(log.read(0, 1_000, 6, True)) == [(0, 1), (2, 3), (4, 5)]


@pytest.mark.parametrize(("operation", "pattern", "failing"), [("sync_all", "*", 40), ("write", "*/t-7/*.index", 1)])
def test_a_stop_that_could_not_sync_everything_is_not_clean(
    files: MemoryFiles, operation: str, pattern: str, failing: int
) -> None:
    directory = with_logs(files, 40)
    files.fail(operation, pattern, errno.EIO)
    assert len(directory.close()) == failing
    directory = LogDir(files, "/data")
    assert not directory.was_clean
    assert directory.open_log("t", 7, TOPIC_ID, CONFIG).log_end_offset == 6


@pytest.mark.parametrize("count", [3, 40])
def test_one_log_that_could_not_be_closed_is_the_only_one_to_be_recovered(files: MemoryFiles, count: int) -> None:
    directory = with_logs(files, count)
    files.fail("write", "*/t-1/*.log", errno.EIO)
    with pytest.raises(OSError):
        fill(directory.open_log("t", 1, TOPIC_ID, CONFIG), 1)
    assert [str(name) for name, _ in directory.close()] == ["t-1"]
    # Apache Kafka takes the marker's word for every log.
    assert not files.exists("/data/logs/.kafka_cleanshutdown")
    files.restart()
    directory = LogDir(files, "/data")
    logs = [directory.open_log("t", number, TOPIC_ID, CONFIG) for number in range(count)]
    assert [number for number, log in enumerate(logs) if log.recovery is not None] == [1]
    assert directory.close() == []
    assert LogDir(files, "/data").was_clean


def test_a_damaged_log_does_not_pass_for_a_good_one_after_the_next_clean_stop(files: MemoryFiles) -> None:
    with_logs(files, 2, batches=2).close()
    files.inode("/data/logs/t-1/00000000000000000000.log").data[120] ^= 1
    files.remove("/data/logs/.headrace-state")
    files.remove("/data/logs/.kafka_cleanshutdown")
    for _ in range(2):
        directory = LogDir(files, "/data")
        fill(directory.open_log("t", 0, TOPIC_ID, CONFIG), 1)
        with pytest.raises(CorruptLog, match="fails its checksum"):
            directory.open_log("t", 1, TOPIC_ID, CONFIG)
        assert directory.close() == []


def test_every_directory_that_is_made_on_the_way_survives_a_power_loss() -> None:
    files = MemoryFiles()
    LogDir(files, "/srv/node/1/data").abandon()
    files.lose_power()
    assert files.is_directory("/srv/node/1/data/logs")
