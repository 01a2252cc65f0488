"""A node that lost its disk: it copies what is not in the tier, is in sync again, and does not lead before its time;
and consumers read all of the topic meanwhile.

Real processes and real clients, and a tier in a directory and on an S3 server. T9-7, T1303-1, T1303-2, T1303-5,
T1303-21.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.cluster.tiered import (
    LATEST,
    TOPIC,
    create,
    metric,
    offset_at,
    produce,
    records_of,
    s3_store,
    segments_on_disk,
    tiered_cluster,
    until_tiered,
)
from tests.cluster.whole_readers import JavaReads, RdReads, WholeReaders
from tests.servers.cluster import PROGRAM, HeadraceCluster

REMOTE_SEGMENTS = 20
THRESHOLD = "leader.election.eligible.local.log.ms"
FOR_EVER_MS = 1 << 50
SOON_MS = 1_000


@pytest.fixture(params=["directory", "s3"])
def tiered(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HeadraceCluster]:
    if request.param == "directory":
        with tiered_cluster(tmp_path / "cluster", str(tmp_path / "tier")) as cluster:
            yield cluster
        return
    with (
        s3_store(tmp_path / "s3", monkeypatch) as (server, _, _),
        tiered_cluster(tmp_path / "cluster", server.url("tier")) as cluster,
    ):
        yield cluster


def wipe(cluster: HeadraceCluster, node_id: int) -> None:
    """The machine is another one: nothing of its disk is left."""
    kill(cluster, node_id)
    shutil.rmtree(cluster.directory / f"n{node_id}")


def kill(cluster: HeadraceCluster, node_id: int) -> None:
    cluster.nodes[node_id].kill()
    cluster.withdraw(node_id)


def until_leads(cluster: HeadraceCluster, node_id: int, what: str) -> None:
    cluster.until(lambda: cluster.leader_of(TOPIC, by=node_id) == node_id, what)


def set_threshold(cluster: HeadraceCluster, ms: int) -> None:
    entry = ConfigEntry(THRESHOLD, str(ms), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    cluster.admin().incremental_alter_configs([resource])[resource].result(30)


def why(cluster: HeadraceCluster, node_id: int) -> dict[str, Any]:
    """`headrace cluster why`, about that replica; the first line that people see is printed."""
    command = [PROGRAM, "cluster", "why", TOPIC, "0", "--bootstrap", cluster.bootstrap]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout
    print(shown.splitlines()[0])
    told = json.loads(subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE, timeout=60).stdout)
    found: dict[str, Any] = next(replica for replica in told["replicas"] if replica["id"] == node_id)
    return found


def check_copied_the_tail_alone(cluster: HeadraceCluster, wiped: int, leader: int, pending: int) -> None:
    copied = metric(cluster, wiped, "replicationbytesin_total")
    on_leader = segments_on_disk(cluster, leader)
    tail = b"".join(path.read_bytes() for path in on_leader if int(path.stem) >= pending)
    print(
        f"{copied} bytes replicated: {len(tail)} are not in the tier, {sum(path.stat().st_size for path in on_leader)} "
        f"are on the leader's disk, and {metric(cluster, leader, 'remotelogsizebytes')} in "
        f"{metric(cluster, leader, 'remotelogmetadatacount')} remote segments"
    )
    assert copied == len(tail)
    assert b"".join(path.read_bytes() for path in segments_on_disk(cluster, wiped)) == tail


def test_t9_7_t1303_it_is_in_sync_with_the_tail_alone_and_leads_no_sooner_than_it_should(
    tiered: HeadraceCluster, tmp_path: Path
) -> None:
    cluster = tiered
    wiped, second, third = create(cluster, **{THRESHOLD: str(FOR_EVER_MS)})
    count, began_s = records_of(REMOTE_SEGMENTS + 3), time.time()
    produce(cluster, 0, count)
    until_tiered(cluster, wiped)
    cluster.until(lambda: metric(cluster, wiped, "remotelogmetadatacount") >= REMOTE_SEGMENTS, "20 remote segments")
    readers = RdReads(cluster.bootstrap), JavaReads(cluster.bootstrap, tmp_path)
    with WholeReaders(count, *readers) as reading:
        reading.until_all_read_it()
        wipe(cluster, wiped)
        cluster.until_led_by_another(wiped, TOPIC)
        leader = cluster.leader_of(TOPIC, by=second)
        pending = until_tiered(cluster, leader)
        cluster.nodes[wiped].start()
        cluster.until_whole(TOPIC)
        check_copied_the_tail_alone(cluster, wiped, leader, pending)

        # It is thin: another one leads while there is one; and it leads, at once, where it is alone.
        other = second if leader == third else third
        kill(cluster, leader)
        until_leads(cluster, other, "the other one leads, and not the thin one")
        reading.until_all_read_it()
        kill(cluster, other)
        until_leads(cluster, wiped, "the only one that is left leads")
        reading.until_all_read_it()
        for node_id in (second, third):
            cluster.nodes[node_id].start()
        cluster.until_whole(TOPIC)
        assert cluster.leader_of(TOPIC) == wiped, "nobody takes from it what it leads"

        # It is thin after a restart too, until the threshold is met: then it gets its leadership back.
        kill(cluster, wiped)
        cluster.until_led_by_another(wiped, TOPIC)
        cluster.nodes[wiped].start()
        cluster.until_whole(TOPIC)
        assert cluster.leader_of(TOPIC) != wiped and why(cluster, wiped)["thin"]
        threshold_ms = int((time.time() - began_s) * 1000) + SOON_MS
        set_threshold(cluster, threshold_ms)
        until_leads(cluster, wiped, "it leads again")
        assert (time.time() - began_s) * 1000 >= threshold_ms
        assert offset_at(cluster, wiped, LATEST) == count
        produce(cluster, count, 10)
        reading.end = count + 10
        reading.until_all_read_it()
    print(f"whole topic read {reading.rounds}")
