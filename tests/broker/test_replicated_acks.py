"""Who waits for several partitions is told of each what became of it, also of those where nobody looked meanwhile."""

import asyncio

from headrace.errors import ErrorCode
from headrace.wire.messages.produce import ProduceResponse
from tests.broker.asking import produce_request, records_of
from tests.broker.trio import Trio, play


def test_a_batch_that_was_cut_while_its_request_waited_elsewhere_is_not_acknowledged() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2], [1, 2])
        client = await trio.client(1)
        request = produce_request({0: records_of([b"lost"]), 1: records_of([b"kept"])})
        answering = asyncio.ensure_future(client.ask(request, ProduceResponse, 12))
        first = trio.partition(1)
        await trio.until(lambda: first.log_end_offset == 1 and trio.partition(1, 1).log_end_offset == 1)
        await trio.move_to(2)
        # As a follower the node cuts the batch, and gets others in its place, which are committed.
        first.truncated_to(0)
        first.follower_appended(3, 3, 0)
        for _ in range(2):
            await trio.fetch_as(2, 1, 1)
        lost, kept = (await answering).responses[0].partition_responses
        assert (lost.error_code, lost.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert (kept.error_code, kept.base_offset) == (ErrorCode.NONE, 0)

    play(scenario)


def test_what_too_few_replicas_have_when_its_request_is_answered_is_told_so() -> None:
    """It was committed, and may be lost with one disk now: 20, after which an idempotent client sends it again."""

    async def scenario(trio: Trio) -> None:
        leader, dying = (n for n in (1, 2, 3) if n != trio.controller_id)
        await trio.topic([leader, dying], [leader, trio.controller_id], settings={"min.insync.replicas": "2"})
        client = await trio.client(leader)
        request = produce_request({0: records_of([b"alone now"]), 1: records_of([b"safe"])})
        answering = asyncio.ensure_future(client.ask(request, ProduceResponse, 12))
        first, second = trio.partition(leader), trio.partition(leader, 1)
        await trio.until(lambda: first.log_end_offset == second.log_end_offset == 1)
        await trio.fetch_as(dying, leader)
        assert first.high_watermark == 1 and not answering.done()  # the other partition is waited for
        trio.world.nodes[dying - 1].kill()
        await trio.until(lambda: trio.record(at=leader).isr_ids == [leader])
        assert not answering.done()
        await trio.fetch_as(trio.controller_id, leader, 1)
        few, enough = (await answering).responses[0].partition_responses
        assert few.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert (enough.error_code, enough.base_offset) == (ErrorCode.NONE, 0)
        refused = await client.produce(records_of([b"not even appended"]))
        assert (refused.error_code, first.log_end_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, 1)

    play(scenario)
