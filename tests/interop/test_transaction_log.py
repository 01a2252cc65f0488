"""The records of our coordinators in the hands of Apache Kafka's tools."""

from dataclasses import replace
from pathlib import Path

from headrace.core.commit_group import Decision, decision_entry
from headrace.core.transaction import Claim, State, Transaction
from headrace.core.transaction_log import entry_of, tombstone_of
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.os_files import OsFiles
from headrace.wire.batch import NewRecord, build, place, read_header
from headrace.wire.compression import Codec
from tests.interop.test_kafka_files import NOW_MS, TOPIC_ID, dump

KNOWN = Transaction(
    producer_id=5,
    epoch=3,
    timeout_ms=60_000,
    state=State.EMPTY,
    updated_ms=NOW_MS,
    previous_producer_id=4,
    last_epoch=2,
)


def test_kafkas_decoder_reads_every_state_of_a_transaction(tmp_path: Path) -> None:
    opened = replace(
        KNOWN, state=State.ONGOING, partitions=frozenset({("t", 0), ("t", 7), ("u", 1)}), started_ms=NOW_MS
    )
    entries: list[tuple[bytes, bytes | None]] = [entry_of("an id", KNOWN)]
    entries += [entry_of("an id", replace(opened, state=state)) for state in list(State)[1:6]]
    entries.append(tombstone_of("an id"))
    directory = LogDir(OsFiles(open_files_max=50), str(tmp_path))
    log = directory.open_log("__transaction_state", 0, TOPIC_ID, LogConfig())
    for key, value in entries:
        raw = build([NewRecord(NOW_MS, key, value)])
        place(raw, 0, log.log_end_offset, 0)
        log.append([(raw, read_header(raw))], NOW_MS)
    directory.close()
    text = dump(tmp_path / "logs" / "__transaction_state-0", [".log"], "--transaction-log-decoder")
    assert text.count('"transactionalId":"an id"') == len(entries)
    for status in range(6):
        assert text.count(f'"transactionStatus":{status}') == 1
    assert '"previousProducerId":4' in text and '"producerEpoch":3' in text
    assert '{"topic":"t","partitionIds":[0,7]},{"topic":"u","partitionIds":[1]}' in text


def test_kafkas_decoder_passes_over_what_we_decide_for_batches_of_queries(tmp_path: Path) -> None:
    """Among the states that are decided with it, in one batch, compressed as many of them are."""
    decision = Decision(batch_id=7, run_id="run", decided_ms=NOW_MS, winners=(Claim(5, 3),))
    prepared = replace(KNOWN, state=State.PREPARE_COMMIT, partitions=frozenset({("t", 0)}), started_ms=NOW_MS)
    entries = [decision_entry("hr1:s:q", decision), entry_of("hr1:s:q:7:0:run:0", prepared)]
    directory = LogDir(OsFiles(open_files_max=50), str(tmp_path))
    log = directory.open_log("__transaction_state", 0, TOPIC_ID, LogConfig())
    raw = build([NewRecord(NOW_MS, key, value) for key, value in entries], codec=Codec.ZSTD)
    place(raw, 0, 0, 0)
    log.append([(raw, read_header(raw))], NOW_MS)
    directory.close()
    text = dump(tmp_path / "logs" / "__transaction_state-0", [".log"], "--transaction-log-decoder")
    assert text.count('"transactionalId":"hr1:s:q:7:0:run:0"') == 1
    assert text.count('"transactionStatus":2') == 1
    assert '"transactionalId":"hr1:s:q"' not in text
