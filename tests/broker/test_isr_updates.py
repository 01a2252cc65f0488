"""Leaders with followers that the test moves: who joins and leaves the ISR, and what is acknowledged meanwhile."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from headrace.controller.isr_changes import Proposal
from headrace.core.cluster import PartitionRecord
from headrace.errors import ErrorCode
from tests.broker.asking import TOPIC, Client, delete_records, records_of
from tests.broker.trio import Trio, play

TWO = {"min.insync.replicas": "2"}


async def all_caught_up(trio: Trio, leader_id: int, *followers: int) -> None:
    for follower in followers:
        await trio.fetch_as(follower, leader_id)


def produced(client: Client, **fields: Any) -> "asyncio.Task[int]":
    async def send() -> int:
        return (await client.produce(records_of(), **fields)).error_code

    return asyncio.create_task(send())


def test_acks_all_wait_for_every_member_of_the_isr() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3])
        client = await trio.client(1)
        assert (await client.produce(records_of(), acks=1)).error_code == 0
        waiting = produced(await trio.client(1))
        await trio.fetch_as(2, 1)
        await trio.fetch_as(3, 1, offset=1)
        assert trio.partition(1).high_watermark == 1 and not waiting.done()
        await trio.fetch_as(3, 1)
        assert await waiting == 0
        assert trio.partition(1).high_watermark == 2

    play(scenario)


def test_waiting_consumers_hear_of_what_a_followers_fetch_has_committed() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2])
        client = await trio.client(1)
        waiting = asyncio.create_task(client.fetch(0, max_wait_ms=20_000))
        other = await trio.client(1)
        assert (await other.produce(records_of([b"seen"]), acks=1)).error_code == 0
        await asyncio.sleep(1)
        assert not waiting.done()
        await trio.fetch_as(2, 1)
        assert (await waiting).records

    play(scenario)


def test_a_member_that_falls_behind_leaves_and_comes_back_when_it_has_caught_up() -> None:
    """T227-14: within one and a half times the largest lag."""

    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2])
        await all_caught_up(trio, 1, 2)
        client = await trio.client(1)
        waiting = produced(client)
        began_s = trio.world.loop.now_s
        assert await waiting == 0
        assert 30 <= trio.world.loop.now_s - began_s <= 46
        assert trio.record().isr_ids == [1]
        await trio.fetch_as(2, 1, offset=0)
        await asyncio.sleep(1)
        assert trio.record().isr_ids == [1]
        await trio.fetch_as(2, 1)
        await trio.until(lambda: trio.record().isr_ids == [1, 2])
        await trio.until(lambda: trio.broker(1).isr_updates.expands)
        assert (trio.broker(1).isr_updates.shrinks, trio.broker(1).isr_updates.expands) == (1, 1)

    play(scenario)


def test_t6_11_a_fenced_member_holds_the_high_watermark_until_the_record_without_it_is_committed() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([2, 1, 3])
        await all_caught_up(trio, 2, 1, 3)
        gone = next(n for n in (1, 3) if n != trio.controller_id)
        other = 4 - gone
        trio.world.nodes[gone - 1].kill()
        waiting = produced(await trio.client(2))
        partition = trio.partition(2)
        await trio.until(lambda: partition.log_end_offset == 1)
        while not waiting.done():
            await trio.fetch_as(other, 2)
            assert partition.leadership is not None
            if partition.high_watermark:
                assert gone not in partition.leadership.record.isr_ids
            await asyncio.sleep(0.05)
        assert await waiting == 0
        assert trio.record().isr_ids == [2, other]

    play(scenario)


def test_a_registration_that_is_replaced_at_once_costs_nobody_the_isr() -> None:
    async def scenario(trio: Trio) -> None:
        follower = next(n for n in (2, 3) if n != trio.controller_id)
        leader = next(n for n in (1, 2, 3) if n not in (follower, trio.controller_id))
        await trio.topic([leader, follower])
        await all_caught_up(trio, leader, follower)
        await trio.restart(follower)
        await asyncio.sleep(1)
        assert follower in trio.record().isr_ids
        assert trio.broker(leader).isr_updates.shrinks == 0

    play(scenario)


async def one_member(trio: Trio, leader: int, follower: int, settings: Mapping[str, str] | None = None) -> None:
    """A partition whose follower has left the ISR."""
    await trio.topic([leader, follower], settings=settings)
    client = await trio.client(leader)
    await client.produce(records_of(), acks=1)
    await trio.until(lambda: trio.record(at=leader).isr_ids == [leader])


def leader_and_follower(trio: Trio) -> tuple[int, int]:
    """Neither is the controller."""
    leader, follower = (n for n in (1, 2, 3) if n != trio.controller_id)
    return leader, follower


def test_t6_12_what_is_only_proposed_does_not_make_enough_replicas() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = leader_and_follower(trio)
        await one_member(trio, leader, follower, TWO)
        client = await trio.client(leader)
        assert (await client.produce(records_of())).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        trio.world.network.cut(f"node{leader}", f"node{trio.controller_id}")
        await trio.fetch_as(follower, leader)
        leadership = trio.partition(leader).leadership
        assert leadership is not None
        await trio.until(lambda: leadership.is_pending)
        assert leadership.maximal_isr == {leader, follower}
        assert (await client.produce(records_of())).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert trio.partition(leader).high_watermark == 0
        trio.world.network.heal_all()
        await trio.until(lambda: trio.record(at=leader).isr_ids == [leader, follower])
        waiting = produced(client)
        await trio.until(lambda: trio.partition(leader).log_end_offset == 2)
        await trio.fetch_as(follower, leader)
        assert await waiting == 0

    play(scenario)


def test_what_was_appended_before_the_isr_shrank_is_not_acknowledged_as_safe() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = leader_and_follower(trio)
        await trio.topic([leader, follower], settings=TWO)
        await all_caught_up(trio, leader, follower)
        client = await trio.client(leader)
        waiting = produced(client, timeout_ms=100_000)
        await trio.until(lambda: trio.record().isr_ids == [leader])
        epoch = trio.record().partition_epoch
        await asyncio.sleep(20)
        assert not waiting.done()  # the high watermark is frozen
        assert trio.record().partition_epoch == epoch  # and nobody is thrown out and taken back in a loop
        assert await waiting == ErrorCode.REQUEST_TIMED_OUT

    play(scenario)


def test_t6_13_after_an_unclean_election_a_second_replica_joins() -> None:
    async def scenario(trio: Trio) -> None:
        await one_member(trio, 2, 3, {"unclean.leader.election.enable": "true"})
        if trio.controller_id == 2:
            trio.world.nodes[1].kill()
            await trio.until(lambda: any(trio._decides(n) for n in (1, 3)), 30)
        else:
            trio.world.nodes[1].kill()
        await trio.leads(3)
        await trio.until(lambda: not trio.record().recovering)
        assert trio.record().isr_ids == [3] and trio.record().leader == 3
        trio.world.nodes[1].start()
        await trio.until(lambda: 2 in trio.broker(3).image.brokers)
        await trio.until(lambda: trio.world.nodes[1].is_serving)
        await trio.fetch_as(2, 3)
        await trio.until(lambda: trio.record().isr_ids == [3, 2])

    play(scenario)


def test_t6_14_a_change_of_which_no_record_comes_is_looked_up_in_the_store() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = leader_and_follower(trio)
        await one_member(trio, leader, follower)
        trio.store(leader).hold_watch()
        await trio.fetch_as(follower, leader)
        leadership = trio.partition(leader).leadership
        assert leadership is not None
        began_s = trio.world.loop.now_s
        await trio.until(lambda: leadership.record.isr_ids == [leader, follower])
        assert trio.record(at=leader).isr_ids == [leader]
        assert 9 < trio.world.loop.now_s - began_s < 13
        assert not leadership.is_pending
        trio.store(leader).hold_watch(False)
        await trio.until(lambda: trio.record(at=leader).isr_ids == [leader, follower])

    play(scenario)


def test_t6_14_a_proposal_that_got_lost_is_sent_again() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = leader_and_follower(trio)
        await one_member(trio, leader, follower)
        controller = trio.broker(trio.controller_id).controller

        async def forgetful(
            broker_id: int, broker_epoch: int, proposals: Sequence[Proposal]
        ) -> ErrorCode | list[PartitionRecord | ErrorCode]:
            del broker_id, broker_epoch
            return [trio.record() for _ in proposals]

        with patch.object(controller, "alter_partitions", forgetful):
            await trio.fetch_as(follower, leader)
            await asyncio.sleep(2)
        assert trio.record().isr_ids == [leader]
        began_s = trio.world.loop.now_s
        await trio.until(lambda: trio.record().isr_ids == [leader, follower])
        assert trio.world.loop.now_s - began_s < 11

    play(scenario)


def test_t6_23_a_refused_member_holds_the_high_watermark_until_the_resumed_record_and_is_not_proposed_in_a_loop() -> (
    None
):
    async def scenario(trio: Trio) -> None:
        leader, follower = leader_and_follower(trio)
        await one_member(trio, leader, follower)
        controller = trio.broker(trio.controller_id).controller
        real = controller.alter_partitions
        refused: list[float] = []
        resumed: list[float] = []

        async def picky(
            broker_id: int, broker_epoch: int, proposals: Sequence[Proposal]
        ) -> ErrorCode | list[PartitionRecord | ErrorCode]:
            (proposal,) = proposals
            partition = trio.partition(leader)
            if not proposal.resume:
                refused.append(trio.world.loop.now_s)
                return [ErrorCode.INELIGIBLE_REPLICA]
            assert partition.leadership is not None and follower in partition.leadership.maximal_isr
            resumed.append(trio.world.loop.now_s)
            return await real(broker_id, broker_epoch, proposals)

        epoch_before = trio.record().partition_epoch
        with patch.object(controller, "alter_partitions", picky):
            for _ in range(100):
                await trio.fetch_as(follower, leader)
                await asyncio.sleep(0.05)
        assert 3 <= len(refused) <= 6 and abs(len(refused) - len(resumed)) <= 1
        assert all(after - before >= 1 for before, after in pairwise(refused))
        assert trio.record().partition_epoch - epoch_before == len(resumed)
        await trio.fetch_as(follower, leader)
        await trio.until(lambda: trio.record().isr_ids == [leader, follower])

    play(scenario)


def test_a_fetch_of_an_earlier_registration_counts_for_nothing() -> None:
    """T6-4."""

    async def scenario(trio: Trio) -> None:
        leader, follower = leader_and_follower(trio)
        await one_member(trio, leader, follower)
        old_epoch = trio.broker(leader).image.brokers[follower].epoch
        await trio.restart(follower)
        await trio.until(lambda: trio.broker(leader).image.brokers[follower].epoch != old_epoch)
        answer = await trio.fetch_as(follower, leader, broker_epoch=old_epoch)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await asyncio.sleep(2)
        assert trio.record().isr_ids == [leader]

    play(scenario)


def test_a_leader_whose_registration_is_gone_leads_nothing_until_it_has_another() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = leader_and_follower(trio)
        await one_member(trio, leader, follower)
        epoch = trio.record().leader_epoch
        broker = trio.broker(leader)
        lease = broker.controller.registration.lease
        assert lease is not None
        trio.world.data.revoke(lease.id)
        trio.store(follower).wake_watches()
        await trio.until(lambda: trio.record().leader_epoch > epoch)
        await trio.leads(leader)
        client = await trio.client(leader)
        assert (await client.produce(records_of(), acks=1)).error_code == 0
        member = next(m for m in trio.record().isr if m.broker_id == leader)
        assert member.broker_epoch == broker.controller.registration.epoch

    play(scenario)


def test_a_leader_that_hears_of_the_end_of_its_registration_from_the_controller_leads_nothing_until_the_next() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = leader_and_follower(trio)
        await one_member(trio, leader, follower)
        partition = trio.partition(leader)
        controller = trio.broker(trio.controller_id).controller

        async def stale(*_: object) -> ErrorCode:
            return ErrorCode.STALE_BROKER_EPOCH

        with patch.object(controller, "alter_partitions", stale):
            await trio.fetch_as(follower, leader)
            await trio.until(lambda: not partition.is_leading)
        client = await trio.client(leader)
        await asyncio.sleep(2)
        assert (await client.produce(records_of(), acks=1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        lease = trio.broker(leader).controller.registration.lease
        assert lease is not None
        trio.world.data.revoke(lease.id)
        await trio.leads(leader)
        assert (await client.produce(records_of(), acks=1)).error_code == 0

    play(scenario)


def test_deletion_of_records_waits_for_the_replicas_that_are_there() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2])
        client = await trio.client(1)
        await client.produce(records_of([b"a", b"b", b"c"]), acks=1)
        await trio.fetch_as(2, 1)
        deleting = asyncio.create_task(delete_records(client, 2))
        await asyncio.sleep(0.2)
        assert not deleting.done() and trio.partition(1).log_start_offset == 2
        await trio.fetch_as(2, 1, log_start=2)
        assert await deleting == [(0, 2)]
        late = await delete_records(client, 3)
        assert late == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
        assert trio.partition(1).log_start_offset == 3 and not trio.broker(1).commits.follower_waits.get(
            trio.partition(1)
        )

    play(scenario)


def test_produce_requests_for_partitions_elsewhere_are_told_where() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2], [2, 1])
        client = await trio.client(3)
        await trio.until(lambda: TOPIC in trio.broker(3).image.topics)
        for partition, leader in ((0, 1), (1, 2)):
            answer = await client.send(records_of(), partition)
            (part,) = answer.responses[0].partition_responses
            assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert part.current_leader is not None and part.current_leader.leader_id == leader
            assert [endpoint.node_id for endpoint in answer.node_endpoints] == [leader]
        fetched = await client.fetch(0, 1)
        assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetched.current_leader is not None and fetched.current_leader.leader_id == 2
        assert (await client.produce(records_of(), 2)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scenario)
