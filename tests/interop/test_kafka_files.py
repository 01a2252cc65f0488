"""Files of ours in Apache Kafka's hands, and Apache Kafka's files in ours."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from headrace.errors import ErrorCode
from headrace.model import Buffer
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.os_files import OsFiles
from headrace.wire.batch import BatchHeader, NewRecord, build, headers, place, read_header, read_records
from headrace.wire.compression import Codec
from headrace.wire.markers import build_marker
from tests.interop.clients.confluent import Confluent
from tests.servers.java import java
from tests.servers.kafka import kafka_broker
from tests.storage.compacting import appended, batches_in, compact, keyed, roll

TOPIC_ID = bytes(range(1, 17))
COMPLAINTS = (
    "mismatch",
    "not found",
    "invalid",
    "isvalid: false",
    "exception",
    "corrupt",
    "out of order",
    "outoforder",
)
NOW_MS = 1_700_000_000_000


def dump(directory: Path, suffixes: Sequence[str], *options: str) -> str:
    """What DumpLogSegments says of all files with these suffixes; it must have nothing to complain about."""
    paths = sorted(path for path in directory.iterdir() if path.suffix in suffixes)
    assert paths
    main = "org.apache.kafka.tools.DumpLogSegments"
    command = java(main, *options, "--files", ",".join(map(str, paths)))
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    text = said.stdout + said.stderr
    assert [line for line in text.splitlines() if any(word in line.lower() for word in COMPLAINTS)] == []
    assert text.count("Dumping ") == len(paths)
    return text


def new_batch(log: Log, number: int, codec: Codec) -> tuple[Buffer, BatchHeader]:
    """With an idempotent producer, timestamps that sometimes go back, and a leader epoch that rises now and then."""
    base_offset = log.log_end_offset
    producer = log.producers.get(7)
    timestamp = NOW_MS + number * 10 - (500 if number % 7 == 0 else 0)
    records = [NewRecord(timestamp + n, b"key %d" % n, b"value %d " % number * 20) for n in range(1 + number % 5)]
    raw = build(
        records,
        codec=codec,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0 if producer is None else producer.next_sequence,
    )
    place(raw, 0, base_offset, number // 100)
    header = read_header(raw)
    assert log.producers.check(header) is ErrorCode.NONE
    log.producers.record(header, base_offset, NOW_MS)
    return raw, header


def records_in(log: Log) -> list[tuple[int, bytes | None]]:
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, log.log_end_offset, True)
        for position, _ in headers(data):
            found += [(record.offset, record.value) for record in read_records(data, position)]
        offset = found[-1][0] + 1
    return found


def test_apache_kafka_reads_and_checks_every_file_that_we_write(tmp_path: Path) -> None:
    directory = LogDir(OsFiles(open_files_max=50), str(tmp_path))
    log = directory.open_log("t", 0, TOPIC_ID, LogConfig(segment_bytes=15_000, index_interval_bytes=1_000))
    for number in range(400):
        log.append([new_batch(log, number, list(Codec)[number % 5])], NOW_MS)
    records, segments = log.log_end_offset, len(log.segments)
    assert segments > 3
    assert directory.close() == []
    partition = tmp_path / "logs" / "t-0"

    deep = dump(partition, (".log",), "--deep-iteration", "--print-data-log")
    assert deep.count("| offset:") == records
    assert len(re.findall(r"^baseOffset:.*isvalid: true$", deep, re.MULTILINE)) == 400
    assert {int(epoch) for epoch in re.findall(r"partitionLeaderEpoch: (\d+)", deep)} == {0, 1, 2, 3}
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec}" in deep
    checked = dump(partition, (".index", ".timeindex"), "--deep-iteration", "--index-sanity-check")
    assert checked.count("passed sanity check.") == 2 * segments
    shown = dump(partition, (".index", ".timeindex"), "--deep-iteration")
    assert shown.count(" position: ") > 10 * segments
    assert shown.count("timestamp: ") > 10
    snapshots = dump(partition, (".snapshot",))
    assert snapshots.count("producerId: 7 producerEpoch: 0") == segments
    assert (partition / "leader-epoch-checkpoint").read_text().splitlines()[:2] == ["0", "4"]


def test_a_partition_goes_from_apache_kafka_to_us_and_back_and_survives_kill_9(tmp_path: Path) -> None:
    settings = {
        "log.segment.bytes": str(1 << 20),
        "log.index.interval.bytes": "4096",
        "broker.heartbeat.interval.ms": "500",
    }
    broker = kafka_broker(tmp_path / "kafka", settings)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "logs").symlink_to(broker.partitions)
    values = [b"%07d" % number * 100 for number in range(6_000)]
    broker.start()
    try:
        client = Confluent(broker.bootstrap)
        client.create_topic("t", 1, {})
        client.produce("t", 1, values[:3_000], "none", idempotent=True)
        client.produce("t", 1, values[3_000:5_000], "lz4", idempotent=False)
        broker.stop()

        # Cleanly stopped: nothing is scanned. We append what Kafka will read.
        directory, log = open_ours(tmp_path / "ours")
        assert log.recovery is None and len(log.segments) > 1
        assert records_in(log) == list(enumerate(values[:5_000]))
        assert len(log.producers) == 1
        assert_time_lookups_agree_with_a_scan(log)
        epoch = log.epochs.latest
        for value in values[5_000:5_500]:
            raw = build([NewRecord(NOW_MS, None, value)], codec=Codec.ZSTD)
            place(raw, 0, log.log_end_offset, epoch)
            log.append([(raw, read_header(raw))], NOW_MS)
        assert directory.close() == []

        broker.start()
        consumed = client.consume("t", 1, 5_500)
        assert [(record.offset, record.value) for record in consumed] == list(enumerate(values[:5_500]))
        client.produce("t", 1, values[5_500:], "snappy", idempotent=True)
        broker.kill()
    finally:
        broker.kill()

    # Killed: indexes end in zeros, and everything above the recovery point is scanned.
    directory, log = open_ours(tmp_path / "ours")
    assert log.recovery is not None and log.recovery.bytes_cut == 0
    assert records_in(log) == list(enumerate(values))
    assert_time_lookups_agree_with_a_scan(log)
    assert directory.close() == []
    for suffixes in ((".log",), (".index", ".timeindex")):
        dump(broker.partitions / "t-0", suffixes, "--deep-iteration")


def open_ours(path: Path) -> tuple[LogDir, Log]:
    directory = LogDir(OsFiles(open_files_max=50), str(path))
    topic_id = directory.topic_id_of("t", 0)
    assert topic_id is not None
    return directory, directory.open_log("t", 0, topic_id, LogConfig(segment_bytes=1 << 20))


def assert_time_lookups_agree_with_a_scan(log: Log) -> None:
    end = log.log_end_offset
    by_offset = []
    offset = 0
    while offset < end:
        data = log.read(offset, 1 << 20, end, True)
        for position, _ in headers(data):
            by_offset += [(record.timestamp, record.offset) for record in read_records(data, position)]
        offset = by_offset[-1][1] + 1
    for timestamp, _ in by_offset[::499]:
        found = log.find_time(timestamp, end)
        assert found is not None and found[:2] == next(pair for pair in by_offset if pair[0] >= timestamp)
    newest = log.max_timestamp(end)
    assert newest is not None and newest.timestamp == max(by_offset)[0]


def test_apache_kafka_reads_a_log_that_we_compacted(tmp_path: Path) -> None:
    directory = LogDir(OsFiles(open_files_max=50), str(tmp_path))
    config = LogConfig(segment_bytes=15_000, index_interval_bytes=1_000, is_compacted=True)
    log = directory.open_log("t", 0, TOPIC_ID, config)
    for number in range(400):
        log.append([new_batch(log, number, list(Codec)[number % 5])], NOW_MS)
        if not number % 40:
            keyed(log, (b"gone", None), timestamp=NOW_MS, epoch=number // 100)
            sequence = 0 if (known := log.producers.get(9)) is None else known.next_sequence
            keyed(log, (b"rolled back", b"1"), producer=(9, 0, sequence), transactional=True, epoch=number // 100)
            appended(log, build_marker(9, 0, not number % 80, 0, NOW_MS), epoch=number // 100)
    roll(log)
    compact(log)
    keyed(log, *((b"key %d" % number, b"last") for number in range(5)), epoch=3)
    roll(log)
    compact(log)
    left = [record for _, records in batches_in(log) for record in records]
    empty = sum(not header.record_count for header, _ in batches_in(log))
    assert empty and len(left) < 40
    assert directory.close() == []
    partition = tmp_path / "logs" / "t-0"

    deep = dump(partition, (".log",), "--deep-iteration", "--print-data-log")
    assert [int(offset) for offset in re.findall(r"\| offset: (\d+)", deep)] == [record.offset for record in left]
    assert [int(time) for time in re.findall(r"\| offset: .* CreateTime: (\d+)", deep)] == [r.timestamp for r in left]
    assert "deleteHorizonMs: OptionalLong[" in deep and "endTxnMarker: ABORT" in deep
    dump(partition, (".index", ".timeindex"), "--deep-iteration", "--index-sanity-check")
    dump(partition, (".index", ".timeindex"), "--deep-iteration")
    dump(partition, (".txnindex", ".snapshot"))
