"""Deleted records and deleted topics while replicas are away. Scenarios Tsm."""

import asyncio

import pytest

from headrace.broker.partitions import Hosted
from tests.broker.asking import EARLIEST, TOPIC, delete_records, records_of
from tests.broker.test_latest_offsets import certainly_dead
from tests.broker.trio import Trio, play

NODES = (1, 2, 3)


async def earliest(trio: Trio) -> int:
    """As the leader of the moment tells it, once it does."""

    def tells() -> list[int]:
        serving = [node.node_id for node in trio.world.nodes if node.is_serving]
        held = [(n, trio.broker(n).partitions.find_by_name(TOPIC, 0)) for n in serving]
        leading = [n for n, p in held if isinstance(p, Hosted) and p.is_leading and not (p.error or p.is_list_guarded)]
        return [n for n in leading if trio.broker(n).controller.lease_valid()]

    await trio.until(tells)
    client = await trio.client(tells()[0])
    return await client.offset(EARLIEST)


@pytest.mark.parametrize("victims", ["follower", "leader", "both"])
def test_tsm_3_the_log_start_does_not_fall_when_replicas_restart_and_are_elected_at_once(victims: str) -> None:
    """Killed before any checkpoint, back with all their records, and elected before they fetched anything."""

    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in NODES if n != trio.controller_id)
        await trio.topic([leader, follower])
        client = await trio.client(leader)
        for number in range(10):
            assert (await client.produce(records_of([b"%d" % number]))).error_code == 0
        assert await delete_records(client, 7) == [(0, 7)]
        assert await earliest(trio) == 7
        if victims != "leader":
            await trio.restart(follower)
        assert trio.record().isr_ids == [leader, follower]
        if victims == "follower":
            certainly_dead(trio, leader)
        else:
            await trio.restart(leader)
        for _ in range(20):
            assert await earliest(trio) == 7
            await asyncio.sleep(0.2)

    play(scenario, replicates=True)


def test_tsm_5_a_topic_that_was_deleted_while_a_replica_was_away_leaves_a_stray_there() -> None:
    async def scenario(trio: Trio) -> None:
        away, leader = (n for n in NODES if n != trio.controller_id)
        await trio.topic([leader, away])
        client = await trio.client(leader)
        assert (await client.produce(records_of([b"precious"]))).error_code == 0
        node = trio.world.nodes[away - 1]
        node.kill()
        await client.delete_topic()
        await trio.until(lambda: TOPIC not in trio.broker(leader).image.topics)
        await trio.topic([leader, away])
        assert (await client.produce(records_of([b"new"]), acks=1)).error_code == 0
        node.start()
        await trio.serves(away)
        names = node.machine.files.names(f"/data{away}/logs")
        (stray,) = [name for name in names if name.endswith("-stray")]
        assert b"precious" in node.machine.files.read(f"/data{away}/logs/{stray}/{0:020d}.log")
        await trio.until(lambda: trio.partition(away).high_watermark == 1)
        assert len(trio.record().isr) == 2

    play(scenario, replicates=True)
