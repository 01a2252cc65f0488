"""What both brokers are driven with."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.native import program
from bench.raw import RawClient
from bench.requests import write_requests
from bench.rounds import Workload
from tests.servers.process import BrokerProcess

PARTITIONS = 6
BATCH_16K = 16_384
BATCH_1M = 1_048_000
"""Just below what Apache Kafka takes by default (message.max.bytes)."""
CATCH_UP_TOPIC = "catch-up"


def produce_workloads(scratch: Path, megabytes: int) -> Iterator[Workload]:
    """Raw requests, then confluent-kafka, whose own speed limits the small records: a fifth of the data will do."""
    for record_bytes, label in ((1_000, "1 KB"), (100, "100 B")):
        for batch_bytes, batch_label, depth in ((BATCH_1M, "1 MB", 4), (BATCH_16K, "16 KB", 8)):
            topic = f"raw-{record_bytes}-{batch_bytes}"
            requests = write_requests(scratch / topic, topic, PARTITIONS, record_bytes, batch_bytes)
            total = megabytes * 1_000_000 // (requests.stat().st_size // PARTITIONS)
            yield Workload(
                f"produce {label} records, {batch_label} batches, raw",
                topic,
                loadgen("produce", requests, 4, depth, total),
                "GB",
                ratio_max=0.5,
                prefault_mb=3 * megabytes,
            )
    for record_bytes, label, share in ((1_000, "1 KB", 1), (100, "100 B", 5)):
        for batch_bytes, batch_label in ((BATCH_1M, "1 MB"), (BATCH_16K, "16 KB")):
            topic = f"confluent-{record_bytes}-{batch_bytes}"
            records = megabytes * 1_000_000 // share // record_bytes
            settings = [f"batch.size={batch_bytes}", "queue.buffering.max.messages=1000000"]
            yield Workload(
                f"produce {label} records, {batch_label} batches, confluent-kafka",
                topic,
                confluent("produce", topic, records, record_bytes, *settings),
                "GB",
                ratio_max=0.5,
                prefault_mb=3 * megabytes,
            )


def one_record_workloads(scratch: Path, share: float) -> Iterator[Workload]:
    topic = "one-record"
    requests = write_requests(scratch / topic, topic, PARTITIONS, 100, 100)
    for connections, depth, total, label in (
        (4, 64, 120_000, "4 connections x 64 in flight"),
        (32, 1, 80_000, "32 connections x 1"),
        (1, 1, 20_000, "1 connection x 1"),
    ):
        command = loadgen("produce", requests, connections, depth, int(total * share))
        yield Workload(f"one-record requests, {label}", topic, command, "request", ratio_max=0.5)


def catch_up_workloads(megabytes: int) -> Iterator[Workload]:
    total = megabytes * 1_000_000
    raw = loadgen("fetch", CATCH_UP_TOPIC, PARTITIONS, 2, 1 << 20, total)
    yield Workload(f"catch-up consume of {total / 1e9:g} GB, raw", CATCH_UP_TOPIC, raw, "GB", ratio_max=1.0)
    records = confluent("consume", CATCH_UP_TOPIC, PARTITIONS, total // 1_000)
    yield Workload(
        f"catch-up consume of {total / 1e9:g} GB, confluent-kafka", CATCH_UP_TOPIC, records, "GB", ratio_max=1.0
    )


def fill_for_catch_up(broker: BrokerProcess, scratch: Path, megabytes: int) -> None:
    """1 KB records in batches of 16 KB, a little more than is read."""
    with RawClient(broker.port) as client:
        client.create_topic(CATCH_UP_TOPIC, PARTITIONS)
    requests = write_requests(scratch / CATCH_UP_TOPIC, CATCH_UP_TOPIC, PARTITIONS, 1_000, BATCH_16K)
    total = megabytes * 1_100_000 // (requests.stat().st_size // PARTITIONS)
    subprocess.run(loadgen("produce", requests, 4, 8, total)(broker.port), check=True, stdout=subprocess.DEVNULL)


def loadgen(mode: str, *arguments: object) -> Callable[[int], list[str]]:
    return lambda port: [program("loadgen"), mode, str(port), *map(str, arguments)]


def confluent(mode: str, *arguments: object) -> Callable[[int], list[str]]:
    return lambda port: [sys.executable, "-m", "bench.confluent", mode, str(port), *map(str, arguments)]
