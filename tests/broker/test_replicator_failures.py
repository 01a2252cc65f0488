"""KIP-461: trouble of one partition is that partition's alone, and ends with its next leader epoch. Scenarios T461."""

import asyncio
import errno
import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.broker import replicator_metrics
from headrace.core.following import FetcherPartitions
from headrace.core.partition import Partition
from headrace.errors import CorruptLog, ErrorCode
from headrace.storage.log import Log
from headrace.storage.os_files import OsFiles
from headrace.wire.apis import APIS
from headrace.wire.messages.fetch import PartitionData
from tests.broker.following import Following, following, record_of
from tests.net.loops import until

FOR_EVER = 1 << 60


def failing(bench: Following, index: int | str, operation: str = "write", **how: int) -> None:
    bench.memory.fail(operation, f"*/t-{index}/*.log", errno.EIO, **{"times": FOR_EVER, **how})


async def test_t461_1_a_disk_error_of_one_partition_leaves_the_others_alone() -> None:
    """Also Tdur-6, the follower's case, and G3."""
    async with following(50) as bench:
        failing(bench, 0)
        bench.follow(*range(50))
        for index in range(50):
            bench.produce(index)
        await bench.until_equal(*range(1, 50))
        await until(lambda: bench.failed_indexes == [0])
        for index in range(50):
            bench.produce(index)
        await bench.until_equal(*range(1, 50))
        assert bench.failed_indexes == [0]
        assert bench.replicator.lag(bench[0]) is None and bench.replicator.lag(bench[1]) == 0
        lags = [line for line in replicator_metrics.lag_series(bench.replicator) if 'partition="1"' in line]
        assert len(lags) == 1 and 'partition="0"' not in lags[0]
        assert bench[0].fault is ErrorCode.NONE  # not offline, and not announced: it leaves the ISR by its lag
        assert not bench.faults.offline_directories


async def test_t461_2_the_next_leader_epoch_brings_it_back() -> None:
    async with following(3) as bench:
        bench.produce(0)
        bench.follow(0, 1, 2)
        await bench.until_equal(0)
        failing(bench, 0)
        bench.produce(0)
        await until(lambda: bench.failed_indexes == [0])
        bench.memory.faults.clear()
        bench.follow(0, leader_epoch=1)
        assert bench.failed_indexes == []
        bench.produce(0)
        await bench.until_equal(0, 1, 2)


async def test_t461_3_a_deleted_topic_takes_its_failures_along() -> None:
    async with following(2) as bench:
        failing(bench, 0)
        bench.follow(0, 1)
        bench.produce(0)
        await until(lambda: bench.failed_indexes == [0])
        for partition in list(bench.partitions):
            bench.replicator.stop(partition)
        bench.partitions.drop(bench.leader.names["t"])
        assert len(bench.replicator.failed) == 0 and not bench.faults.given_up
        bench.memory.faults.clear()
        again = bytes(16)
        bench.host(1, topic_id=again)
        bench.leader.logs[again, 0] = bench.led()
        bench.follow(0)
        await bench.until_equal(0)


async def test_t461_4_one_that_becomes_the_leader_has_not_failed() -> None:
    async with following() as bench:
        bench.produce()
        bench.follow(0)
        await bench.until_equal(0)
        failing(bench, 0)
        bench.produce()
        await until(lambda: bench.failed_indexes == [0])
        bench.memory.faults.clear()
        bench.replicator.stop(bench[0])
        assert bench[0].lead(record_of(1, leader=1), 11, 0, bench.image)
        assert len(bench.replicator.failed) == 0
        assert bench[0].error is ErrorCode.NONE
        assert bench[0].log.log_end_offset == 1


async def test_t461_5_when_all_have_failed_the_task_is_gone_until_the_next_epoch() -> None:
    async with following(5) as bench:
        failing(bench, "*")
        bench.follow(*range(5))
        for index in range(5):
            bench.produce(index)
        await until(lambda: bench.failed_indexes == list(range(5)))
        await until(lambda: not bench.replicator.fetchers)
        asked = len(bench.leader.requests)
        await asyncio.sleep(0.05)
        assert len(bench.leader.requests) <= asked + 1  # the one that closes the session
        bench.memory.faults.clear()
        bench.follow(3, leader_epoch=1)
        await bench.until_equal(3)
        assert bench.failed_indexes == [0, 1, 2, 4]


async def test_t461_6_a_change_of_the_partition_epoch_alone_leaves_it_failed() -> None:
    async with following(2) as bench:
        failing(bench, 0, times=1)
        bench.follow(0, 1)
        bench.produce(0)
        await until(lambda: bench.failed_indexes == [0])
        bench.follow(0)
        bench.produce(1)
        await bench.until_equal(1)
        assert bench.failed_indexes == [0] and bench[0].log_end_offset == 0


def spoilt(part: PartitionData) -> PartitionData:
    records = bytearray(part.records or b"")
    records[-1] ^= 1
    part.records = memoryview(records)
    return part


async def test_t461_7_a_corrupt_batch_is_asked_for_again() -> None:
    async with following(2) as bench:
        bench.produce(0)
        bench.produce(0)
        bench.led(0).next_changes = [spoilt, spoilt]
        bench.follow(0, 1)
        await bench.until_equal(0)
        assert bench.failed_indexes == [] and bench.lines.errors == []
        # What came whole before the corrupt one was kept.
        offsets = [
            a.fetch_offset for r in bench.leader.requests for t in r.topics for a in t.partitions if not a.partition
        ]
        assert offsets == [0, 1, 1, 2]


async def test_batches_of_a_later_leader_epoch_are_not_taken() -> None:
    async with following(2) as bench:
        bench.produce(0)
        bench.led(0).leader_epoch = 5
        bench.produce(0)
        bench.led(0).leader_epoch = 0
        bench.produce(1)
        bench.follow(0, 1)
        await bench.until_equal(1)
        await until(lambda: bench[0].log_end_offset == 1)
        await asyncio.sleep(0.05)
        assert bench[0].log_end_offset == 1 and bench.failed_indexes == []


async def test_a_fenced_epoch_waits_for_the_next_one() -> None:
    async with following(2) as bench:
        bench.follow(0, 1)
        bench.produce(1)
        await bench.until_equal(1)
        bench.led(0).leader_epoch = 3
        bench.leader.changed()
        await until(lambda: bench.failed_indexes == [0])
        bench.follow(0, leader_epoch=3)
        bench.produce(0)
        await bench.until_equal(0, 1)


async def test_an_election_of_many_is_one_line_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace.broker.replicator_answers")
    async with following(8) as bench:
        bench.follow(*range(8))
        bench.produce(7)
        await bench.until_equal(7)
        for index in range(7):
            bench.led(index).leader_epoch = 3
        bench.leader.changed()
        await until(lambda: bench.failed_indexes == list(range(7)))
        assert bench.lines.errors == []
        lines = [record.getMessage() for record in caplog.records if "next leader epoch" in record.getMessage()]
        assert sum(int(line.split(" ")[0]) for line in lines) == 7 and len(lines) < 7
        bench.follow(*range(7), leader_epoch=3)
        bench.produce(0)
        await bench.until_equal(*range(8))


async def test_records_from_before_the_log_end_fail_the_partition() -> None:
    async with following(2) as bench:
        bench.produce(0)
        bench.produce(0)
        bench.follow(0, 1)
        await bench.until_equal(0)

        def old(part: PartitionData) -> PartitionData:
            part.records = bench.led().batches[0][2]
            return part

        bench.led(0).next_changes = [old]
        bench.produce(1)
        await bench.until_equal(1)
        await until(lambda: bench.failed_indexes == [0])
        assert bench.lines.errors == [
            "t-0 is not replicated before its next leader epoch, after 0: offset 0 came where 2 is due"
        ]


@pytest.mark.parametrize("seed", range(6))
async def test_t461_8_nothing_that_is_raised_for_one_partition_ends_the_fetcher(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any exception, in whatever is done to a log or to a partition. The last one is never struck."""
    chance = random.Random(seed)
    raised = [OSError(errno.EIO, "I/O error"), CorruptLog("bad"), ValueError("no"), KeyError("x"), AssertionError()]
    async with following(12) as bench:
        lucky = bench[11]

        def sometimes(owner: type, name: str, is_lucky: Callable[[object], bool]) -> None:
            original = getattr(owner, name)

            def wrapped(self: object, *args: object, **more: object) -> object:
                if not is_lucky(self) and chance.random() < 0.2:
                    raise chance.choice(raised)
                return original(self, *args, **more)

            monkeypatch.setattr(owner, name, wrapped)

        def of_lucky(log: object) -> bool:
            return isinstance(log, Log) and log.directory.endswith("/t-11")

        for name in ("append", "truncate_to", "advance_log_start", "truncate_fully_and_start_at"):
            sometimes(Log, name, of_lucky)
        for name in ("follower_appended", "truncated_to", "restarted_at"):
            sometimes(Partition, name, lambda partition: partition is lucky)
        sometimes(FetcherPartitions, "appended", lambda _: chance.random() < 0.9)
        for round_ in range(15):
            for index in range(12):
                led = bench.led(index)
                if chance.random() < 0.3 and index != 11:
                    led.log_start = led.log_end
                bench.produce(index)
                if chance.random() < 0.3:
                    bench.follow(index, leader_epoch=round_)
            bench.follow(11, leader_epoch=round_)
            await asyncio.sleep(0.004)
        monkeypatch.undo()
        bench.follow(*range(12), leader_epoch=99)
        bench.produce(11)
        await until(lambda: bench[11].log_end_offset == bench.led(11).log_end)
        await until(lambda: all(bench[index].log_end_offset == bench.led(index).log_end for index in range(12)))
        assert bench.failed_indexes == []


async def test_t461_9_each_failure_is_one_line_with_partition_epoch_and_reason() -> None:
    async with following(3) as bench:
        failing(bench, 0)
        failing(bench, 2, "sync")
        bench.follow(0, 1, 2, leader_epoch=4)
        bench.produce(0)
        await until(lambda: bench.failed_indexes == [0])
        bench.produce(0)
        await asyncio.sleep(0.02)
        (line,) = bench.lines.errors
        assert line.startswith("t-0 is not replicated before its next leader epoch, after 4: append failed: [Errno 5]")
        bench.follow(0, leader_epoch=5)
        await until(lambda: len(bench.lines.errors) == 2)
        assert "after 5: " in bench.lines.errors[1]


def metrics(bench: Following) -> str:
    now_ms = bench.clock.monotonic_ms()
    return "".join(family.text() for family in replicator_metrics.families(bench.replicator, now_ms))


async def test_t461_10_moves_between_log_directories_are_not_offered_but_measured() -> None:
    assert 34 not in APIS
    async with following() as bench:
        name = "kafka_server_replicaalterlogdirsmanager_failedpartitionscount"
        assert f'{name}{{clientId="ReplicaAlterLogDirs"}} 0\n' in metrics(bench)


async def test_metrics_tell_of_lags_rates_and_failures() -> None:
    async with following(3) as bench:
        of_fetchers = "kafka_server_replicafetchermanager_"
        assert f'{of_fetchers}minfetchrate{{clientId="Replica"}} 0\n' in metrics(bench)
        failing(bench, 0)
        bench.follow(0, 1, 2)
        bench.produce(0)
        bench.produce(1, records=4)
        bench.led(2).append(records=5)
        bench.led(2).next_changes = [spoilt]
        await bench.until_equal(1)
        await until(lambda: bench.failed_indexes == [0])
        await bench.until_equal(2)
        told = metrics(bench)
        for name, value in (("failedpartitionscount", 1), ("maxlag", 0), ("deadthreadcount", 0)):
            assert f'{of_fetchers}{name}{{clientId="Replica"}} {value}\n' in told
        assert f'{of_fetchers}minfetchrate{{clientId="Replica"}} 0\n' not in told
        replicated = sum(len(bench.content(index)) for index in (1, 2))
        assert f"kafka_server_brokertopicmetrics_replicationbytesin_total {replicated}\n" in told
        series = "".join(replicator_metrics.lag_series(bench.replicator)).splitlines()
        name = "kafka_server_fetcherlagmetrics_consumerlag"
        assert series == [
            f"# TYPE {name} gauge",
            f'{name}{{clientId="ReplicaFetcherThread-0-2",topic="t",partition="1"}} 0',
            f'{name}{{clientId="ReplicaFetcherThread-0-2",topic="t",partition="2"}} 0',
        ]


async def test_the_lag_is_what_the_leader_has_committed_beyond_the_log() -> None:
    async with following(settings={"replica.fetch.max.bytes": "100"}) as bench:
        for _ in range(5):
            bench.produce()
        lags: list[int | None] = []

        def look(part: PartitionData) -> PartitionData:
            lags.append(bench.replicator.lag(bench[0]))
            return part

        bench.led().next_changes = [look] * 4
        bench.follow(0)
        await bench.until_equal(0)
        assert lags == [0, 4, 3, 2]


async def test_an_error_of_one_file_of_a_real_disk_is_one_partitions(tmp_path: Path) -> None:
    """Where the next segment should come there is a directory."""
    topic = {"segment.bytes": "1000"}
    async with following(6, topic=topic, files=OsFiles(100), data=str(tmp_path)) as bench:
        bench.follow(*range(6))
        for index in range(6):
            bench.produce(index)
        await bench.until_equal(*range(6))
        for offset in range(1, 60):
            (tmp_path / "logs" / "t-3" / f"{offset:020d}.log").mkdir()
        for _ in range(50):
            for index in range(6):
                bench.produce(index)
        await bench.until_equal(0, 1, 2, 4, 5)
        await until(lambda: bench.failed_indexes == [3])
        assert len(bench[0].log.segments) > 2 and not bench.faults.offline_directories
        (line,) = bench.lines.errors
        assert "Is a directory" in line
        for offset in range(1, 60):
            (tmp_path / "logs" / "t-3" / f"{offset:020d}.log").rmdir()
        bench.follow(3, leader_epoch=1)
        await bench.until_equal(*range(6))


async def test_a_log_that_cannot_be_opened_fails_at_once() -> None:
    async with following(2) as bench:
        bench.memory.make_directory("/data/logs/t-0")
        bench.memory.fail("names", "*/t-0", errno.EIO, times=FOR_EVER)
        bench.directories[0]._on_disk.update(name for name in bench.directories[0]._look_around())
        bench.follow(0, 1)
        bench.produce(1)
        await bench.until_equal(1)
        assert bench.failed_indexes == [0]
        (line,) = bench.lines.errors
        assert "opening the log failed" in line


async def test_a_full_disk_is_the_directorys_trouble_and_no_partitions() -> None:
    async with following(6, data="/a,/b") as bench:
        in_a = [p.index for p in bench.partitions if p.directory.path == "/a"]
        in_b = [p.index for p in bench.partitions if p.directory.path == "/b"]
        assert len(in_a) == len(in_b) == 3
        bench.memory.fail("write", "/a/*", errno.ENOSPC, times=FOR_EVER)
        bench.follow(*range(6))
        bench.produce(in_a[0])
        await until(lambda: bench.faults.offline_directories == {"/a"})
        for index in range(6):
            bench.produce(index)
        await bench.until_equal(*in_b)
        assert bench.failed_indexes == []
        (fetcher,) = bench.replicator.fetchers.values()
        assert sorted(partition.index for partition in fetcher.partitions) == in_b
        # They stay offline until the process starts again.
        bench.follow(*in_a, leader_epoch=1)
        assert bench.failed_indexes == [] and all(bench.replicator.lag(bench[i]) is None for i in in_a)


async def test_a_probe_that_fails_takes_the_directory_and_empties_the_failed_set() -> None:
    async with following(4, data="/a,/b") as bench:
        in_b = [p.index for p in bench.partitions if p.directory.path == "/b"]
        bench.offload.hold("files")
        for operation in ("write", "create", "sync"):
            bench.memory.fail(operation, "/a/*", errno.EIO, times=FOR_EVER)
        bench.follow(*range(4))
        for index in range(4):
            bench.produce(index)
        await bench.until_equal(*in_b)
        await until(lambda: len(bench.failed_indexes) == 2)
        bench.offload.release("files")
        await until(lambda: bench.faults.offline_directories == {"/a"})
        assert bench.failed_indexes == []


async def test_tdur_5_after_a_failed_sync_it_comes_back_from_what_was_synced() -> None:
    async with following(2, topic={"flush.messages": "1"}) as bench:
        bench.produce(0)
        bench.follow(0, 1)
        await bench.until_equal(0)
        failing(bench, 0, "sync", times=1)
        bench.produce(0)
        await until(lambda: bench.failed_indexes == [0])
        assert bench[0].log_end_offset == 1
        bench.follow(0, leader_epoch=1)
        await bench.until_equal(0)
        offsets = [
            a.fetch_offset for r in bench.leader.requests for t in r.topics for a in t.partitions if not a.partition
        ]
        assert offsets == [0, 1, 1, 2]  # the second batch was in the file, but nobody knows what of it


async def test_one_that_told_its_leader_of_records_whose_sync_fails_is_offline_and_announced() -> None:
    """Whoever meets the error: the housekeeping syncs followers' logs as well."""
    announced: list[frozenset[tuple[bytes, int]]] = []
    async with following(2) as bench:
        bench.faults.announce = announced.append
        bench.produce(0)
        bench.follow(0, 1)
        await bench.until_equal(0)
        for _ in range(2):
            bench.faults.lost(bench[0], "flush", OSError(errno.EIO, "I/O error"))
        assert bench[0].fault is ErrorCode.KAFKA_STORAGE_ERROR and bench.failed_indexes == []
        assert announced[-1] == {(bench[0].topic_id, 0)}
        assert bench.lines.errors == ["t-0 is offline: flush failed: [Errno 5] I/O error"]
        # Until the process starts again: nobody may count on what it would have to cut.
        bench.follow(0, leader_epoch=1)
        bench.produce(1)
        await bench.until_equal(1)
        assert bench.replicator.lag(bench[0]) is None


async def test_a_sync_that_failed_for_lack_of_descriptors_says_nothing_of_the_disk() -> None:
    async with following(2) as bench:
        bench.produce(0)
        bench.follow(0, 1)
        await bench.until_equal(0)
        bench.faults.lost(bench[0], "flush", OSError(errno.EMFILE, "too many"))
        assert bench.failed_indexes == [0] and not bench[0].fault
        asked = len(bench.leader.requests)
        bench.follow(0, leader_epoch=1)
        await bench.until_equal(0)
        await until(lambda: len(bench.leader.requests) > asked)
        (again,) = {a.fetch_offset for r in bench.leader.requests[asked:] for t in r.topics for a in t.partitions}
        assert again == 1  # nothing was cut


async def test_what_a_failed_sync_left_is_cut_also_by_who_leads_next() -> None:
    async with following(topic={"flush.messages": "1"}) as bench:
        bench.produce(0)
        bench.follow(0)
        await bench.until_equal(0)
        failing(bench, 0, "sync", times=1)
        bench.produce(0)
        await until(lambda: bench.failed_indexes == [0])
        bench.replicator.stop(bench[0])
        assert bench[0].lead(record_of(1, leader=1), 11, 0, bench.image)
        assert bench[0].log.log_end_offset == 1


async def test_what_failed_is_not_marked_as_cleanly_closed() -> None:
    async with following(2) as bench:
        bench.produce(0)
        bench.produce(1)
        bench.follow(0, 1)
        await bench.until_equal(0, 1)
        failing(bench, 0)
        bench.produce(0)
        await until(lambda: bench.failed_indexes == [0])
        await bench.replicator.close()
        bench.memory.faults.clear()
        failures = bench.directories[0].close()
        assert [str(name) for name, _ in failures] == ["t-0"]
        assert not bench.memory.exists("/data/logs/.kafka_cleanshutdown")
