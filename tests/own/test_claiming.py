"""Claims: what nobody owns, in turn, and by taking over."""

import asyncio

import pytest

from headrace import own
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.net.peer import PeerLost
from headrace.own.holdings import Holdings
from headrace.testing import Cluster
from headrace.wire.messages.own import OwnRequest, OwnResult
from tests.own.stage import T0, Stage, play


def test_a_claim_is_held_until_it_is_left_and_generations_rise() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        await stage.write(b"before")
        anna = stage.claimer("anna")
        async with anna.claim("t-0") as ownership:
            assert ownership.generations == {"t-0": 1} and ownership.generation == 1
            assert ownership.fence_offsets == {"t-0": 1} and ownership.fence_offset == 1
            assert not ownership.lost.is_set()
        assert ownership.lost.is_set()
        async with anna.claim(T0) as ownership:
            assert ownership.generation == 2

    play(scenario)


def test_a_claim_without_a_generation_evicts_nobody_and_names_the_owner() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with anna.claim("t-0") as ownership:
            await asyncio.sleep(10)
            with pytest.raises(own.AlreadyOwned) as refused:
                async with ben.claim("t-0"):
                    pass
            assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
            assert refused.value.generation == 1
            assert refused.value.owner is not None and refused.value.owner.client_id == ownership.client_id
            assert ownership.client_id in str(refused.value) and "generation 1" in str(refused.value)
            assert 10_000 <= refused.value.owner.since_ms < 12_000
            await asyncio.sleep(1)
            assert not ownership.lost.is_set()

    play(scenario)


def test_a_connection_that_breaks_while_the_owner_is_looked_up_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    look, broken = Holdings.look, [PeerLost("the connection broke")]

    async def look_later(holdings: Holdings, node_id: int, question: OwnRequest) -> dict[str, OwnResult]:
        if broken:
            raise broken.pop()
        return await look(holdings, node_id, question)

    monkeypatch.setattr(Holdings, "look", look_later)

    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with anna.claim("t-0"):
            with pytest.raises(own.AlreadyOwned):
                async with ben.claim("t-0"):
                    pass
        assert not broken

    play(scenario)


def test_a_number_takes_over_and_the_loser_knows_within_100_ms() -> None:
    """Town-44."""

    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with anna.claim("t-0") as old:
            async with ben.claim("t-0", 1) as new:
                granted_ms = stage.now_ms()
                assert new.generation == 2
                await old.lost.wait()
                assert stage.now_ms() - granted_ms <= 100
                await stage.until(lambda: old.is_gone, 5)
                with pytest.raises(own.OwnershipLost, match="t-0"):
                    await old.regained()
                with pytest.raises(own.AlreadyOwned, match="generation 2, which 1 does not displace") as refused:
                    async with anna.claim("t-0", 1):
                        pass
                assert refused.value.generation == 2
                assert not new.lost.is_set()
            with pytest.raises(own.AlreadyOwned, match="last owned at generation 2"):
                async with anna.claim("t-0", 1):
                    pass

    play(scenario)


def test_zero_resets() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with anna.claim("t-0", 7) as old:
            assert old.generation == 1  # nobody had it: a number is no token
        async with anna.claim("t-0", 7) as old:
            assert old.generation == 8
            async with ben.claim("t-0", 0) as new:
                assert new.generation == 1
                await stage.until(lambda: old.is_gone, 5)

    play(scenario)


@pytest.mark.parametrize("patience_s", [0.5, 30.0])
def test_standbys_wait_their_turn_in_the_order_in_which_they_asked(patience_s: float) -> None:
    """They ask again every three seconds."""

    async def scenario(stage: Stage) -> None:
        await stage.create()
        turns: list[str] = []

        async def stand_by(name: str) -> None:
            async with stage.claimer(name).claim("t-0", wait=True):
                turns.append(name)
                await asyncio.sleep(1)

        async with stage.claimer("anna").claim("t-0"):
            waiting = []
            for name in ("ben", "cleo", "dora"):
                waiting.append(asyncio.create_task(stand_by(name)))
                await asyncio.sleep(0.5)
            await asyncio.sleep(patience_s)
            assert turns == []
        left_ms = stage.now_ms()
        await stage.until(lambda: turns)
        assert stage.now_ms() - left_ms <= 100
        await asyncio.gather(*waiting)
        assert sorted(turns) == ["ben", "cleo", "dora"]
        if patience_s < 1:
            assert turns == sorted(turns)

    play(scenario)


def test_a_standby_whose_owner_dies_takes_over_within_100_ms() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        held = anna.start(hold(anna.claim("t-0")))
        await asyncio.sleep(3)
        waiting = ben.claim("t-0", wait=True)
        standby = asyncio.create_task(waiting.__aenter__())
        await asyncio.sleep(5)
        assert not standby.done()
        stage.world.loop.kill(anna.process)
        died_ms = stage.now_ms()
        assert (await standby).generation == 2
        assert stage.now_ms() - died_ms <= 100
        await waiting.__aexit__(None, None, None)
        assert not held.done()

    async def hold(claim: object) -> None:
        async with claim:  # type: ignore[attr-defined]  # an async context
            await asyncio.sleep(1_000)

    play(scenario)


def test_two_standbys_for_several_resources_do_not_block_each_other() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create(partitions=4)
        done: list[str] = []

        async def stand_by(name: str, *resources: str) -> None:
            async with stage.claimer(name).claim(resources, wait=True) as ownership:
                assert set(ownership.generations) == set(resources)
                await asyncio.sleep(1)
                done.append(name)

        work = [stand_by("anna", "t-0", "t-3", "t-1"), stand_by("ben", "t-3", "t-1"), stand_by("cleo", "t-1", "t-0")]
        await asyncio.gather(*work)
        assert sorted(done) == ["anna", "ben", "cleo"]

    play(scenario, brokers=3)


def test_resources_at_several_leaders_are_claimed_at_each_of_them_and_all_or_none() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create(partitions=6)
        names = [f"t-{at}" for at in range(6)]
        assert len({stage.leader(TopicPartition("t", at)) for at in range(6)}) == 3
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with ben.claim("t-5"):
            with pytest.raises(own.AlreadyOwned, match="t-5 of group 'g' is owned by 'ben-"):
                async with anna.claim(names):
                    pass
            async with ben.claim(names[:5]) as others:  # nothing stays behind
                assert set(others.generations) == set(names[:5])
        async with anna.claim(names) as ownership:
            assert set(ownership.fence_offsets.values()) == {0}

    play(scenario, brokers=3)


def test_any_name_can_be_owned_and_has_no_fence() -> None:
    async def scenario(stage: Stage) -> None:
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with anna.claim(["the nightly backup", "no-such-topic-0"]) as ownership:
            assert ownership.generations == {"the nightly backup": 1, "no-such-topic-0": 1}
            assert set(ownership.fence_offsets.values()) == {-1}
            with pytest.raises(own.AlreadyOwned):
                async with ben.claim("the nightly backup"):
                    pass
            with pytest.raises(ValueError, match="not a partition"):
                async for _ in ownership.backlog("the nightly backup"):
                    pass

    play(scenario, brokers=3)


def test_a_mapping_presents_another_number_for_each_resource() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create(partitions=2)
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with anna.claim("t-0"):
            pass
        async with anna.claim(["t-0", "t-1"]) as old:
            assert old.generations == {"t-0": 2, "t-1": 1}
            async with ben.claim(["t-0", "t-1"], {"t-0": 2, "t-1": 1}) as new:  # type: ignore[arg-type]  # also a number
                assert new.generations == {"t-0": 3, "t-1": 2}

    play(scenario)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"resources": []}, "at least one resource"),
        ({"resources": ["a", "a"]}, "each once"),
        ({"resources": ["a", ""]}, "each once"),
        ({"generation": -1}, "not negative"),
        ({"generation": {"b": 1}}, "for each resource"),
        ({"generation": 1, "wait": True}, "only generation=None waits"),
        ({"exclusive": "read"}, "'produce' or 'fetch'"),
    ],
)
async def test_what_is_asked_wrongly_is_said_before_anybody_is_asked(arguments: dict[str, object], reason: str) -> None:
    given = {"resources": "a", **arguments}
    with pytest.raises(ValueError, match=reason):
        async with own.claim("127.0.0.1:1", "g", **given):  # type: ignore[arg-type]  # wrong on purpose
            pass


def test_a_name_cannot_be_owned_exclusively_and_that_is_said() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        for wait in (False, True):
            with pytest.raises(KafkaError, match="'nightly' cannot be claimed: it names no partition"):
                async with stage.claimer("anna").claim("nightly", wait=wait, exclusive="produce"):
                    pass

    play(scenario)


async def test_brokers_that_hide_ownership_from_others_can_be_asked_and_those_that_have_none_say_so() -> None:
    async with Cluster({"own.advertise": "false"}) as cluster, own.claim(cluster.bootstrap, "g", "a name") as held:
        assert held.generation == 1 and not held.lost.is_set()
    async with Cluster({"own.enable": "false"}) as cluster:
        with pytest.raises(KafkaError, match=r"does not serve group 'g': own\.enable is false there"):
            async with own.claim(cluster.bootstrap, "g", "a name"):
                pass


async def test_a_cluster_that_is_not_there_is_said_to_be() -> None:
    with pytest.raises(KafkaError, match=r"no broker of bootstrap 127\.0\.0\.1:1 answers"):
        async with own.claim("127.0.0.1:1", "g", "a", timeout_ms=50):
            pass
