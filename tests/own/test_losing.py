"""What becomes of an ownership when brokers, networks and the program itself fail."""

import asyncio

import pytest

from headrace import own
from tests.own.stage import Claimer, Stage, play


@pytest.mark.parametrize("resource", ["t-0", "a name"])
def test_a_silent_network_is_noticed_within_6_s_and_the_same_generation_regained(resource: str) -> None:
    """Town-44."""

    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna = stage.claimer("anna")
        async with anna.claim(resource) as ownership:
            for after_s in (0.0, 1.3, 2.9):
                await asyncio.sleep(after_s)
                anna.cut_off()
                cut_ms = stage.now_ms()
                await ownership.lost.wait()
                assert 100 < stage.now_ms() - cut_ms <= 6_000
                await asyncio.sleep(20)
                assert ownership.lost.is_set() and not ownership.is_gone
                stage.world.network.heal_all()
                await ownership.regained()
                assert not ownership.lost.is_set() and ownership.generation == 1

    play(scenario)


def test_who_was_silent_while_another_took_over_has_lost_for_good() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with anna.claim("t-0") as old:
            anna.cut_off()
            async with ben.claim("t-0", 1) as new:
                await old.lost.wait()
                stage.world.network.heal_all()
                with pytest.raises(own.OwnershipLost, match="somebody else has had it since, at generation 2"):
                    await old.regained()
                await asyncio.sleep(10)
                assert old.lost.is_set() and not new.lost.is_set()

    play(scenario)


@pytest.mark.parametrize("resource", ["t-0", "a name"])
@pytest.mark.parametrize("end", ["kill", "pause", "cut"])
def test_it_is_regained_at_another_broker_with_the_same_generation_and_a_new_fence(resource: str, end: str) -> None:
    """Town-44, Town-30, Town-40 as the library sees it."""

    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with anna.claim(resource) as ownership:
            await stage.write(b"a", b"b")
            waiting = ben.claim(resource, wait=True)
            standby = asyncio.create_task(waiting.__aenter__())
            await asyncio.sleep(1)
            old = stage.leader() if resource == "t-0" else stage.world.truth.controller
            assert isinstance(old, int)
            node = stage.world.nodes[old - 1]
            if end == "kill":
                node.kill()
            elif end == "pause":
                node.pause()
            else:
                for host in [*stage.world.client_hosts, *[n.host for n in stage.world.nodes if n is not node]]:
                    stage.world.network.cut(node.host, host)
                    stage.world.network.cut(host, node.host)
                assert node.store is not None
                node.store.unavailable = True
            await ownership.lost.wait()
            await ownership.regained()
            assert ownership.generation == 1
            assert ownership.fence_offset == (2 if resource == "t-0" else -1)
            assert not standby.done()
        assert (await standby).generation == 2
        await waiting.__aexit__(None, None, None)

    play(scenario, brokers=3)


def test_a_broken_connection_costs_what_hung_on_it_and_no_more() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create(partitions=2)
        anna = stage.claimer("anna")
        async with anna.claim(["t-0", "t-1"]) as ownership:
            anna.break_connections()
            await ownership.lost.wait()
            await ownership.regained()
            assert set(ownership.generations.values()) == {1}
            losses = 0

            def count() -> None:
                nonlocal losses
                losses += ownership.lost.is_set()

            ownership.listeners.append(count)
            await asyncio.sleep(30)
            assert losses == 0

    play(scenario, brokers=3)


def test_a_program_that_was_paused_is_told_before_it_does_anything() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna = stage.claimer("anna")
        seen: list[str] = []

        async def work() -> None:
            async with anna.claim("t-0") as ownership:
                while True:
                    await asyncio.sleep(1)
                    seen.append("asleep")
                    clock_ms = anna.outside.clock.monotonic_ms()
                    try:
                        ownership.check()
                        seen[-1] = "held"
                    except own.OwnershipLost:
                        seen[-1] = f"lost at {clock_ms // 1000}"

        working = anna.start(work())
        await asyncio.sleep(5)
        assert set(seen) == {"held"}
        stage.world.loop.pause(anna.process)
        await asyncio.sleep(10)
        stage.world.loop.resume(anna.process)
        await asyncio.sleep(0.1)
        assert seen[-1].startswith("lost")
        await asyncio.sleep(5)
        assert seen[-1] == "held"  # nobody else has had it
        working.cancel()

    play(scenario)


def test_a_topic_that_is_deleted_is_lost_for_good() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        async with stage.claimer("anna").claim("t-0") as ownership:
            await delete(stage)
            with pytest.raises(own.OwnershipLost):
                await asyncio.wait_for(lost_and_regained(ownership), 60)

    async def delete(stage: Stage) -> None:
        from headrace.client import Admin

        async with Admin(stage.world.bootstrap, outside=stage.outside) as admin:
            await admin.delete_topics(["t"])

    async def lost_and_regained(ownership: own.Ownership) -> None:
        await ownership.lost.wait()
        await ownership.regained()

    play(scenario, brokers=3)


def test_leaving_a_claim_frees_it_even_if_nobody_answers() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna: Claimer = stage.claimer("anna")
        async with anna.claim("t-0"):
            anna.cut_off()
        stage.world.network.heal_all()
        async with stage.claimer("ben").claim("t-0", 1) as ownership:
            assert ownership.generation == 2

    play(scenario)
