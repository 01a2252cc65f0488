"""Three nodes and a tiered partition: how soon a replica is in sync again that lost its disk."""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench.clusters import wait_until
from bench.raw import RawClient
from bench.requests import write_requests
from bench.tier_reads import metric
from bench.workloads import BATCH_1M, loadgen
from tests.servers.cluster import HeadraceCluster
from tests.servers.process import BrokerProcess

SEGMENT_BYTES = 16 << 20
TAIL_BYTES = 8 << 20
"""About so much is written last, and is not in the tier."""
BEHIND_TIER = "follower.fetch.last.tiered.offset.enable"
LOOK_S = 0.01


class Rejoined(NamedTuple):
    tiered_bytes: int
    is_behind_tier: bool
    seconds: list[float]
    """From the start of the process to its place in the ISR."""
    replicated_bytes: int


def rejoin(directory: Path, quick: bool) -> list[Rejoined]:
    large = 400_000_000 if quick else 4_000_000_000
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.storage.url": str(directory / "objects"),
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
    }
    cluster = HeadraceCluster(directory, f"sqlite:{directory / 'metadata.db'}", settings)
    try:
        cluster.start()
        found = []
        for size in (large // 10, large):
            topic = f"tiered-{size}"
            victim = _fill(cluster, directory, topic, size)
            for is_behind_tier, rounds in ((True, 3), (False, 1 if quick else 2)):
                found.append(_rounds(cluster, topic, victim, size, is_behind_tier, rounds))
            cluster.admin().delete_topics([topic])[topic].result(60)
        return found
    finally:
        cluster.kill()


def _fill(cluster: HeadraceCluster, directory: Path, topic: str, size: int) -> int:
    """Returns the follower that will lose its disk. Nine tenths of what is in the tier stay on the leader's disk too:
    a replica begins behind the tier only if the beginning of the log is there alone."""
    with RawClient(cluster.nodes[1].port) as client:
        settings = {"segment.bytes": str(SEGMENT_BYTES), "local.retention.bytes": str(size * 9 // 10 - SEGMENT_BYTES)}
        client.create_configured(topic, 1, 3, {**settings, "remote.storage.enable": "true"})
    cluster.until_whole(topic)
    leader = cluster.leader_of(topic)
    node = cluster.nodes[leader]
    requests = write_requests(directory / f"{topic}.requests", topic, 1, 1_000, BATCH_1M)
    _produce(node, requests, 1)
    batch_bytes = sum(path.stat().st_size for path in _segments(node, topic))
    per_segment = SEGMENT_BYTES // batch_bytes
    segments = size // (per_segment * batch_bytes)
    _produce(node, requests, segments * per_segment - 1 + TAIL_BYTES // batch_bytes)
    cluster.until_whole(topic)
    wait_until(lambda: _is_tiered(node, topic, segments), f"all but the active segment of {topic} is in the tier")
    return next(id_ for id_ in cluster.nodes if id_ != leader)


def _produce(node: BrokerProcess, requests: Path, count: int) -> None:
    subprocess.run(loadgen("produce", requests, 1, 4, count)(node.port), check=True, stdout=subprocess.DEVNULL)


def _segments(node: BrokerProcess, topic: str) -> list[Path]:
    return list((node.partitions / f"{topic}-0").glob("*.log"))


def _is_tiered(node: BrokerProcess, topic: str, segments: int) -> bool:
    is_copied = metric(node, "remotecopylagbytes") == 0 and metric(node, "remotelogmetadatacount") >= segments
    return is_copied and min(int(path.stem) for path in _segments(node, topic)) > 0


def _rounds(
    cluster: HeadraceCluster, topic: str, victim: int, size: int, is_behind_tier: bool, rounds: int
) -> Rejoined:
    node, seconds, replicated = cluster.nodes[victim], [], 0
    other = next(id_ for id_ in cluster.nodes if id_ != victim)
    plain = node.command
    node.command = [*plain, "--set", f"{BEHIND_TIER}={str(is_behind_tier).lower()}"]
    for _ in range(rounds):
        node.kill()
        cluster.withdraw(victim)
        shutil.rmtree(cluster.directory / f"n{victim}")
        wait_until(lambda: victim not in cluster.seen(topic, other)[0].isr, "it has left the ISR", LOOK_S)
        began_s = time.monotonic()
        node.launch()
        wait_until(lambda: victim in cluster.seen(topic, other)[0].isr, "it is in the ISR again", LOOK_S)
        seconds.append(time.monotonic() - began_s)
        replicated = int(metric(node, "replicationbytesin_total"))
        how = "behind the tier" if is_behind_tier else "from the leader's disk"
        _say(f"{size / 1e9:.1f} GB, {how} | in the ISR after {seconds[-1]:.2f} s, {replicated / 1e6:.1f} MB replicated")
    node.command = plain
    return Rejoined(size, is_behind_tier, seconds, replicated)


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
