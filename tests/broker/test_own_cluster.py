"""Ownership when leaders, controllers, leases and the store change. Virtual time. Scenarios by their ids."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.errors import ErrorCode
from headrace.metadata import records
from headrace.metadata.memory import Fault
from tests.broker.asking import records_of
from tests.broker.owning import (
    DAY_MS,
    DENIED,
    FENCED,
    FIRST,
    GROUP,
    IF_UNOWNED,
    ME,
    NOT_HERE,
    OTHER,
    STALE,
    owner_at,
)
from tests.broker.test_step_down import ask_to_step_down
from tests.broker.trio import Trio, play

KEEP: dict[str, Any] = {"retain_ms": DAY_MS, "holder": ME}
GATED = {"own.produce.group": GROUP, "own.fetch.group": GROUP}


def run(scenario: Any, **more: Any) -> None:
    play(scenario, replicates=True, **more)


async def led_by(trio: Trio, *nodes: int, settings: dict[str, str] | None = None) -> int:
    """The first of them leads, and is not the controller unless all are asked for."""
    await trio.topic(list(nodes), at=nodes[0], settings={"min.insync.replicas": "1", **(settings or {})})
    await trio.until(lambda: set(trio.record().isr_ids) == set(nodes))
    return nodes[0]


def others(trio: Trio) -> tuple[int, int]:
    """Nodes that are not the controller."""
    first, second = (n for n in (1, 2, 3) if n != trio.controller_id)
    return first, second


async def moved(trio: Trio, to: int) -> None:
    await trio.move_to(to)


def test_a_claim_at_the_wrong_node_names_the_leader() -> None:
    """Town-13."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new)
        at_new = await owner_at(trio, new)
        claimed = await at_new.claim()
        assert claimed.error_code == NOT_HERE and claimed.leader is not None
        assert (claimed.leader.id, claimed.leader.epoch) == (old, trio.record().leader_epoch)
        at_old = await owner_at(trio, old)
        assert await at_old.granted() == 1
        await moved(trio, new)
        claimed = await at_old.claim()
        assert claimed.error_code == NOT_HERE and claimed.leader is not None and claimed.leader.id == new
        assert await at_new.granted(1) == 1

    run(scenario)


def test_a_move_drops_ownerships_tells_of_it_and_cuts_nobody() -> None:
    """Town-22, Town-30: within 100 ms; the resume brings the same generation and a new fence, however often."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new, settings=GATED)
        await trio.topic([old], at=old, name="other")
        first = await owner_at(trio, old)
        await first.own((FIRST, 1), ("other-0", 1), **KEEP)
        await first.produce(records_of([b"a", b"b"]))
        waiting = first.send_own(wait_ms=60_000)
        await trio.until(lambda: trio.partition(new).high_watermark == 2)
        await moved(trio, new)
        moved_s = trio.world.loop.now_s
        held = await waiting
        assert trio.world.loop.now_s - moved_s < 0.1
        assert [r.resource for r in held.resources] == ["other-0"]
        assert (await first.produce()).error_code == NOT_HERE
        back = await owner_at(trio, new)
        assert (await back.produce()).error_code == NOT_HERE
        for _ in range(2):
            resumed = await back.resume(1)
            assert (resumed.error_code, resumed.generation, resumed.fence_offset) == (0, 1, 2)
        assert (await back.produce()).error_code == 0
        again = await owner_at(trio, new)
        resumed = await again.resume(1)
        assert (resumed.error_code, resumed.generation, resumed.fence_offset) == (0, 1, 3)

    run(scenario)


def test_a_kept_generation_refuses_lower_ones_at_the_next_leader() -> None:
    """Town-8, Town-32, Town-37 across leaders."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new)
        a, b = await owner_at(trio, old), await owner_at(trio, old)
        assert await a.granted(**KEEP) == 1
        assert await b.granted(1) == 2
        await moved(trio, new)
        a, b, c = [await owner_at(trio, new) for _ in range(3)]
        assert await a.refused(1) == 2
        assert (await a.resume(1)).error_code == STALE
        assert await b.granted(0) == 1
        assert (await c.resume(2)).error_code == STALE
        await moved(trio, old)
        zombie = await owner_at(trio, old)
        assert (await zombie.resume(2)).error_code == STALE
        assert await zombie.granted(2) == 3

    run(scenario)


def test_a_leader_that_stepped_down_and_resumes_begins_without_owners() -> None:
    """Town-30, Town-33."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new, settings=GATED)
        first = await owner_at(trio, old)
        await first.granted(**KEEP)
        waiting = first.send_own(wait_ms=60_000)
        admin = await trio.client(old)
        assert await ask_to_step_down(trio, admin, old) == 0
        assert (await waiting).resources == []
        assert (await first.claim(1)).error_code == NOT_HERE
        await trio.until(lambda: not trio.partition(old).error)
        assert trio.record().leader == old
        displaced = await owner_at(trio, old)
        assert (await displaced.produce()).error_code == NOT_HERE
        assert (await displaced.fetch(0)).error_code == NOT_HERE
        assert (await displaced.fetch(0, replica_id=-2)).error_code == NOT_HERE
        assert (await first.resume(1)).generation == 1
        assert (await first.produce()).error_code == 0
        assert (await displaced.produce()).error_code == FENCED

    run(scenario)


def test_an_exclusive_claim_that_is_kept_gates_at_the_next_leader() -> None:
    """Town-42."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new)
        first = await owner_at(trio, old)
        await first.granted(exclusive=3, **KEEP)
        await moved(trio, new)
        stranger, back = await owner_at(trio, new), await owner_at(trio, new)
        assert (await stranger.produce()).error_code == NOT_HERE
        assert (await stranger.fetch(0)).error_code == NOT_HERE
        assert (await back.resume(1)).error_code == 0
        assert (await stranger.produce()).error_code == FENCED
        assert (await stranger.fetch(0)).error_code == DENIED
        assert (await back.own((FIRST, 1), op=1)).resources[0].error_code == 0
        assert (await stranger.produce()).error_code == 0

    run(scenario)


def test_a_higher_token_wins_at_the_next_leader_in_either_order() -> None:
    """Town-19, Town-39."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new)
        lower, higher = f"own--{GROUP}--1--a", f"own--{GROUP}--2--b"
        assert (await (await owner_at(trio, old, lower)).produce()).error_code == 0
        assert (await (await owner_at(trio, old, higher)).produce()).error_code == 0
        await moved(trio, new)
        assert (await (await owner_at(trio, new, lower)).produce()).error_code == FENCED
        assert (await (await owner_at(trio, new, higher)).produce()).error_code == 0
        await moved(trio, old)
        assert (await (await owner_at(trio, old, higher)).produce()).error_code == 0
        assert (await (await owner_at(trio, old, lower)).produce()).error_code == FENCED
        assert (await (await owner_at(trio, old, f"own--{GROUP}--2--c")).produce()).error_code == FENCED

    run(scenario)


def test_a_displaced_reader_that_goes_to_a_follower_gets_nothing() -> None:
    """Town-29."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new, settings=GATED)
        first = await owner_at(trio, old)
        await first.granted()
        await first.produce()
        reader = await owner_at(trio, new)
        for replica_id in (-1, -2):
            assert (await reader.fetch(0, replica_id=replica_id)).error_code == NOT_HERE

    run(scenario)


@pytest.mark.parametrize("is_followed", [False, True])
def test_an_isolated_leader_answers_no_grant_and_serves_nothing_gated_after_its_lease(is_followed: bool) -> None:
    """Town-20, Town-34, T6-10: its owners are cut before another leads; also where followers still fetch from it."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new, trio.controller_id, settings=GATED)
        first, late = await owner_at(trio, old), await owner_at(trio, old)
        await first.granted(**KEEP)
        await first.produce(records_of([b"a"]))
        network = trio.world.network
        trio.store(old).unavailable = True
        for other in (1, 2, 3):
            if other != old and not is_followed:
                network.cut(f"node{old}", f"node{other}")
                network.cut(f"node{other}", f"node{old}")
        await trio.until(lambda: first.peer.closed)
        assert trio.record().leader == old, "nobody leads yet"
        assert not trio.broker(old).controller.lease_valid()
        claimed = await late.claim(9)
        assert claimed.error_code == NOT_HERE
        assert (await late.produce()).error_code == NOT_HERE
        assert (await late.fetch(0)).error_code == NOT_HERE
        await trio.until(lambda: trio.record().leader not in (old, -1))
        leader = trio.record().leader
        await trio.leads(leader)
        back = await owner_at(trio, leader)
        assert (await back.resume(1)).generation == 1
        assert (await late.produce()).error_code == NOT_HERE

    run(scenario)


def test_a_standby_lets_the_owner_come_back_after_a_change_of_leaders() -> None:
    """Town-46; and Town-35: where the leader moved away the standby is told."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new)
        first, standby = await owner_at(trio, old), await owner_at(trio, old)
        await first.granted(**KEEP)
        waiting = standby.send_own((FIRST, 0), op=IF_UNOWNED, wait_ms=60_000)
        await moved(trio, new)
        told = (await waiting).resources[0]
        assert told.error_code == NOT_HERE and told.leader is not None and told.leader.id == new
        standby, back = await owner_at(trio, new), await owner_at(trio, new)
        waiting = standby.send_own((FIRST, 0), op=IF_UNOWNED, wait_ms=60_000)
        await asyncio.sleep(0.3)
        assert (await back.resume(1)).error_code == 0
        await asyncio.sleep(2)
        assert not waiting.done()
        back.peer.close()
        closed_s = trio.world.loop.now_s
        granted = (await waiting).resources[0]
        assert (granted.error_code, granted.generation) == (0, 2)
        assert trio.world.loop.now_s - closed_s < 0.1

    run(scenario)


def test_a_standby_is_granted_soon_when_the_owner_is_dead_too() -> None:
    """Town-46."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new)
        first = await owner_at(trio, old)
        await first.granted(**KEEP)
        await moved(trio, new)
        first.peer.close()
        began_s = trio.world.loop.now_s
        standby = await owner_at(trio, new)
        short = await owner_at(trio, new)
        assert await short.refused(1, op=IF_UNOWNED, wait_ms=100) == 1
        granted = await standby.claim(0, op=IF_UNOWNED, wait_ms=60_000)
        assert (granted.error_code, granted.generation) == (0, 2)
        assert trio.world.loop.now_s - began_s < 1.2

    run(scenario)


def test_names_are_for_the_controller() -> None:
    """Town-40: elsewhere 16 and whom to ask; the next controller starts empty, and a resume keeps the generation."""

    async def scenario(trio: Trio) -> None:
        boss = trio.controller_id
        elsewhere = next(n for n in (1, 2, 3) if n != boss)
        asker = await owner_at(trio, elsewhere)
        told = await asker.claim(1, "the name")
        assert told.error_code == ErrorCode.NOT_COORDINATOR and told.leader is not None
        assert (told.leader.id, told.leader.epoch) == (boss, -1)
        first = await owner_at(trio, boss)
        assert await first.granted(1, "the name", **KEEP) == 1
        second = await owner_at(trio, boss)
        assert await second.granted(1, "another") == 1
        trio.world.nodes[boss - 1].kill()
        await trio.until(lambda: any(trio._decides(n) for n in (1, 2, 3) if n != boss))
        back = await owner_at(trio, trio.controller_id)
        assert (await back.resume(1, "the name", holder=OTHER)).error_code == STALE
        assert (await back.resume(1, "the name")).generation == 1
        assert await back.granted(1, "another") == 1

    run(scenario)


def test_a_controller_that_is_cut_off_stops_to_grant_names_before_another_begins() -> None:
    """Town-40."""

    async def scenario(trio: Trio) -> None:
        boss = trio.controller_id
        first = await owner_at(trio, boss)
        await first.granted(1, "the name", **KEEP)
        trio.store(boss).unavailable = True
        await trio.until(lambda: first.peer.closed)
        late = await owner_at(trio, boss)
        assert (await late.claim(5, "the name")).error_code == ErrorCode.NOT_COORDINATOR
        assert not any(trio._decides(n) for n in (1, 2, 3) if n != boss)
        await trio.until(lambda: any(trio._decides(n) for n in (1, 2, 3) if n != boss))

    run(scenario)


def test_under_the_minimum_of_replicas_a_takeover_touches_nothing() -> None:
    """Town-38."""

    async def scenario(trio: Trio) -> None:
        leader, follower = others(trio)
        await trio.topic([leader, follower], at=leader, settings={"min.insync.replicas": "2"})
        first, second = await owner_at(trio, leader), await owner_at(trio, leader)
        await trio.fetch_as(follower, leader)
        await first.granted()
        await trio.move_to(leader, isr=[leader])
        assert (await first.produce(acks=1)).error_code == 0
        claimed = await second.claim(1)
        assert (claimed.error_code, claimed.generation) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert await first.lives()

    play(scenario)


def test_a_paused_member_of_the_isr_delays_a_claim_whose_number_wins_when_it_is_presented_again() -> None:
    """Town-38; and Town-41: a second claim gets the first one's answer, and the taker's own requests wait with it."""

    async def scenario(trio: Trio) -> None:
        leader, follower = others(trio)
        settings = {"min.insync.replicas": "1", "own.produce.group": GROUP}
        await trio.topic([leader, follower], at=leader, settings=settings)
        await trio.fetch_as(follower, leader)
        first, second = await owner_at(trio, leader), await owner_at(trio, leader, "taker")
        data = await owner_at(trio, leader, "taker's data")
        assert await first.granted(**KEEP) == 1
        first.send(acks=-1).add_done_callback(lambda f: f.exception())
        await trio.until(lambda: trio.partition(leader).log_end_offset == 1)
        began_s = trio.world.loop.now_s
        one = second.send_own((FIRST, 1), bind_client_id="taker's data")
        two = second.send_own((FIRST, 1))
        await trio.until(lambda: first.peer.closed)
        waiting = data.send(acks=1)
        answers = [(await sent).resources[0] for sent in (one, two)]
        assert [(a.error_code, a.generation) for a in answers] == [(ErrorCode.REQUEST_TIMED_OUT, 2)] * 2
        assert 4.9 < trio.world.loop.now_s - began_s < 5.5
        assert (await waiting).responses[0].partition_responses[0].error_code == NOT_HERE
        third = second.send_own((FIRST, 2), bind_client_id="taker's data")
        await trio.until(lambda: trio.broker(leader).ownership.metrics.owned)
        waiting = data.send(acks=1)
        await asyncio.sleep(0.1)
        assert not third.done() and not waiting.done()
        await trio.fetch_as(follower, leader)
        claimed = (await third).resources[0]
        assert (claimed.error_code, claimed.generation, claimed.fence_offset) == (0, 3, 1)
        assert (await waiting).responses[0].partition_responses[0].error_code == 0
        assert (await waiting).responses[0].partition_responses[0].base_offset == 1

    play(scenario)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_grant_of_a_new_leader_is_told_when_its_follower_has_asked_or_is_none_any_more(leaves: bool) -> None:
    """What the follower may have of another leader is gone then."""

    async def scenario(trio: Trio) -> None:
        leader, follower = others(trio)
        await trio.topic([leader, follower], at=leader, settings={"min.insync.replicas": "1"})
        client = await owner_at(trio, leader)
        claimed = client.send_own((FIRST, 1))
        await asyncio.sleep(1)
        assert not claimed.done()
        if leaves:
            await trio.move_to(leader, isr=[leader])
        else:
            await trio.fetch_as(follower, leader)
        began_s = trio.world.loop.now_s
        (result,) = (await claimed).resources
        assert (result.error_code, result.generation) == (0, 1)
        assert trio.world.loop.now_s - began_s < 0.1

    play(scenario)


def test_a_new_leader_epoch_of_the_same_leadership_keeps_owners() -> None:
    """Town-41."""

    async def scenario(trio: Trio) -> None:
        leader, follower = others(trio)
        await led_by(trio, leader, follower)
        first = await owner_at(trio, leader)
        await first.granted()
        epoch = trio.partition(leader).leader_epoch
        await trio.move_to(leader)
        await trio.until(lambda: trio.partition(leader).leader_epoch > epoch)
        held = await first.own()
        assert [(r.resource, r.generation) for r in held.resources] == [(FIRST, 1)]

    run(scenario)


def test_a_store_that_does_not_say_leaves_a_claim_in_doubt_until_the_next_one_settles_it() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = others(trio)
        await led_by(trio, leader, follower)
        first = await owner_at(trio, leader)
        store = trio.store(leader)
        store.faults.append(Fault.UNKNOWN_APPLIED)
        claimed = await first.claim(1, **KEEP)
        assert (claimed.error_code, claimed.generation) == (ErrorCode.REQUEST_TIMED_OUT, 1)
        assert (await first.resume(1)).error_code == 0
        other = await owner_at(trio, leader)
        store.faults.append(Fault.UNKNOWN_LATE)
        claimed = await other.claim(1, holder=OTHER)
        assert (claimed.error_code, claimed.generation) == (ErrorCode.REQUEST_TIMED_OUT, 2)
        assert await other.refused(1, holder=OTHER) == 2
        assert await other.granted(2, holder=OTHER) == 3
        assert store.apply_late() == [False]
        key = records.owned_key(GROUP, FIRST)
        assert [kv.key for kv in trio.world.data.load(key).kvs] == [key]

    run(scenario)


@pytest.mark.parametrize("fault", [Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_DROPPED])
def test_a_release_that_the_store_does_not_answer_leaves_the_owner_in_place(fault: Fault) -> None:
    """Others may write at once after a release: so it is none before the store has forgotten that they may not."""

    async def scenario(trio: Trio) -> None:
        leader, follower = others(trio)
        await led_by(trio, leader, follower)
        first, stranger = await owner_at(trio, leader), await owner_at(trio, leader)
        await first.granted(exclusive=3, **KEEP)
        trio.store(leader).faults.append(fault)
        (told,) = (await first.own((FIRST, 1), op=1)).resources
        assert (told.error_code, told.generation) == (ErrorCode.REQUEST_TIMED_OUT, 1)
        assert [r.resource for r in (await first.own()).resources] == [FIRST]
        assert (await first.produce()).error_code == 0
        assert (await stranger.produce()).error_code == FENCED
        assert (await first.own((FIRST, 1), op=1)).resources[0].error_code == 0
        assert (await stranger.produce()).error_code == 0

    run(scenario)


def test_a_leader_that_may_not_know_all_that_the_store_remembers_serves_nobody_yet() -> None:
    """The record that makes it leader came past the watch; in between another may have granted."""

    async def scenario(trio: Trio) -> None:
        leader, follower = others(trio)
        await led_by(trio, leader, follower)
        client = await owner_at(trio, leader)
        assert (await client.produce()).error_code == 0
        trio.store(leader).hold_watch()
        record = trio.record()
        again = replace(record, leader_epoch=record.leader_epoch + 2, partition_epoch=record.partition_epoch + 2)
        assert trio.write(again)
        trio.broker(leader).roles._on_read(trio.partition(leader), again)
        assert (await client.claim()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await client.produce()).error_code == NOT_HERE
        assert (await client.fetch(0)).error_code == NOT_HERE
        trio.store(leader).hold_watch(False)
        await trio.until(lambda: not trio.broker(leader).ownership.gates)
        assert (await client.produce()).error_code == 0
        assert (await client.claim()).error_code == 0

    run(scenario)
