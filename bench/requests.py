"""Files of Produce requests for the load generator: valid in every byte, for Apache Kafka too."""

import os
import time
from pathlib import Path

from headrace.wire.batch import HEADER_BYTES, build
from headrace.wire.frames import encode_request
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.records import NewRecord

PRODUCE_VERSION = 12
"""The newest that names topics instead of their ids, so that one file serves both brokers."""

RECORD_OVERHEAD_BYTES_MAX = 11
"""Of a record without key and headers, shorter than 8 KB, in a batch of fewer than a million."""


def write_requests(path: Path, topic: str, partitions: int, record_bytes: int, batch_bytes: int) -> Path:
    """One request of one batch per partition, acks=1; random values, so that nothing is easier than it should be."""
    now_ms = time.time_ns() // 1_000_000
    count = max(1, (batch_bytes - HEADER_BYTES) // (record_bytes + RECORD_OVERHEAD_BYTES_MAX))
    with path.open("wb") as file:
        for partition in range(partitions):
            records = [NewRecord(now_ms, None, os.urandom(record_bytes)) for _ in range(count)]
            data = PartitionProduceData(index=partition, records=build(records))
            topics = [TopicProduceData(name=topic, partition_data=[data])]
            request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)
            file.write(b"".join(encode_request(request, PRODUCE_VERSION, partition, "loadgen")))
    return path
