"""Tgrp-2: the coordinator dies in each state of a group. Members go on with the next one, offsets are there."""

import asyncio

import pytest

from headrace.core.group_effects import GroupState
from headrace.core.internal_topics import CONSUMER_OFFSETS
from headrace.errors import ErrorCode
from headrace.wire.messages.elections import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tests.broker.grouped import (
    GROUP,
    SETTINGS,
    Group,
    Member,
    comes_to,
    coordinator_of,
    copies_of,
    group_at,
    is_coordinating,
    settled,
    stable,
)
from tests.broker.trio import Scenario, Trio, play

NONE = ErrorCode.NONE


def run(scenario: Scenario, **settings: str) -> None:
    async def main(trio: Trio) -> None:
        await trio.topic([1], [2], [3])
        await coordinator_of(trio)
        await trio.until(lambda: len(copies_of(trio)) == 3)
        await scenario(trio)

    play(main, {**SETTINGS, **settings}, replicates=True)


async def kill(trio: Trio) -> int:
    """The coordinator; another serves when this returns."""
    node_id = await coordinator_of(trio)
    trio.world.nodes[node_id - 1].kill()
    await coordinator_of(trio)
    return node_id


def test_members_of_a_stable_group_go_on_as_if_nothing_had_happened() -> None:
    async def scenario(trio: Trio) -> None:
        first, second = await stable(trio, 2)
        await first.commit({0: 5}, member=first)
        generation = first.generation
        await kill(trio)
        assert await settled(first.beat) == await settled(second.beat) == NONE
        assert group_at(trio).state is GroupState.STABLE
        assert await first.committed(0) == [(NONE, 5)]
        assert await first.commit({0: 6}, member=first) == [NONE]
        assert await second.sync() == NONE and second.assignment == second.member_id.encode()
        assert group_at(trio).generation == generation

    run(scenario)


def test_members_that_do_not_come_to_the_new_coordinator_expire_there() -> None:
    async def scenario(trio: Trio) -> None:
        first, second = await stable(trio, 2)
        await kill(trio)
        for _ in range(4):
            assert await settled(first.beat) in (NONE, ErrorCode.REBALANCE_IN_PROGRESS)
            await asyncio.sleep(4)
        assert await settled(first.beat) == ErrorCode.REBALANCE_IN_PROGRESS
        assert list(group_at(trio).members) == [first.member_id]
        assert await settled(second.beat) == ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario)


def test_a_rebalance_that_was_under_way_begins_anew() -> None:
    """The new coordinator knows the generation before, and of nobody who waited."""

    async def scenario(trio: Trio) -> None:
        first, second = await stable(trio, 2)
        third = Member(trio)
        waiting = asyncio.create_task(settled(third.join))
        await trio.until(lambda: group_at(trio).state is GroupState.PREPARING)
        await kill(trio)
        joins = [asyncio.create_task(settled(member.join)) for member in (first, second)]
        codes = [await join for join in joins]
        assert codes[1] == NONE, "a follower with the same subscription hears the old generation"
        if await waiting == ErrorCode.UNKNOWN_MEMBER_ID:
            third.member_id = ""
            waiting = asyncio.create_task(settled(third.join))
        await trio.until(lambda: group_at(trio).state is GroupState.PREPARING)
        joins = [asyncio.create_task(settled(member.join)) for member in (first, second)]
        assert [await join for join in (*joins, waiting)] == [NONE] * 3
        assert len({member.generation for member in (first, second, third)}) == 1

    run(scenario)


def test_an_assignment_that_was_told_to_nobody_is_worth_nothing_and_one_that_was_told_is_kept() -> None:
    async def scenario(trio: Trio) -> None:
        first, second = await stable(trio, 2)
        leading = asyncio.create_task(first.join())
        await trio.until(lambda: group_at(trio).state is GroupState.PREPARING)
        assert await second.join() == await leading == NONE
        assert group_at(trio).state is GroupState.COMPLETING
        generation = first.generation
        await kill(trio)
        # The log knows the generation before, in which everybody had a part.
        assert await settled(first.beat) == ErrorCode.ILLEGAL_GENERATION
        assert group_at(trio).generation == generation - 1
        leading = asyncio.create_task(settled(first.join))
        await trio.until(lambda: group_at(trio).state is GroupState.PREPARING)
        assert await settled(second.join) == await leading == NONE
        assert first.generation == second.generation == generation

    run(scenario)


def test_a_group_that_everybody_has_left_is_empty_at_the_next_coordinator_too() -> None:
    async def scenario(trio: Trio) -> None:
        (member,) = await stable(trio)
        await member.commit({0: 5}, member=member)
        await member.leave()
        await trio.until(lambda: group_at(trio).state is GroupState.EMPTY)
        await asyncio.sleep(1)
        await kill(trio)
        group = group_at(trio)
        assert (group.state, group.generation) == (GroupState.EMPTY, 2)
        assert await member.committed(0) == [(NONE, 5)]

    run(scenario)


def test_a_static_member_that_restarts_at_the_next_coordinator_causes_no_rebalance() -> None:
    """Tgrp-3, through a change of coordinators; KAFKA-10284: the swap before it is known there."""

    async def scenario(trio: Trio) -> None:
        (old,) = await stable(trio, instance_id="static")
        back = Member(trio, instance_id="static")
        assert await back.join() == NONE and await back.sync() == NONE
        await kill(trio)
        assert await settled(back.beat) == NONE
        assert await settled(old.beat) == ErrorCode.FENCED_INSTANCE_ID
        again = Member(trio, instance_id="static")
        assert await settled(again.join) == NONE
        assert again.generation == old.generation and await again.sync() == NONE
        assert again.assignment == old.member_id.encode()

    run(scenario)


def test_nobody_is_told_of_an_offset_that_could_still_be_lost() -> None:
    async def scenario(trio: Trio) -> None:
        group = Group(trio)
        assert await group.commit({0: 5}) == [NONE]
        node_id = await coordinator_of(trio)
        for other in {1, 2, 3} - {node_id}:
            trio.world.network.cut(f"node{other}", f"node{node_id}")
            trio.world.network.cut(f"node{node_id}", f"node{other}")
        assert await group.commit({0: 6}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE], "nobody else has it in 5 seconds"
        assert (await group.committed(0))[0][1] != 6

    run(scenario)


def test_a_commit_that_took_too_long_counts_when_it_is_committed_after_all() -> None:
    async def scenario(trio: Trio) -> None:
        group = Group(trio)
        assert await group.commit({0: 5}) == [NONE]
        node_id = await coordinator_of(trio)
        for other in {1, 2, 3} - {node_id}:
            trio.world.network.cut(f"node{other}", f"node{node_id}")
        assert await group.commit({0: 6}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        trio.world.network.heal_all()
        await comes_to([(0, 6)], lambda: group.committed(0))

    run(scenario)


def test_others_than_the_coordinator_say_so() -> None:
    async def scenario(trio: Trio) -> None:
        member = (await stable(trio))[0]
        node_id = await coordinator_of(trio)
        other = Member(trio)
        other.member_id, other.generation = member.member_id, member.generation
        other._client = await trio.client(1 + node_id % 3)
        assert await other.beat() == ErrorCode.NOT_COORDINATOR
        assert await other.commit({0: 1}, member=other) == [ErrorCode.NOT_COORDINATOR]
        assert await other.committed(0) == [(ErrorCode.NOT_COORDINATOR, -1)]
        other.member_id = ""
        assert await other.join() == ErrorCode.NOT_COORDINATOR

    run(scenario)


@pytest.mark.parametrize("waits_in", ["join", "sync"])
def test_a_coordinator_that_moves_sends_whoever_waits_to_the_next(waits_in: str) -> None:
    async def scenario(trio: Trio) -> None:
        first, second = await stable(trio, 2)
        waiting = asyncio.create_task(first.join())
        await trio.until(lambda: group_at(trio).state is GroupState.PREPARING)
        if waits_in == "sync":
            assert await second.join() == await waiting == NONE
            waiting = asyncio.create_task(second.sync())
            await trio.until(lambda: any(m.syncing for m in group_at(trio).members.values()))
        node_id = await coordinator_of(trio)
        await move(trio, node_id)
        assert await waiting == ErrorCode.NOT_COORDINATOR
        assert not is_coordinating(trio, node_id)

    run(scenario)


async def move(trio: Trio, from_id: int) -> None:
    """To the preferred replica if that is another, by way of a restart if not."""
    record = trio.record(name=CONSUMER_OFFSETS)
    if record.replicas[0] == from_id:
        node = trio.world.nodes[from_id - 1]
        assert node.node is not None
        broker = trio.broker(from_id)
        broker.roles.resign()
        return
    client = await trio.client(trio.controller_id)
    named = [TopicPartitions(topic=CONSUMER_OFFSETS, partitions=[0])]
    asked = ElectLeadersRequest(election_type=0, topic_partitions=named, timeout_ms=20_000)
    await client.ask(asked, ElectLeadersResponse)


def test_loading_is_told_while_it_lasts_and_everything_is_there_afterwards() -> None:
    """Tgrp-8, with fewer of them."""

    async def scenario(trio: Trio) -> None:
        names = [f"group {number}" for number in range(20)]
        for name in names:
            for round_ in range(5):
                assert await Group(trio, name).commit({index: 10 * round_ + index for index in range(3)}) == [0] * 3
        node_id = await coordinator_of(trio)
        trio.world.nodes[node_id - 1].kill()
        await coordinator_of(trio)
        for name in names:
            assert await Group(trio, name).committed(0, 1, 2) == [(NONE, 40 + index) for index in range(3)]

    run(scenario)


def test_until_everything_is_committed_the_new_coordinator_says_that_it_loads() -> None:
    async def scenario(trio: Trio) -> None:
        group = Group(trio)
        assert await group.commit({0: 5}) == [NONE]
        old = await coordinator_of(trio)
        others = sorted({1, 2, 3} - {old})
        # Whoever leads next hears from no follower, so that it cannot know what is committed.
        trio.world.nodes[old - 1].kill()
        for one in others:
            for other in (1, 2, 3):
                if one != other:
                    trio.world.network.cut(f"node{one}", f"node{other}")
        await trio.until(lambda: any(trio.broker(n).groups.log.is_loading for n in others))
        (new,) = [n for n in others if trio.broker(n).groups.log.is_loading]
        assert trio.broker(new).groups.find(GROUP) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        trio.world.network.heal_all()
        await trio.until(lambda: is_coordinating(trio, new) or any(is_coordinating(trio, n) for n in others))
        assert await group.committed(0) == [(NONE, 5)]

    run(scenario)
