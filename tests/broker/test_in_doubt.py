"""Writes and answers that get lost, come late or come twice, under clusters that replicate. Scenarios T6 and T7."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.controller.isr_changes import Proposal
from headrace.controller.moves import StepDown
from headrace.core.cluster import PartitionRecord
from headrace.errors import ErrorCode
from headrace.metadata.memory import Fault, MemoryStore
from headrace.net.peer import PeerLost
from tests.broker.asking import records_of
from tests.broker.test_cluster_life import Load
from tests.broker.test_isr_updates import leader_and_follower, one_member
from tests.broker.test_latest_offsets import certainly_dead
from tests.broker.test_step_down import elect
from tests.broker.trio import Trio, play

NODES = (1, 2, 3)
WRITES = 40
"""More than the scenario below needs."""

# To make a failure smaller takes minutes: a hunt has the time for it.
HUNTING = not settings().derandomize
PHASES = [phase for phase in Phase if HUNTING or phase not in (Phase.shrink, Phase.explain)]


async def elections_under_load(trio: Trio, faults: Sequence[Fault | None], late_ms: int) -> None:
    """Every node's store does these things to its writes, whoever decides. The acknowledged records are there then."""

    def opened(store: MemoryStore) -> None:
        store.delay_ms = trio.world.store_delay_ms
        store.late_ms = late_ms
        store.faults.extend(faults)

    def healed(store: MemoryStore) -> None:
        store.delay_ms = 1

    await trio.topic([1, 2, 3], settings={"min.insync.replicas": "2"})
    load = Load(trio, pause_s=0.05)
    loading = asyncio.create_task(load.run())
    await asyncio.sleep(0.5)
    trio.world.store_opened = opened  # type: ignore[method-assign]  # replaced on this world only, to spoil its stores
    for node in NODES:
        opened(trio.store(node))
    for deaf in (1, 2):
        victim = trio.record().leader
        if victim in NODES and trio.world.nodes[victim - 1].is_serving:
            # Whoever acknowledges what some of the ISR, or all of it, cannot have heard of is found out.
            for follower in [n for n in NODES if n != victim][:deaf]:
                trio.world.network.cut(f"node{victim}", f"node{follower}")
            await asyncio.sleep(0.4)
            certainly_dead(trio, victim)
            trio.world.network.heal_all()
            await asyncio.sleep(1)
            trio.world.nodes[victim - 1].start()
        await asyncio.sleep(3)
        with suppress(PeerLost, OSError):  # whoever is asked may not be there
            await asyncio.wait_for(elect(trio, 1), 20)
    trio.world.store_opened = healed  # type: ignore[method-assign]  # replaced again, by what spoils nothing
    for node in NODES:
        if trio.world.nodes[node - 1].store is not None:
            trio.store(node).faults.clear()
    await asyncio.sleep(late_ms / 1000)
    await trio.until(lambda: len(trio.record().isr) == 3)
    load.is_over = True
    await loading
    assert len(load.acked) > 20
    assert await load.is_all_there()


@pytest.mark.parametrize("fault", [Fault.UNKNOWN_LATE_BY_ITSELF, Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_DROPPED])
@pytest.mark.parametrize("first", range(0, WRITES // 4, 2))
def test_t6_8_a_write_in_doubt_loses_nothing_whichever_it_is(first: int, fault: Fault) -> None:
    """From the n-th on every fifth write of every node."""
    faults = [fault if n >= first and (n - first) % 5 == 0 else None for n in range(WRITES)]
    play(lambda trio: elections_under_load(trio, faults, 2_000), replicates=True)


doubts = st.lists(
    st.one_of(st.none(), st.sampled_from([f for f in Fault if f is not Fault.UNKNOWN_LATE])),
    min_size=1,
    max_size=WRITES,
)


@settings(max_examples=10, report_multiple_bugs=False, phases=PHASES)
@given(doubts, st.sampled_from([0, 5, 50, 500, 2_000, 5_000]))
def test_t6_8_any_writes_in_doubt_lose_nothing(faults: list[Fault | None], late_ms: int) -> None:
    """Also T6-2 and G1."""
    play(lambda trio: elections_under_load(trio, faults, late_ms), replicates=True)


Answer = ErrorCode | list[PartitionRecord | ErrorCode]


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("watch", [True, False])
def test_t6_3_a_lost_answer_leaves_nothing_pending(is_written: bool, watch: bool) -> None:
    """The proposal was written, or it was not; the leader hears of records, or only by asking the store."""

    async def scenario(trio: Trio) -> None:
        leader, follower = leader_and_follower(trio)
        await one_member(trio, leader, follower)
        controller = trio.broker(trio.controller_id).controller
        real = controller.alter_partitions
        lost = 0

        async def losing(broker_id: int, broker_epoch: int, proposals: Sequence[Proposal]) -> Answer:
            nonlocal lost
            lost += 1
            if lost > 1:
                return await real(broker_id, broker_epoch, proposals)
            if is_written:
                await real(broker_id, broker_epoch, proposals)
            trio.world.network.reset(f"node{leader}", f"node{trio.controller_id}")
            return [ErrorCode.REQUEST_TIMED_OUT] * len(proposals)  # nobody is there to read it

        if not watch:
            trio.store(leader).hold_watch()
        leadership = trio.partition(leader).leadership
        assert leadership is not None
        with patch.object(controller, "alter_partitions", losing):
            await trio.fetch_as(follower, leader)
            await trio.until(lambda: leadership.is_pending)
            await trio.until(lambda: not leadership.is_pending, 25)
        assert leadership.record.isr_ids == [leader, follower] == trio.record().isr_ids
        trio.store(leader).hold_watch(False)
        assert (await commits_with(trio, leader, follower)) == 0

    play(scenario)


async def commits_with(trio: Trio, leader: int, follower: int) -> int:
    """The code of a write that waits for both."""
    client = await trio.client(leader)
    writing = asyncio.create_task(client.produce(records_of()))
    end = trio.partition(leader).log_end_offset + 1
    await trio.until(lambda: trio.partition(leader).log_end_offset == end)
    assert not writing.done()
    await trio.fetch_as(follower, leader)
    return (await writing).error_code


def test_t6_3_answers_that_come_twice_or_too_late_change_nothing() -> None:
    """To an earlier proposal, the first time and again, after the next one was made."""

    async def scenario(trio: Trio) -> None:
        leader, follower = leader_and_follower(trio)
        await one_member(trio, leader, follower)
        partition = trio.partition(leader)
        leadership = partition.leadership
        assert leadership is not None
        controller = trio.broker(trio.controller_id).controller
        real = controller.alter_partitions
        kept: list[Answer] = []

        async def keeping(broker_id: int, broker_epoch: int, proposals: Sequence[Proposal]) -> Answer:
            kept.append(await real(broker_id, broker_epoch, proposals))
            return kept[-1] if len(kept) == 1 else kept[0]  # the first answer again and again

        with patch.object(controller, "alter_partitions", keeping):
            await trio.fetch_as(follower, leader)
            await trio.until(lambda: leadership.record.isr_ids == [leader, follower])
            client = await trio.client(leader)
            assert (await client.produce(records_of(), acks=1)).error_code == 0
            await trio.until(lambda: leadership.record.isr_ids == [leader] and not leadership.is_pending, 60)
            await trio.fetch_as(follower, leader)
            await trio.until(lambda: leadership.record.isr_ids == [leader, follower] and not leadership.is_pending)
        assert len(kept) == 3 and trio.record() == leadership.record
        assert await commits_with(trio, leader, follower) == 0

    play(scenario)


def test_t6_3_a_change_of_controllers_leaves_nothing_pending() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = leader_and_follower(trio)
        await one_member(trio, leader, follower)
        controller = trio.controller_id
        leadership = trio.partition(leader).leadership
        assert leadership is not None
        trio.world.network.cut(f"node{leader}", f"node{controller}")
        await trio.fetch_as(follower, leader)
        await trio.until(lambda: leadership.is_pending)
        await asyncio.sleep(1)
        assert leadership.is_pending
        certainly_dead(trio, controller)
        await trio.until(lambda: not leadership.is_pending)
        assert trio.record().isr_ids == [leader, follower] and trio.controller_id != controller
        assert await commits_with(trio, leader, follower) == 0

    play(scenario)


def test_t7_4_a_controller_killed_between_answer_and_move_leaves_a_leader_that_serves_again() -> None:
    async def scenario(trio: Trio) -> None:
        preferred, leader = leader_and_follower(trio)
        await trio.topic([preferred, leader])
        await trio.move_to(leader)
        await trio.fetch_as(preferred, leader)
        await trio.until(lambda: trio.record(at=trio.controller_id) == trio.record())
        record, rev = trio.record(), trio.rev()
        controller = trio.controller_id
        moves = trio.broker(controller).controller.moves
        real = moves.ask
        stepped_s = 0.0

        async def then_die(
            broker_id: int, controller_epoch: int, steps: Sequence[StepDown]
        ) -> Mapping[tuple[bytes, int], ErrorCode]:
            nonlocal stepped_s
            await real(broker_id, controller_epoch, steps)
            stepped_s = trio.world.loop.now_s
            certainly_dead(trio, controller)
            await asyncio.Event().wait()
            raise AssertionError("it is dead")

        moves.ask = then_die
        asking = asyncio.create_task(elect(trio, preferred))
        partition = trio.partition(leader)
        await trio.until(lambda: stepped_s)
        assert partition.error
        await trio.until(lambda: not partition.error)
        assert 4.9 < trio.world.loop.now_s - stepped_s < 5.5
        assert trio.record() == replace(record, partition_epoch=record.partition_epoch + 1)
        epochs = {"leader_epoch": record.leader_epoch + 1, "partition_epoch": record.partition_epoch + 1}
        assert not trio.write(replace(record, leader=preferred, **epochs), rev=rev)
        client = await trio.client(leader)
        assert (await client.produce(records_of(), acks=1)).error_code == 0
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    play(scenario)


def test_t6_9_a_store_that_grants_the_leases_again_leaves_everything_as_it_was() -> None:
    """It was stopped, not its clients: as etcd does, it gives every lease its whole time when it is back."""

    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings={"min.insync.replicas": "2"})
        load = Load(trio, pause_s=0.2)
        loading = asyncio.create_task(load.run())
        await asyncio.sleep(2)
        before, controller = trio.record(), trio.controller_id
        granted = trio.world.data._leases
        with patch.object(trio.world.data, "expire", lambda: None):
            for n in NODES:
                trio.store(n).unavailable = True
            for _ in range(60):
                acked = len(load.acked)
                await asyncio.sleep(1)
                assert len(load.acked) > acked + 2
            for lease in granted.values():
                lease.expires_ms = trio.world.data.clock.boot_ms() + lease.ttl_ms
        for n in NODES:
            trio.store(n).unavailable = False
        await trio.until(lambda: all(trio.broker(n).controller.lease_valid() for n in NODES))
        await asyncio.sleep(20)
        load.is_over = True
        await loading
        assert trio.record() == before and trio.controller_id == controller
        assert await load.is_all_there()

    play(scenario, replicates=True)
