"""A topic whose tier is given up begins where replicas have it on their own disks, whoever leads (T8-5)."""

import asyncio

from headrace.controller.config_changes import DONE
from headrace.controller.configs import Edit, EditKind
from tests.broker.asking import EARLIEST, TOPIC, records_of
from tests.broker.trio import Trio, play

SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.storage.url": "/objects",
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "follower.fetch.last.tiered.offset.enable": "true",
}
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "300",
    "local.retention.bytes": "1500",
    "retention.ms": "-1",
    "min.insync.replicas": "1",
}


async def fill(trio: Trio, leader: int, count: int) -> None:
    client = await trio.client(leader)
    for number in range(count):
        answer = await client.produce(records_of([b"%d" % number + bytes(20)]), acks=-1)
        assert answer.error_code == 0
    client.peer.close()


async def with_a_thin_replica(trio: Trio) -> None:
    """Node 1 leads; node 3 has begun at the end of what is tiered, and is in sync."""
    await trio.topic([1, 2, 3], settings=TIERED)
    await fill(trio, 1, 60)
    await trio.until(lambda: trio.partition(1).local_log_start_offset > 0)
    await trio.until(lambda: trio.partition(2).local_log_start_offset > 0)
    await asyncio.sleep(2)
    wiped = trio.world.nodes[2]
    wiped.wipe()
    await trio.until(lambda: all(member.broker_id != 3 for member in trio.record().isr))
    wiped.start()
    await trio.serves(3)
    await trio.until(lambda: any(member.broker_id == 3 for member in trio.record().isr))
    assert trio.partition(3).local_log_start_offset > trio.partition(1).local_log_start_offset


async def give_up(trio: Trio) -> None:
    edits = [
        Edit("remote.storage.enable", EditKind.SET, "false"),
        Edit("remote.log.delete.on.disable", EditKind.SET, "true"),
    ]
    outcome = await trio.broker(trio.controller_id).controller.alter_topic_settings(TOPIC, lambda _: edits)
    assert outcome is not None and outcome.code == DONE.code
    await trio.until(lambda: all(not trio.broker(node).image.tier for node in (1, 2, 3)))


async def reads_from_its_beginning(trio: Trio, leader: int) -> None:
    client = await trio.client(leader)
    start, partition = await client.offset(EARLIEST), trio.partition(leader)
    assert start == partition.log_start_offset == partition.local_log_start_offset > 0
    assert await client.offset(0) == start
    assert len(await client.read_all(start)) == partition.high_watermark - start > 0
    client.peer.close()


def test_the_log_begins_where_every_replica_in_sync_has_it() -> None:
    async def scenario(trio: Trio) -> None:
        await with_a_thin_replica(trio)
        thin_start = trio.partition(3).local_log_start_offset
        await give_up(trio)
        assert trio.partition(1).log_start_offset >= thin_start
        await reads_from_its_beginning(trio, 1)
        before = trio.partition(1).log_start_offset
        await trio.move_to(3)
        await reads_from_its_beginning(trio, 3)
        assert trio.partition(3).log_start_offset == before

    play(scenario, SETTINGS, replicates=True)


def test_a_replica_that_has_not_told_what_it_has_leaves_no_hole_when_it_leads() -> None:
    async def scenario(trio: Trio) -> None:
        await with_a_thin_replica(trio)
        trio.broker(3).isr_updates.coverages.report = lambda _: None
        leadership = trio.partition(1).leadership
        assert leadership is not None
        leadership.followers[3].coverage = None
        await give_up(trio)
        assert trio.partition(3).log_start_offset < trio.partition(3).local_log_start_offset
        await trio.move_to(3)
        await reads_from_its_beginning(trio, 3)
        start = trio.partition(3).log_start_offset
        await trio.until(lambda: trio.partition(1).log_start_offset == start)

    play(scenario, SETTINGS, replicates=True)
