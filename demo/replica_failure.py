"""KIP-461: one replica's files cannot be written, and come back later.

The directory of a replica is gone, as on a disk that lost it: the next segment cannot be made there. It is a partition
of parcels, which nobody else writes to, so that it is known which write meets the error: one that rolls the log, and
not the sync of an earlier roll, after which the replica would be offline until its node starts again.
"""

import asyncio
import shutil
from pathlib import Path

from demo.evidence import FailedReplica
from demo.inspecting import copied, failed
from demo.plan import ORDERS, PARCEL_BYTES, PARCELS
from demo.reading import READ_S_MAX
from demo.stage import Stage
from headrace.client import Consumer, Producer
from headrace.model import TopicPartition


def fail_a_replica(stage: Stage) -> None:
    """A follower of a partition that is led by the node which will be killed next."""
    cluster = stage.cluster
    leader = cluster.leader_of(ORDERS, 0)
    at, seen = next((at, one) for at, one in cluster.seen(PARCELS).items() if one.leader == leader)
    victim = next(node_id for node_id in seen.replicas if node_id != leader)
    partition = TopicPartition(PARCELS, at)
    note = stage.seen.failed_replica = FailedReplica(victim, str(partition))
    send(stage, partition)
    cluster.until_whole(PARCELS)
    note.sent_before = len(note.sent)
    directory, away = cluster.nodes[victim].partitions / str(partition), stage.directory / "taken-away"
    directory.rename(away)
    stage.happened(f"The files of {partition} on node {victim} are gone")
    others = {at: one.leader for at, one in cluster.seen(ORDERS).items() if one.leader != victim}
    note.others_before = _copied(stage, victim, others)
    send(stage, partition)  # acknowledged once the replica has left the ISR
    send(stage, partition)
    cluster.until(lambda: victim not in cluster.seen(PARCELS, leader)[at].isr, "the replica has left the ISR")
    note.left_in_sync = True
    _note_failure(stage, note)
    cluster.until(lambda: _go_on(stage, note, others), "the others are replicated on")
    _put_back(away, directory)
    stage.happened(f"Node {victim} gave up {partition} alone; its files are back, and it waits for the next epoch")


def _note_failure(stage: Stage, note: FailedReplica) -> None:
    stage.cluster.until(lambda: failed(stage.cluster, note.node_id), "the replica is given up")
    given_up = failed(stage.cluster, note.node_id)
    note.given_up = [f"{one['topic']}-{one['partition']}" for one in given_up]
    note.reason, note.in_epoch = str(given_up[0]["reason"]), int(given_up[0]["leader_epoch"])


def _go_on(stage: Stage, note: FailedReplica, others: dict[int, int]) -> bool:
    note.others_after = _copied(stage, note.node_id, others)
    return all(after > note.others_before[one] for one, after in note.others_after.items())


def _copied(stage: Stage, node_id: int, leaders: dict[int, int]) -> dict[str, int]:
    return {f"{ORDERS}-{at}": copied(stage.cluster, leader, at, node_id) for at, leader in leaders.items()}


def _put_back(away: Path, directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
    away.rename(directory)


def until_back(stage: Stage) -> None:
    """Another one leads the partition, and so the replica is tried again."""
    cluster, note = stage.cluster, stage.seen.failed_replica
    at = int(note.name.rpartition("-")[2])

    def is_back() -> bool:
        return note.node_id in cluster.seen(PARCELS, note.node_id)[at].isr

    cluster.until(is_back, "the failed replica is in sync")
    note.back_in_sync = not failed(cluster, note.node_id)
    with cluster.call(note.node_id) as caller:
        note.back_in_epoch = caller.leader_epoch(PARCELS, at)
    stage.happened(f"{note.name} of node {note.node_id} is in sync again, in leader epoch {note.back_in_epoch}")


def read_back(stage: Stage) -> None:
    note = stage.seen.failed_replica
    if not note.name:
        return  # the act was not played
    at = int(note.name.rpartition("-")[2])
    parcels = _parcels(stage.cluster.bootstrap, TopicPartition(PARCELS, at))
    note.stored = asyncio.run(asyncio.wait_for(parcels, READ_S_MAX))


def check_replicas(stage: Stage) -> None:
    """When the nodes have stopped."""
    note = stage.seen.failed_replica
    if not note.name:
        return
    at = int(note.name.rpartition("-")[2])
    replicas = [one.digest for one in stage.cluster.replicas(PARCELS, at + 1) if one.partition.partition == at]
    note.is_equal = len(set(replicas)) == 1


def send(stage: Stage, partition: TopicPartition) -> None:
    """A parcel, with which every segment but an empty one has to be rolled: no other write needs a new file."""
    number = len(stage.seen.failed_replica.sent)
    asyncio.run(_send(stage.cluster.bootstrap, partition, number))
    stage.seen.failed_replica.sent.append(number)


async def _send(bootstrap: str, partition: TopicPartition, number: int) -> None:
    async with Producer(bootstrap, acks="all", linger_ms=0) as producer:
        await producer.send(partition.topic, (b"%d" % number).ljust(PARCEL_BYTES), partition=partition.partition)


async def _parcels(bootstrap: str, partition: TopicPartition) -> list[int]:
    found: list[int] = []
    async with Consumer(bootstrap) as consumer:
        end = (await consumer.end_offsets([partition]))[partition]
        consumer.assign([partition])
        while await consumer.position(partition) < end:
            found += [int(record.value or b"-1") for record in await consumer.poll(1_000)]
    return found
