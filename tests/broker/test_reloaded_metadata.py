"""A node that heard nothing for so long that the store forgot what happened: it loads everything, and goes on."""

import pytest

from tests.broker.asking import TOPIC, records_of
from tests.broker.trio import Trio, play

OTHER = "other"


@pytest.mark.parametrize("deaf_is", ["controller", "leader", "follower"])
def test_a_topic_that_was_made_again_meanwhile_is_another_one(deaf_is: str) -> None:
    async def scenario(trio: Trio) -> None:
        controller = trio.controller_id
        leader, follower = (n for n in (1, 2, 3) if n != controller)
        deaf = {"controller": controller, "leader": leader, "follower": follower}[deaf_is]
        asked = next(n for n in (1, 2, 3) if n != deaf)
        await trio.topic([leader, follower, controller], at=asked)
        await trio.topic([controller, leader], at=asked, name=OTHER)
        client = await trio.client(leader)
        for value in (b"old 1", b"old 2"):
            assert (await client.produce(records_of([value]))).error_code == 0
        old_id = trio.partition(deaf).topic_id
        trio.store(deaf).hold_watch()
        if deaf_is == "controller":
            # It decides nothing that it does not see come back: another one has to. It is registered again meanwhile.
            before, lease = trio.registered_epoch(deaf), trio.broker(deaf).controller.registration.lease
            assert lease is not None
            trio.world.data.revoke(lease.id)
            await trio.until(lambda: any(trio._decides(n) for n in (leader, follower)))
            await trio.until(lambda: trio.registered_epoch(deaf) > before)
            await trio.until(lambda: trio.broker(asked).image.rev == trio.world.data.rev)
        beside = await trio.client(asked)
        await beside.delete_topic()
        await beside.delete_topic(OTHER)
        await trio.until(lambda: TOPIC not in trio.broker(asked).image.topics)
        first = next(n for n in (leader, follower) if n != deaf)
        await trio.topic([first, *(n for n in (1, 2, 3) if n != first)], at=asked)
        writer = await trio.client(first)
        assert (await writer.produce(records_of([b"new"]), acks=1)).error_code == 0
        trio.world.data.compact(trio.world.data.rev)
        trio.store(deaf).hold_watch(False)
        await trio.until(lambda: trio.broker(deaf).image.rev == trio.world.data.rev)
        assert OTHER not in trio.broker(deaf).image.topics
        await trio.until(lambda: trio.partition(deaf).topic_id != old_id)
        await trio.until(lambda: len(trio.record().isr) == 3)
        await trio.until(lambda: trio.partition(deaf).high_watermark == 1)
        assert await writer.read_all() == [b"new"]
        names = trio.world.nodes[deaf - 1].machine.files.names(f"/data{deaf}/logs")
        assert f"{OTHER}-0" not in names

    play(scenario, replicates=True)
