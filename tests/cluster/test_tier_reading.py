"""Who reads what is in the tier alone costs the broker a bounded memory, and the store hardly more than is delivered.

A real process, a real S3 server, and bytes counted on the way to it.
"""

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cluster.tiered import (
    EARLIEST_LOCAL,
    TOPIC,
    create,
    metric,
    offset_at,
    s3_store,
    tiered_cluster,
    until_tiered,
)
from tests.cluster.whole_readers import RdReads
from tests.servers.cluster import HeadraceCluster

SEGMENT_BYTES = 4 << 20
REMOTE_SEGMENTS = 20
VALUE_BYTES = 20_000
CACHE_BYTES = 16 << 20
OVERHEAD_BYTES = 24 << 20
"""Buffers of sockets and of the HTTP client, and what the allocator keeps."""
ASKED_RATIO_MAX = 1.2


def value_of(number: int) -> bytes:
    return (b"%d " % number).ljust(VALUE_BYTES, b"%d" % (number % 10))


def fill(cluster: HeadraceCluster) -> int:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.kbytes": 64 << 10})
    count = (REMOTE_SEGMENTS + 2) * SEGMENT_BYTES // VALUE_BYTES
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, value_of(number), partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    assert producer.flush(60) == 0
    return count


def memory(cluster: HeadraceCluster, node_id: int, what: str) -> int:
    lines = Path(f"/proc/{cluster.nodes[node_id].pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(what))


def test_reading_20_remote_segments_stays_within_the_cache_and_asks_for_hardly_more_than_it_delivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"remote.read.cache.bytes": str(CACHE_BYTES)}
    with (
        s3_store(tmp_path / "s3", monkeypatch) as (_, proxy, url),
        tiered_cluster(tmp_path / "cluster", url, size=1, settings=settings) as cluster,
    ):
        (leader,) = create(cluster, segment_bytes=str(SEGMENT_BYTES), local_retention_bytes="1")
        count = fill(cluster)
        until_tiered(cluster, leader)
        cluster.until(lambda: metric(cluster, leader, "remotelogmetadatacount") >= REMOTE_SEGMENTS, "20 are remote")
        cluster.nodes[leader].stop()  # what copying took of memory is not what reading takes
        cluster.nodes[leader].start()
        cluster.until(lambda: metric(cluster, leader, "remotelogmetadatacount") >= REMOTE_SEGMENTS, "it knows them")
        asked, before = proxy.segment_bytes, memory(cluster, leader, "VmRSS:")
        began_s = time.monotonic()
        RdReads(cluster.bootstrap).read(count, value_of)
        took_s = time.monotonic() - began_s
        asked, grown = proxy.segment_bytes - asked, memory(cluster, leader, "VmHWM:") - before
        delivered = offset_at(cluster, leader, EARLIEST_LOCAL) * VALUE_BYTES
        print(
            f"{delivered / 1e6:.0f} MB of the tier read in {took_s:.1f} s: {asked / delivered:.3f} times that asked of "
            f"the S3 server, and {grown / 1e6:.0f} MB more memory, of which {CACHE_BYTES / 1e6:.0f} are the cache"
        )
        assert delivered > REMOTE_SEGMENTS * (SEGMENT_BYTES - VALUE_BYTES)
        assert asked <= ASKED_RATIO_MAX * delivered
        assert grown <= CACHE_BYTES + OVERHEAD_BYTES
