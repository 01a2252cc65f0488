"""The object store is away, slow, or fails half of its calls: nobody notices who writes, or reads what is on the disks;
copies wait, and nothing is lost.

Real processes, a real S3 server with a way to it that misbehaves, and a directory that is gone, or on a disk that
misbehaves.
"""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace.system import SystemRandom, ThreadOffload
from headrace.tier.marking import MARK_PREFIX
from headrace.tier.opening import open_for_tools
from tests.cluster.tiered import (
    EARLIEST_LOCAL,
    LATEST_TIERED,
    SEGMENT_BYTES,
    TOPIC,
    create,
    metric,
    offset_at,
    produce,
    records_of,
    s3_store,
    tiered_cluster,
    until_tiered,
    value_of,
)
from tests.cluster.whole_readers import RdReads
from tests.servers.cluster import PROGRAM, HeadraceCluster
from tests.servers.faulty_directory import FaultyDirectory
from tests.servers.s3_proxy import S3Proxy

SEGMENTS = 6
SLOW_S = 2.0
FAILING_SHARE = 0.12
"""Of the system calls on a disk: what is asked of a store takes about six of them, so half of that fails."""


@pytest.fixture
def on_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HeadraceCluster, S3Proxy, str]]:
    with (
        s3_store(tmp_path / "s3", monkeypatch) as (_, proxy, url),
        tiered_cluster(tmp_path / "cluster", url, size=2) as cluster,
    ):
        yield cluster, proxy, url


def read_local(cluster: HeadraceCluster, leader: int, end: int) -> None:
    """All that is on the leader's disk."""
    start = offset_at(cluster, leader, EARLIEST_LOCAL)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(TOPIC, 0, start)])
    try:
        for number in range(start, end):
            message = consumer.poll(60)
            assert message is not None and message.error() is None, number
            assert (message.offset(), message.value()) == (number, value_of(number))
    finally:
        consumer.close()


def lag_bytes(cluster: HeadraceCluster, leader: int) -> int:
    return metric(cluster, leader, "remotecopylagbytes")


def write_more(cluster: HeadraceCluster, leader: int, count: int) -> int:
    """Some segments more, which wait to be copied; returns how many records there are. All else goes on."""
    tiered = offset_at(cluster, leader, LATEST_TIERED)
    more = records_of(SEGMENTS)
    produce(cluster, count, more)
    cluster.until(lambda: lag_bytes(cluster, leader) > (SEGMENTS - 2) * SEGMENT_BYTES, "the copies lag behind")

    def is_all_dropped() -> bool:
        return offset_at(cluster, leader, EARLIEST_LOCAL) == offset_at(cluster, leader, LATEST_TIERED) + 1

    # Else it is dropped while it is read, and has to come from the tier.
    cluster.until(is_all_dropped, "local retention has dropped all that it may")
    assert offset_at(cluster, leader, LATEST_TIERED) <= tiered + records_of(1)
    read_local(cluster, leader, count + more)
    return count + more


def until_caught_up(cluster: HeadraceCluster, leader: int) -> None:
    until_tiered(cluster, leader)
    cluster.until(lambda: lag_bytes(cluster, leader) == 0, "nothing is to be copied")


def asked(cluster: HeadraceCluster, command: str) -> Any:
    """`headrace tier`."""
    words = [PROGRAM, "tier", command, "--bootstrap", cluster.bootstrap, "--json"]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, timeout=60).stdout)


async def stored(url: str) -> set[str]:
    offload = ThreadOffload()
    store = open_for_tools(url, offload, SystemRandom())
    try:
        return {key async for key, _ in store.list("") if not key.startswith(MARK_PREFIX)}
    finally:
        await store.close()
        offload.close()


def until_nothing_is_left_behind(cluster: HeadraceCluster, url: str) -> None:
    """What is stored is what the brokers name, and it is whole."""

    def is_exact() -> bool:
        (told,) = asked(cluster, "ls")
        return asyncio.run(stored(url)) == {told["manifest"], *(segment["object"] for segment in told["segments"])}

    cluster.until(is_exact, "every object is named by the manifest in force")
    verified = asked(cluster, "verify")
    assert verified["segments"] > SEGMENTS and verified["problems"] == []


def test_an_s3_server_that_is_away_or_slow_or_fails_half_of_its_calls_holds_up_copies_alone(
    on_s3: tuple[HeadraceCluster, S3Proxy, str],
) -> None:
    cluster, proxy, url = on_s3
    leader, other = create(cluster)
    count = records_of(SEGMENTS)
    produce(cluster, 0, count)
    until_caught_up(cluster, leader)

    # Away; also when a leader begins, which then does not know yet what is in the tier.
    proxy.is_down = True
    count = write_more(cluster, leader, count)
    cluster.nodes[leader].kill()
    cluster.withdraw(leader)
    cluster.until(lambda: cluster.leader_of(TOPIC, by=other) == other, "the other one leads")
    produce(cluster, count, records_of(1))
    count += records_of(1)
    read_local(cluster, other, count)
    proxy.is_down = False
    cluster.nodes[leader].start()
    cluster.until_whole(TOPIC)
    cluster.until(lambda: cluster.leader_of(TOPIC) == leader, "it has its leadership back")
    cluster.until(lambda: metric(cluster, leader, "remotelogmetadatacount") > 0, "its manifest is known")
    until_caught_up(cluster, leader)
    RdReads(cluster.bootstrap).read(count)

    # Slow: what is read of the tier comes late, and comes.
    proxy.delay_s = SLOW_S
    count = write_more(cluster, leader, count)
    proxy.delay_s = 0.1
    RdReads(cluster.bootstrap).read(count)
    proxy.delay_s = 0
    until_caught_up(cluster, leader)

    # It fails half of its calls: copies go on nevertheless, and so do reads.
    proxy.failing_share = 0.5
    produce(cluster, count, records_of(SEGMENTS))
    count += records_of(SEGMENTS)
    until_caught_up(cluster, leader)
    RdReads(cluster.bootstrap).read(count)
    print(f"{proxy.failed} of {proxy.calls} calls failed")
    proxy.failing_share = 0
    produce(cluster, count, records_of(1))
    until_caught_up(cluster, leader)
    RdReads(cluster.bootstrap).read(count + records_of(1))
    until_nothing_is_left_behind(cluster, url)


def test_a_directory_that_is_gone_holds_up_copies_alone(tmp_path: Path) -> None:
    tier, away = tmp_path / "tier", tmp_path / "away"
    with tiered_cluster(tmp_path / "cluster", str(tier), size=1) as cluster:
        (leader,) = create(cluster)
        count = records_of(SEGMENTS)
        produce(cluster, 0, count)
        until_caught_up(cluster, leader)
        # As where a disk is not mounted any more: there is an empty directory in its place.
        tier.rename(away)
        tier.mkdir()
        count = write_more(cluster, leader, count)
        assert not list(tier.rglob("*.segment")), "nothing is stored where it would not be found again"
        tier.rmdir()
        away.rename(tier)
        until_caught_up(cluster, leader)
        RdReads(cluster.bootstrap).read(count)
        until_nothing_is_left_behind(cluster, str(tier))


def test_a_directory_that_is_slow_or_fails_half_of_its_calls_holds_up_copies_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = tmp_path / "tier"
    disk = FaultyDirectory(tier, tmp_path / "faults")
    for name, value in disk.environment.items():
        monkeypatch.setenv(name, value)
    with tiered_cluster(tmp_path / "cluster", str(tier), size=1) as cluster:
        (leader,) = create(cluster)
        count = records_of(SEGMENTS)
        produce(cluster, 0, count)
        until_caught_up(cluster, leader)

        disk.be(delay_ms=int(SLOW_S * 1000))
        count = write_more(cluster, leader, count)
        disk.be(delay_ms=100)
        RdReads(cluster.bootstrap).read(count)
        disk.be()
        until_caught_up(cluster, leader)

        disk.be(failing_share=FAILING_SHARE)
        before = metric(cluster, leader, "remotecopyerrors_total")
        produce(cluster, count, records_of(SEGMENTS))
        count += records_of(SEGMENTS)
        until_caught_up(cluster, leader)
        RdReads(cluster.bootstrap).read(count)
        assert metric(cluster, leader, "remotecopyerrors_total") > before, "no call failed"
        disk.be()
        produce(cluster, count, records_of(1))
        until_caught_up(cluster, leader)
        RdReads(cluster.bootstrap).read(count + records_of(1))
        until_nothing_is_left_behind(cluster, str(tier))
