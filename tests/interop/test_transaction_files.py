"""Transactions on disk: ours in the hands of Apache Kafka's tools, and those of a killed Apache Kafka in ours."""

import re
import time
from pathlib import Path

from confluent_kafka import TopicPartition

from headrace.core.producers import AbortedTransaction
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.os_files import OsFiles
from headrace.storage.producer_state import marker_of
from headrace.storage.txn_index import decode_entries
from headrace.wire.batch import NewRecord, build, end_of, headers, place, read_header, read_records
from headrace.wire.markers import build_marker
from tests.interop.clients.confluent import Confluent
from tests.interop.test_kafka_files import NOW_MS, TOPIC_ID, dump, open_ours
from tests.servers.kafka import kafka_broker

VALUE_BYTES = 40_000
TIMEOUT_S = 60


def append(log: Log, raw: bytearray) -> None:
    place(raw, 0, log.log_end_offset, max(log.epochs.latest, 0))
    header = read_header(raw)
    marker = marker_of(raw) if header.is_control else None
    log.producers.record(header, header.base_offset, NOW_MS, log.log_end_offset, marker)
    log.append([(raw, header)], NOW_MS)


def append_data(log: Log, pid: int, sequence: int) -> None:
    records = [NewRecord(NOW_MS, b"key", b"value " * 20)]
    append(log, build(records, producer_id=pid, producer_epoch=1, base_sequence=sequence, transactional=True))


def indexed(partition: Path) -> list[AbortedTransaction]:
    paths = sorted(partition.glob("*.txnindex"))
    return [aborted for path in paths for aborted in decode_entries(path.read_bytes())]


def committed_values(log: Log) -> list[bytes]:
    """By the rules of Kafka's consumers."""
    values = []
    offset, end = log.log_start_offset, min(log.log_end_offset, log.producers.first_undecided(log.log_end_offset))
    aborting: set[int] = set()
    while offset < end:
        data = log.read(offset, 1 << 20, end, True)
        due = sorted((a.first_offset, a.producer_id) for a in log.aborted_in(offset, data))
        for position, header in headers(data):
            while due and due[0][0] <= header.last_offset:
                aborting.add(due.pop(0)[1])
            if header.is_control:
                aborting.discard(header.producer_id)
            elif header.producer_id not in aborting:
                values += [record.value or b"" for record in read_records(data, position)]
        offset = end_of(data)
        aborting.clear()
    return values


def test_apache_kafka_reads_our_markers_and_indexes_of_aborted_transactions(tmp_path: Path) -> None:
    directory = LogDir(OsFiles(open_files_max=50), str(tmp_path))
    log = directory.open_log("t", 0, TOPIC_ID, LogConfig(segment_bytes=3_000))
    expected = []
    sequences = dict.fromkeys((7, 8, 9), 0)
    opened: dict[int, int] = {}
    for number in range(90):
        pid = (7, 8, 9)[number * number % 3] if number % 4 else 8
        if number % 5 < 3 or pid not in opened:
            opened.setdefault(pid, log.log_end_offset)
            append_data(log, pid, sequences[pid])
            sequences[pid] += 1
            continue
        first, marker_offset = opened.pop(pid), log.log_end_offset
        append(log, build_marker(pid, 1, number % 2 == 0, 17, NOW_MS))
        if number % 2:
            stable = min(opened.values(), default=marker_offset + 1)
            expected.append(AbortedTransaction(pid, first, marker_offset, stable))
    assert opened and len(expected) > 5 and len(log.segments) > 3
    assert directory.close() == []
    partition = tmp_path / "logs" / "t-0"
    assert indexed(partition) == expected

    said = dump(partition, (".txnindex",))
    shown = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", said)
    assert [AbortedTransaction(*map(int, fields)) for fields in shown] == expected
    said = dump(partition, (".log",), "--deep-iteration", "--print-data-log")
    assert said.count("endTxnMarker: ABORT coordinatorEpoch: 17") == len(expected)
    assert "endTxnMarker: COMMIT coordinatorEpoch: 17" in said
    snapshots = dump(partition, (".snapshot",))
    for pid, first in opened.items():
        assert re.search(rf"producerId: {pid} .*currentTxnFirstOffset: Optional(Long)?\[{first}\]", snapshots)


def test_transactions_go_from_a_killed_apache_kafka_to_us_and_back(tmp_path: Path) -> None:
    settings = {
        "log.segment.bytes": str(1 << 20),
        "broker.heartbeat.interval.ms": "500",
        "transaction.state.log.num.partitions": "1",
    }
    broker = kafka_broker(tmp_path / "kafka", settings)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "logs").symlink_to(broker.partitions)
    partition = broker.partitions / "t-0"
    broker.start()
    try:
        client = Confluent(broker.bootstrap)
        client.create_topic("t", 1, {})
        committed = transact(client)
        wait_for_markers(partition, 10)
        broker.kill()
        recovered_by_us(tmp_path / "ours", partition, committed)
        broker.start()
        assert read_by_kafka(client, len(committed)) == committed
        broker.stop()
    finally:
        broker.kill()
    dump(partition, (".txnindex",))


def transact(client: Confluent) -> list[bytes]:
    """Thirty transactions of two producers, a third of them aborted, and one that stays open; what was committed."""
    committed = []
    producers = [client.producer(**{"transactional.id": f"id {n}", "linger.ms": 0}) for n in range(2)]
    for producer in producers:
        producer.init_transactions(TIMEOUT_S)
    for number in range(31):
        producer = producers[number % 2]
        producer.begin_transaction()
        values = [b"%04d" % (number * 10 + n) + bytes(VALUE_BYTES) for n in range(3)]
        for value in values:
            producer.produce("t", value, partition=0)
        producer.flush(TIMEOUT_S)
        if number == 30:
            break
        if number % 3:
            producer.commit_transaction(TIMEOUT_S)
            committed += values
        else:
            producer.abort_transaction(TIMEOUT_S)
    return committed


def recovered_by_us(path: Path, partition: Path, committed: list[bytes]) -> None:
    """All indexes of aborted transactions are gone, and everything counts as never synced."""
    written = {path.name: path.read_bytes() for path in partition.glob("*.txnindex") if path.stat().st_size}
    assert len(indexed(partition)) == 10 and len(written) > 1
    for index in partition.glob("*.txnindex"):
        index.unlink()
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    directory, log = open_ours(path)
    assert log.recovery is not None and log.recovery.bytes_cut == 0
    assert written == {path.name: path.read_bytes() for path in partition.glob("*.txnindex") if path.stat().st_size}
    first_open = log.producers.first_open_offset
    assert first_open is not None and log.producers.first_undecided(log.log_end_offset) == first_open
    assert committed_values(log) == committed
    # We end what was open, as its coordinator would have, and Kafka's readers leave it out.
    (pid,) = log.producers.open_at(log.log_end_offset)
    known = log.producers.get(pid)
    assert known is not None
    append(log, build_marker(pid, known.epoch, False, known.coordinator_epoch, NOW_MS))
    assert committed_values(log) == committed
    assert directory.close() == []


def wait_for_markers(partition: Path, aborted: int) -> None:
    """An answer to an abort comes when it is decided; its marker may follow."""
    deadline = time.monotonic() + TIMEOUT_S
    while len(indexed(partition)) < aborted:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def read_by_kafka(client: Confluent, count: int) -> list[bytes]:
    """All values up to the end, by a librdkafka consumer of what Kafka serves."""
    consumer = client.consumer(**{"isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            if len(values) >= count:
                break
            continue
        values.append(message.value() or b"")
    consumer.close()
    return values
