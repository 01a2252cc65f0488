"""Owners, standbys and leaders that die, stop for a while or step down. Virtual time. Scenarios by their ids."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from headrace.broker.ownership import Ownership
from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from headrace.wire.messages.elections import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from headrace.wire.messages.fetch import FetchResponse
from headrace.wire.messages.own import OwnResult
from tests.broker.asking import TOPIC, fetch_request, records_of, values_of
from tests.broker.owning import FIRST, IF_UNOWNED, ME, NOT_HERE, STALE, owner_at
from tests.broker.test_own_cluster import GATED, KEEP, led_by, moved, others, run
from tests.broker.trio import Trio


async def resumed_at(trio: Trio, node_id: int, resource: str = FIRST, generation: int = 1) -> OwnResult:
    """As a library would: again and again."""
    while True:
        client = await owner_at(trio, node_id)
        result = await client.resume(generation, resource)
        if result.error_code in (0, STALE):
            return result
        client.peer.close()
        await asyncio.sleep(0.05)


async def until_led_by_another(trio: Trio, old: int) -> int:
    await trio.until(lambda: trio.record().leader not in (old, -1))
    leader = trio.record().leader
    await trio.leads(leader)
    return leader


def test_a_failover_between_the_grant_and_the_first_read_does_not_hang_the_new_owner() -> None:
    """Town-21: its old fence is forgotten; the one of its resume can be read up to."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new, settings=GATED)
        first = await owner_at(trio, old)
        await first.granted()
        for value in (b"a", b"b"):
            await first.produce(records_of([value]))
        second = await owner_at(trio, old)
        assert (await second.claim(1, **KEEP)).fence_offset == 2
        trio.world.nodes[old - 1].kill()
        leader = await until_led_by_another(trio, old)
        back = await owner_at(trio, leader)
        resumed = await back.resume(2)
        assert (resumed.error_code, resumed.generation) == (0, 2)
        assert await back.read_all() == [b"a", b"b"][: resumed.fence_offset]

    run(scenario)


@pytest.mark.parametrize("severs", [True, False])
def test_a_leader_that_was_stopped_serves_nothing_gated_of_what_was_queued_meanwhile(severs: bool) -> None:
    """Town-34: also where its owners are not cut, and not from a fetch that was parked before."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new, trio.controller_id, settings=GATED)
        first, parked = await owner_at(trio, old), await owner_at(trio, old, "lent")
        await first.granted(bind_client_id="lent", **KEEP)
        await first.produce(records_of([b"a"]))
        waiting = parked.peer.send(fetch_request(1, max_wait_ms=40_000), FetchResponse, 12)
        waiting.add_done_callback(lambda f: f.exception())
        await trio.until(lambda: trio.broker(old).fetch_events.sessions.parked)
        node = trio.world.nodes[old - 1]
        node.pause()
        sent = [first.send(records_of([b"late"]), acks=1) for _ in range(50)]
        late = await resumed_at(trio, await until_led_by_another(trio, old))
        assert late.generation == 1
        node.resume()
        done, _ = await asyncio.wait(sent, timeout=60)
        answers = [f.result() for f in done if not f.exception()]
        codes = {a.responses[0].partition_responses[0].error_code for a in answers}
        assert codes <= {NOT_HERE}
        await trio.until(lambda: trio.partition(old).leader_epoch == trio.record().leader_epoch)
        leader = await owner_at(trio, trio.record().leader)
        resumed = await leader.resume(1)
        assert resumed.error_code == 0
        assert await leader.read_all() == [b"a"]
        if waiting.done() and not waiting.exception():
            assert not waiting.result().responses[0].partitions[0].records

    if severs:
        run(scenario)
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ownership, "_lease_ended", lambda _: None)
            run(scenario)


def test_an_owner_comes_back_after_a_hiccup_of_the_lease() -> None:
    """Town-30: the same generation, and a new fence."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new, settings=GATED)
        first = await owner_at(trio, old)
        await first.granted(**KEEP)
        await first.produce()
        trio.store(old).unavailable = True
        await trio.until(lambda: first.peer.closed)
        trio.store(old).unavailable = False
        resumed = None
        while resumed is None or resumed.error_code:
            at = trio.record().leader
            if at > 0:
                resumed = await (await owner_at(trio, at)).resume(1)
                assert resumed.error_code in (0, NOT_HERE)
            await asyncio.sleep(0.05)
        assert (resumed.generation, resumed.fence_offset) == (1, 1)

    run(scenario)


def test_an_owner_comes_back_after_a_voluntary_move() -> None:
    """Town-30, Town-46: the standby that waits there is not granted."""

    async def scenario(trio: Trio) -> None:
        preferred, other = others(trio)
        await led_by(trio, preferred, other)
        await moved(trio, other)
        await trio.until(lambda: len(trio.record().isr_ids) == 2)
        first, standby = await owner_at(trio, other), await owner_at(trio, other)
        await first.granted(**KEEP)
        waiting = standby.send_own((FIRST, 0), op=IF_UNOWNED, wait_ms=60_000)
        admin = await trio.client(trio.controller_id)
        named = [TopicPartitions(topic=TOPIC, partitions=[0])]
        request = ElectLeadersRequest(election_type=0, topic_partitions=named, timeout_ms=20_000)
        await admin.ask(request, ElectLeadersResponse)
        told = (await waiting).resources[0]
        assert told.error_code == NOT_HERE
        await trio.leads(preferred)
        next_standby = await owner_at(trio, preferred)
        waiting = next_standby.send_own((FIRST, 0), op=IF_UNOWNED, wait_ms=60_000)
        assert (await resumed_at(trio, preferred)).error_code == 0
        await asyncio.sleep(2)
        assert not waiting.done()

    run(scenario)


def test_the_owner_comes_back_before_a_standby_when_the_leader_is_killed() -> None:
    """Town-46."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new, trio.controller_id)
        first = await owner_at(trio, old)
        await first.granted(**KEEP)
        trio.world.nodes[old - 1].kill()
        leader = await until_led_by_another(trio, old)
        standby = await owner_at(trio, leader)
        waiting = standby.send_own((FIRST, 0), op=IF_UNOWNED, wait_ms=60_000)
        await asyncio.sleep(0.4)
        assert (await (await owner_at(trio, leader)).resume(1)).error_code == 0
        await asyncio.sleep(2)
        assert not waiting.done()

    run(scenario)


def the_boss_dies(trio: Trio, boss: int) -> None:
    trio.world.nodes[boss - 1].kill()


def the_boss_pauses(trio: Trio, boss: int) -> None:
    trio.world.nodes[boss - 1].pause()
    trio.world.loop.call_later(30, trio.world.nodes[boss - 1].resume)


def the_boss_is_isolated(trio: Trio, boss: int) -> None:
    trio.store(boss).unavailable = True


@pytest.mark.parametrize("happens", [the_boss_dies, the_boss_pauses, the_boss_is_isolated])
def test_a_name_never_has_two_owners(happens: Callable[[Trio, int], None]) -> None:
    """Town-40, Town-46: grants that were answered do not overlap; the owner resumes, and the standby waits on."""

    async def scenario(trio: Trio) -> None:
        boss = trio.controller_id
        first = await owner_at(trio, boss)
        assert await first.granted(1, "name", **KEEP) == 1
        happens(trio, boss)
        answered_s: list[float] = []

        async def claim_again() -> None:
            """As long as it is served: what it holds already is its own."""
            with contextlib.suppress(PeerLost, TimeoutError):
                while (await first.own(("name", 5))).resources[0].error_code == 0:
                    answered_s.append(trio.world.loop.now_s)
                    await asyncio.sleep(0.05)

        claiming = asyncio.ensure_future(claim_again())
        rest = [n for n in (1, 2, 3) if n != boss]
        await trio.until(lambda: any(trio.broker(n).controller.is_controller for n in rest))
        (now,) = [n for n in rest if trio.broker(n).controller.is_controller]
        standby = await owner_at(trio, now)
        waiting = standby.send_own(("name", 0), op=IF_UNOWNED, wait_ms=100_000)
        resumed = await resumed_at(trio, now, "name")
        resumed_s = trio.world.loop.now_s
        assert (resumed.error_code, resumed.generation) == (0, 1)
        await asyncio.sleep(40)
        assert not waiting.done()
        claiming.cancel()
        assert all(at_s < resumed_s - 0.1 for at_s in answered_s)

    run(scenario)


def test_a_controller_that_is_shut_down_tells_standbys_and_lets_names_go() -> None:
    """Town-40."""

    async def scenario(trio: Trio) -> None:
        boss = trio.controller_id
        first, standby = await owner_at(trio, boss), await owner_at(trio, boss)
        assert await first.granted(1, "name", **KEEP) == 1
        waiting = standby.send_own(("name", 0), op=IF_UNOWNED, wait_ms=100_000)
        await trio.until(lambda: trio.broker(boss).ownership.metrics.standbys)
        await trio.world.nodes[boss - 1].stop()
        told = (await waiting).resources[0]
        assert told.error_code in (ErrorCode.NOT_COORDINATOR, STALE)
        rest = [n for n in (1, 2, 3) if n != boss]
        await trio.until(lambda: any(trio.broker(n).controller.is_controller for n in rest))
        (now,) = [n for n in rest if trio.broker(n).controller.is_controller]
        assert (await resumed_at(trio, now, "name")).generation == 1

    run(scenario)


def test_a_forged_replica_gains_nothing() -> None:
    """Town-41."""

    async def scenario(trio: Trio) -> None:
        old, new = others(trio)
        await led_by(trio, old, new, settings=GATED)
        first = await owner_at(trio, old)
        await first.granted(holder=ME)
        await first.produce(records_of([b"secret"]))
        forger = await owner_at(trio, old)
        for replica_id in (new, old, 99):
            fetched = await forger.fetch(0, replica_id=replica_id)
            assert fetched.error_code and not fetched.records
        assert values_of((await first.fetch(0)).records) == [b"secret"]

    run(scenario)
