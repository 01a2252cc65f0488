"""Members of an ISR that die and come back, with all their records or without: nothing acknowledged is lost. T6."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from headrace.core.cluster import NO_LEADER
from tests.broker.asking import TOPIC, records_of
from tests.broker.trio import Trio, play

NODES = (1, 2, 3)
RECORDS = 100
CUT = 20


async def written(trio: Trio, leader: int, count: int = RECORDS) -> list[bytes]:
    """Acknowledged by all, each in a batch of its own."""
    client = await trio.client(leader)
    values = [b"%03d" % n for n in range(count)]
    sent = [client.send(records_of([value])) for value in values]
    for answer in await asyncio.gather(*sent):
        assert answer.responses[0].partition_responses[0].error_code == 0
    return values


def content(trio: Trio, node_id: int) -> bytes:
    log = trio.partition(node_id).log
    return b"".join(segment.log.read(0, segment.size) for segment in log.segments)


async def until_equal(trio: Trio, values: Sequence[bytes], *node_ids: int) -> None:
    def is_whole() -> bool:
        if not all(trio.world.nodes[n - 1].is_serving for n in node_ids):
            return False
        ends = {(trio.partition(n).log_end_offset, trio.partition(n).high_watermark) for n in node_ids}
        return ends == {(len(values), len(values))} and len(trio.record().isr) == len(node_ids)

    await trio.until(is_whole)
    assert len({content(trio, n) for n in node_ids}) == 1
    leader = await trio.client(trio.record().leader)
    assert await leader.read_all() == values


def loses_its_tail(trio: Trio, node_id: int) -> None:
    """The machine: it has another boot id then, and less in its files."""
    node = trio.world.nodes[node_id - 1]
    log = trio.partition(node_id).log
    position = log.segments[-1].size // RECORDS * (RECORDS - CUT)
    node.kill()
    node.machine.clock.boot()
    inode = node.machine.files.inode(f"/data{node_id}/logs/{TOPIC}-0/{0:020d}.log")
    assert len(inode.data) > position
    del inode.data[position:]


@pytest.mark.parametrize("whole", NODES)
@pytest.mark.parametrize("is_seen_late", [False, True])
def test_t6_5_a_leader_and_a_follower_that_lost_their_tails_leave_everything_to_the_third(
    whole: int, is_seen_late: bool
) -> None:
    """Seen late, nobody was away: whoever decides must tell from the registrations that they are others."""

    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in NODES if n != whole)
        await trio.topic([leader, follower, whole])
        values = await written(trio, leader)
        before = {n: trio.broker(n).controller.registration.epoch for n in (leader, follower)}
        for node_id in (leader, follower):
            loses_its_tail(trio, node_id)
        trio.store(whole).hold_watch(is_seen_late)
        for node_id in (leader, follower):
            trio.world.nodes[node_id - 1].start()
        await trio.until(lambda: all(trio.registered_epoch(n) > epoch for n, epoch in before.items()))
        trio.store(whole).hold_watch(False)
        await trio.leads(whole)
        await until_equal(trio, values, *NODES)

    play(scenario, replicates=True)


@pytest.mark.parametrize("is_seen_late", [False, True])
def test_t6_6_a_leader_that_was_killed_serves_again_within_a_second_under_another_epoch(is_seen_late: bool) -> None:
    """Seen late, it leads on, and as another incarnation under another epoch all the same."""

    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in NODES if n != trio.controller_id)
        await trio.topic([leader, follower])
        values = await written(trio, leader)
        epoch, killed_s = trio.record().leader_epoch, trio.world.loop.now_s
        registered = trio.registered_epoch(leader)
        trio.store(trio.controller_id).hold_watch(is_seen_late)
        trio.world.nodes[leader - 1].kill()
        trio.world.nodes[leader - 1].start()
        await trio.until(lambda: trio.registered_epoch(leader) > registered)
        trio.store(trio.controller_id).hold_watch(False)
        await trio.until(lambda: trio.record().leader_epoch > epoch and trio.record().leader != NO_LEADER)
        assert not is_seen_late or trio.record().leader == leader
        await trio.leads(trio.record().leader)
        client = await trio.client(trio.record().leader)
        assert (await client.produce(records_of([b"after"]))).error_code == 0
        assert trio.world.loop.now_s - killed_s < 1
        await until_equal(trio, [*values, b"after"], leader, follower)

    play(scenario, replicates=True)


@pytest.mark.parametrize("alone", [False, True])
def test_t6_15_nobody_leads_from_a_record_for_an_incarnation_that_is_no_more(alone: bool) -> None:
    """An election, or a change of the ISR, that is written after the next registration."""

    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in NODES if n != trio.controller_id)
        await trio.topic([leader, follower])
        values = await written(trio, leader)
        old = trio.record()
        await trio.restart(leader)
        await trio.until(lambda: trio.record().leader_epoch > old.leader_epoch)
        await trio.leads(trio.record().leader)
        await until_equal(trio, values, leader, follower)
        record = trio.record()
        ghost = replace(
            record,
            leader=leader,
            isr=old.isr[:1] if alone else old.isr,
            leader_epoch=record.leader_epoch + 1,
            partition_epoch=record.partition_epoch + 1,
        )
        assert trio.broker(leader).controller.registration.epoch not in [m.broker_epoch for m in ghost.isr]
        assert trio.write(ghost)
        partition = trio.partition(leader)
        while trio.record(at=leader).leader_epoch <= ghost.leader_epoch:
            assert not (partition.is_leading and trio.record(at=leader) == ghost)
            await asyncio.sleep(0.001)
        await trio.leads(trio.record().leader)
        await until_equal(trio, values, leader, follower)

    play(scenario, replicates=True)


@pytest.mark.parametrize("after_its_session", [False, True])
def test_t6_18_a_member_that_lost_its_tail_is_not_elected_though_no_controller_saw_it(after_its_session: bool) -> None:
    async def scenario(trio: Trio) -> None:
        controller = trio.controller_id
        whole, reborn = (n for n in NODES if n != controller)
        await trio.topic([whole, reborn])
        values = await written(trio, whole)
        # From here on no controller writes anything: the one there is hears of nothing, but keeps its lease.
        trio.store(controller).hold_watch()
        lease = trio.broker(reborn).controller.registration.lease
        loses_its_tail(trio, reborn)
        if after_its_session:
            assert lease is not None
            trio.world.data.revoke(lease.id)
        trio.world.nodes[reborn - 1].start()
        await trio.until(lambda: trio.world.nodes[reborn - 1].is_serving)
        for node_id in (controller, whole):
            lease = trio.broker(node_id).controller.registration.lease
            trio.world.nodes[node_id - 1].kill()
            assert lease is not None
            trio.world.data.revoke(lease.id)
        await trio.until(lambda: trio._decides(reborn))
        await trio.until(lambda: trio.record().leader == NO_LEADER)
        await asyncio.sleep(5)
        assert (trio.record().leader, trio.record().isr_ids) == (NO_LEADER, [whole])
        trio.world.nodes[whole - 1].start()
        await trio.leads(whole)
        await until_equal(trio, values, whole, reborn)

    play(scenario, replicates=True)


@pytest.mark.parametrize("how", ["shut down", "leases end"])
def test_t6_20_a_leader_whose_machine_died_is_not_left_alone_in_the_isr(how: str) -> None:
    """The dead one's lease runs on, and nobody who is alive may shrink the ISR. It is back first, without its tail."""

    async def scenario(trio: Trio) -> None:
        controller = trio.controller_id
        first, second, third = (node.node_id for node in trio.world.nodes if node.node_id != controller)
        await trio.topic([first, second, third])
        values = await written(trio, first)
        loses_its_tail(trio, first)
        for node_id in (second, third):
            node = trio.world.nodes[node_id - 1]
            if how == "shut down":
                await node.stop()
            else:
                lease = trio.broker(node_id).controller.registration.lease
                node.kill()
                assert lease is not None
                trio.world.data.revoke(lease.id)
        assert trio.record().isr_ids == [first, second, third]
        trio.world.nodes[first - 1].start()
        await trio.until(lambda: trio.record().isr_ids == [second, third])
        assert trio.record().leader == NO_LEADER
        for node_id in (second, third):
            trio.world.nodes[node_id - 1].start()
        await until_equal(trio, values, first, second, third)
        assert trio.controller_id == controller

    play(scenario, {"broker.session.timeout.ms": "300000"}, nodes=4, replicates=True)
