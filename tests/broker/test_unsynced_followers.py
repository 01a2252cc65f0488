"""Followers whose disks are slow, of a topic that wants its records synced before they count."""

import asyncio
import errno

from headrace.errors import ErrorCode
from headrace.wire.messages.produce import ProduceResponse
from tests.broker.asking import produce_request, records_of
from tests.broker.trio import Trio, play

SYNCED = {"flush.messages": "1"}
SLOW_S = 5.0


def test_a_follower_that_leads_before_its_sync_is_done_keeps_what_it_wrote_and_counts_it_later() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2], settings=SYNCED)
        trio.world.nodes[1].machine.slow_s = SLOW_S
        client = await trio.client(1)
        answering = asyncio.ensure_future(client.ask(produce_request({0: records_of()}), ProduceResponse, 12))
        follower = trio.partition(2)
        await trio.until(lambda: follower.log.log_end_offset == 1)
        assert (follower.log_end_offset, trio.partition(1).high_watermark) == (0, 0)
        await trio.move_to(2)
        assert (await answering).responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (follower.log_end_offset, follower.assigned_end_offset) == (0, 1)
        assert follower.log.epochs.entries[-1] == (1, 1)
        again = await (await trio.client(2)).produce(acks=1)
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 1)
        assert follower.log_end_offset == 2
        await trio.until(lambda: follower.high_watermark == 2)
        assert trio.partition(1).log.log_end_offset == 2

    play(scenario, replicates=True)


def test_a_follower_tells_its_next_leader_of_nothing_that_is_not_synced() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings=SYNCED)
        trio.world.nodes[1].machine.slow_s = SLOW_S
        client = await trio.client(1)
        asking = asyncio.ensure_future(client.ask(produce_request({0: records_of()}), ProduceResponse, 12))
        follower = trio.partition(2)
        await trio.until(lambda: follower.log.log_end_offset == trio.partition(3).log_end_offset == 1)
        began_s = trio.world.loop.now_s
        await trio.move_to(3)
        leadership = trio.partition(3).leadership
        assert leadership is not None
        await trio.until(lambda: leadership.followers[2].offset == 1)
        assert trio.world.loop.now_s - began_s > SLOW_S - 1
        assert follower.log.recovery_point == 1
        await asking

    play(scenario, replicates=True)


def test_a_follower_whose_sync_failed_leaves_the_isr_at_once_and_leads_nothing_until_it_starts_again() -> None:
    """Its leader counts on records that it would have to cut, because nobody knows whether they are on its disk."""

    async def scenario(trio: Trio) -> None:
        leader, bad, third = trio.controller_id, *(n for n in (1, 2, 3) if n != trio.controller_id)
        await trio.topic([leader, bad, third], settings={"flush.ms": "100"})
        trio.world.nodes[bad - 1].machine.files.fail("sync", "*.log", errno.EIO)
        began_s = trio.world.loop.now_s
        assert (await (await trio.client(leader)).produce()).error_code == ErrorCode.NONE
        await trio.until(lambda: set(trio.record().isr_ids) == {leader, third})
        assert trio.world.loop.now_s - began_s < 5  # the largest lag is half a minute
        trio.world.nodes[leader - 1].kill()
        await trio.until(lambda: trio.record().leader not in (leader, -1))
        assert trio.record().leader == third
        await trio.restart(bad)
        await trio.until(lambda: bad in trio.record().isr_ids)
        await trio.until(lambda: trio.partition(bad).high_watermark == 1)

    play(scenario, replicates=True)
