"""`headrace cluster` as people read it; what it asks of real processes is in test_up_brokers.py."""

import asyncio
import json
import time
from typing import Any

import pytest

from headrace.cli import cluster, cluster_status
from headrace.cli.asking import Told
from headrace.client import Consumer, PartitionDescription, TopicDescription
from headrace.model import TopicPartition
from tests.cli.programs import PATIENCE_S, headrace


def partition(**other: Any) -> dict[str, Any]:
    well = {"leader": 1, "replicas": [1, 2, 3], "isr": [1, 2, 3], "guard": None, "failed": []}
    return {**well, **other}


@pytest.mark.parametrize(
    ("other", "note"),
    [
        ({}, ""),
        ({"leader": None}, "no leader"),
        ({"isr": [2]}, "not in sync: 1,3"),
        ({"guard": {"until": 5, "for_ms": 2_340}}, "offsets are not told before 5 is committed, for 2.3 s so far"),
        ({"failed": [{"node": 2, "reason": "the disk failed", "since_ms": 0}]}, "node 2 gave up: the disk failed"),
        ({"leader": None, "isr": [1]}, "no leader; not in sync: 2,3"),
    ],
)
def test_what_is_amiss_is_said(other: dict[str, Any], note: str) -> None:
    assert cluster_status.notes(partition(**other)) == note
    assert cluster_status.is_amiss(partition(**other)) == bool(note)


@pytest.mark.parametrize(("told_by", "told_epoch", "counts"), [(1, 7, True), (1, 6, False), (2, 7, False)])
def test_of_a_partitions_offsets_its_leaders_word_counts_and_in_its_own_epoch_only(
    told_by: int, told_epoch: int, counts: bool
) -> None:
    described = PartitionDescription(0, 1, 7, [1, 2], [1, 2], [])
    word = {"topic": "t", "partition": 0, "leader_epoch": told_epoch, "high_watermark": 5, "log_end": 6}
    replicas = Told({told_by: [word]}, {})
    failures = Told({2: [{"topic": "t", "partition": 0, "reason": "bad", "since_ms": 1, "leader_epoch": 7}]}, {})
    (found,) = cluster_status.of_partitions(
        [TopicDescription("t", b"", False, [described])], replicas, Told({}, {}), failures
    )
    assert (found["high_watermark"], found["log_end"]) == ((5, 6) if counts else (None, None))
    assert found["failed"] == [{"node": 2, "reason": "bad", "since_ms": 1}]


def test_a_failed_partition_is_told_with_its_reason_and_since_when() -> None:
    failed = {
        "node": 2,
        "topic": "t",
        "partition": 5,
        "leader_epoch": 7,
        "since_ms": 1_700_000_000_000,
        "reason": "bad",
    }
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1_700_000_000))
    assert [cell(failed) for cell in cluster.FAILED.values()] == [2, "t", 5, 7, since, "bad"]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(-5, "0.0 s"), (1_540, "1.5 s"), (61_000, "1 min 1 s"), (3_600_000, "1 h 0 min"), (90_000_000, "25 h 0 min")],
)
def test_durations_are_for_people(milliseconds: int, text: str) -> None:
    assert cluster.duration(milliseconds) == text


def test_one_broker_is_a_cluster_too(bootstrap: str, topic: str) -> None:
    asking = ("--bootstrap", bootstrap)
    assert headrace("topic", "create", topic, *asking).returncode == 0
    lines = headrace("cluster", "status", topic, *asking).stdout.decode().splitlines()
    assert lines[0].startswith("cluster ")
    assert lines[1].split() == ["node", "address", "rack", "leads", "replicas", "in", "sync"]
    assert lines[-1] == "1 partitions: 0 without leader, 0 under-replicated, 0 guarded, 0 failed"
    amiss = json.loads(headrace("cluster", "status", "--amiss", "--json", *asking).stdout)
    assert amiss["partitions"] == []
    assert headrace("cluster", "failed", *asking).stdout == b"No node has given up a partition\n"
    assert headrace("cluster", "elect", *asking).stdout == b"Every partition is led by its first replica\n"
    assert headrace("cluster", "sessions", *asking).returncode == 0
    lines = headrace("cluster", "why", topic, "0", *asking).stdout.decode().splitlines()
    assert lines[0].startswith(f"{topic}-0: node ") and lines[0].endswith("leads: it is the first replica")
    assert lines[1] == "The topic is not tiered: the log begins where its leader has it on its own disk"
    assert json.loads(headrace("cluster", "why", topic, "0", "--json", *asking).stdout)["held_back"] is False
    assert "there is no partition" in headrace("cluster", "why", topic, "1", *asking).said


def test_consumers_are_told_apart_by_what_they_call_themselves_and_where_they_are(bootstrap: str, topic: str) -> None:
    async def places() -> dict[str, str]:
        """Where two consumers are, which have a session when their first fetch has been answered."""
        found: dict[str, str] = {}
        async with Consumer(bootstrap, client_id="billing") as one, Consumer(bootstrap, client_id="audit") as other:
            for consumer in (one, other):
                consumer.assign([TopicPartition(topic, 0)])
            async with asyncio.timeout(PATIENCE_S):
                while not found.keys() >= {"billing", "audit"}:
                    await asyncio.gather(one.poll(200), other.poll(200))
                    done = await asyncio.to_thread(headrace, "cluster", "sessions", "--bootstrap", bootstrap)
                    rows = [line.split() for line in done.stdout.decode().splitlines()[1:]]
                    found = {row[2]: row[3] for row in rows if row[1] == "consumer"}
        return found

    assert headrace("topic", "create", topic, "--bootstrap", bootstrap).returncode == 0
    found = asyncio.run(places())
    assert found["billing"] != found["audit"] and ":" in found["billing"]


def test_an_election_of_a_partition_that_is_not_there_fails(bootstrap: str) -> None:
    done = headrace("cluster", "elect", "--topic", "nowhere", "--partition", "3", "--bootstrap", bootstrap)
    assert done.returncode == 1
    assert "nowhere-3: There is no such partition [UNKNOWN_TOPIC_OR_PARTITION, 3]" in done.said
