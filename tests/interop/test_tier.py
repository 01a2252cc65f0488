"""A stock consumer reads a tiered topic from its beginning, across the seam; and `headrace tier` says what is where."""

import json
import os
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cli.programs import headrace, wait_until
from tests.servers.headrace import headrace_broker
from tests.servers.process import BrokerProcess
from tests.servers.s3 import S3Missing, S3Server

CACHE_BYTES = 8 << 20
SEGMENT_BYTES = 2 << 20
SEGMENTS = 20
VALUE_BYTES = 1_000
RECORDS = (SEGMENTS + 1) * SEGMENT_BYTES // VALUE_BYTES
SLACK_BYTES = 24 << 20
"""For what a process needs besides: buffers of its sockets, and what its allocator keeps."""
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.ms": "1",
    "retention.ms": "-1",
}


@pytest.fixture(params=["directory", "s3"])
def tier_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "directory":
        yield str(tmp_path / "objects")
        return
    try:
        server = S3Server(tmp_path / "s3")
    except S3Missing as missing:
        pytest.skip(str(missing))
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield server.url("tier")
    server.kill()


@pytest.fixture
def broker(tier_url: str, tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.storage.url": tier_url,
        "remote.log.manager.task.interval.ms": "100",
        "log.retention.check.interval.ms": "100",
        "remote.read.cache.bytes": str(CACHE_BYTES),
    }
    process = headrace_broker(tmp_path, settings)
    process.start()
    yield process
    process.stop()


def fill(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1, config=TIERED)])["orders"].result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 10**6})
    for number in range(RECORDS):
        producer.produce("orders", key=b"%d" % number, value=os.urandom(VALUE_BYTES), partition=0)
        producer.poll(0)
    assert producer.flush(120) == 0
    wait_until(lambda: len(list((broker.partitions / "orders-0").glob("*.log"))) == 1, "only the tier has the rest")


def read_whole(broker: BrokerProcess, isolation: str) -> int:
    """The bytes of all values; asserts that no record is missing and none comes twice."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    offset = size = 0
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            for message in consumer.consume(5_000, 0.2):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    assert offset == RECORDS
                    return size
                assert (message.offset(), message.key()) == (offset, b"%d" % offset)
                offset += 1
                size += len(message.value() or b"")
        raise AssertionError(f"only {offset} of {RECORDS} records came")
    finally:
        consumer.close()


def fetched_bytes(broker: BrokerProcess) -> int:
    """What the broker has asked of the object store."""
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics", timeout=30) as page:
        found = re.search(r"^\S*remotefetchbytes_total (\d+)$", page.read().decode(), re.M)
    assert found is not None
    return int(found[1])


def memory_bytes(broker: BrokerProcess, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text(), re.M)
    assert found is not None
    return int(found[1]) << 10


def test_a_whole_tiered_topic_is_read_within_the_bounds_of_memory_and_of_what_is_asked(broker: BrokerProcess) -> None:
    fill(broker)
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
    before = memory_bytes(broker, "VmRSS")
    delivered = read_whole(broker, "read_uncommitted")
    asked = fetched_bytes(broker)
    assert delivered == RECORDS * VALUE_BYTES
    assert SEGMENTS * SEGMENT_BYTES * 0.9 < asked <= 1.2 * delivered
    assert memory_bytes(broker, "VmHWM") - before <= CACHE_BYTES + SLACK_BYTES
    assert read_whole(broker, "read_committed") == delivered
    check_commands(broker)


def check_commands(broker: BrokerProcess) -> None:
    def asked(*words: str) -> Any:
        done = headrace("tier", *words, "--bootstrap", broker.bootstrap, "--json")
        assert done.returncode == 0, done.said
        return json.loads(done.stdout)

    (status,) = asked("status", "orders")
    assert (status["log_start"], status["log_end"], status["lag_segments"]) == (0, RECORDS, 0)
    assert status["highest_remote"] == status["local_log_start"] - 1
    (listed,) = asked("ls")
    assert len(listed["segments"]) >= SEGMENTS
    assert {segment["verdict"] for segment in listed["segments"]} == {"inside"}
    assert listed["segments"][0]["base_offset"] == 0
    verified = asked("verify")
    assert verified["problems"] == []
    assert (verified["segments"], verified["bytes"]) == (len(listed["segments"]), listed["remote_bytes"])
    plain = headrace("tier", "status", "--bootstrap", broker.bootstrap)
    assert f"0 to {status['highest_remote']}" in plain.stdout.decode()
    assert f" {RECORDS - 1}" in plain.stdout.decode()
