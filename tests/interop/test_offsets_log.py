"""The records of our groups in the hands of Apache Kafka's tools."""

from pathlib import Path

from headrace.core.group_storing import snapshot
from headrace.storage.log_config import LogConfig
from headrace.storage.log_dir import LogDir
from headrace.storage.os_files import OsFiles
from headrace.wire.batch import NewRecord, build, place, read_header
from headrace.wire.group_records import (
    CommittedOffset,
    group_key,
    group_value,
    offset_key,
    offset_key_prefix,
    offset_value,
)
from tests.core.group_stage import Stage
from tests.interop.test_kafka_files import NOW_MS, TOPIC_ID, dump


def test_kafkas_decoder_reads_groups_and_offsets(tmp_path: Path) -> None:
    stage = Stage()
    member_id, _ = stage.stable(2)
    static = stage.join(instance_id="static one")
    assert static.waits
    group = stage.group
    key = offset_key(offset_key_prefix("a group", "orders"), 7)
    entries: list[tuple[bytes, bytes | None]] = [
        (key, offset_value(CommittedOffset(42, 5, "said", NOW_MS))),
        (key, offset_value(CommittedOffset(43, -1, "", NOW_MS, NOW_MS + 1_000))),
        (key, None),
        (group_key("a group"), group_value(snapshot(group, {member_id: b"assigned"}, NOW_MS))),
        (group_key("a group"), None),
    ]
    directory = LogDir(OsFiles(open_files_max=50), str(tmp_path))
    log = directory.open_log("__consumer_offsets", 0, TOPIC_ID, LogConfig())
    for entry in entries:
        raw = build([NewRecord(NOW_MS, *entry)])
        place(raw, 0, log.log_end_offset, 0)
        log.append([(raw, read_header(raw))], NOW_MS)
    directory.close()
    text = dump(tmp_path / "logs" / "__consumer_offsets-0", [".log"], "--offsets-decoder")
    assert text.count('"group":"a group","topic":"orders","partition":7') == 3
    assert '"offset":42,"leaderEpoch":5,"metadata":"said"' in text
    assert f'"expireTimestamp":{NOW_MS + 1_000}' in text
    assert '"protocolType":"consumer"' in text and f'"generation":{group.generation}' in text
    assert f'"memberId":"{member_id}"' in text and '"groupInstanceId":"static one"' in text
    assert '"clientHost":"/host"' in text
