"""Generations that outlive their owners, and client ids that claim by themselves. Scenarios by their ids."""

import asyncio
from typing import Any

from headrace.core.cluster import OwnedRecord
from headrace.errors import ErrorCode
from headrace.metadata import records
from tests.broker.owning import DAY_MS, DENIED, FENCED, FIRST, GROUP, ME, NOT_HERE, OTHER, RELEASE, SECOND, STALE, owner
from tests.broker.support import TOPIC, Served, World, records_of, serving, until
from tests.broker.test_own_gates import metrics

KEEP: dict[str, Any] = {"retain_ms": DAY_MS}


def client_id(token: int, instance: str = "x", group: str = GROUP) -> str:
    return f"own--{group}--{token}--{instance}"


async def kept(served: Served, group: str = GROUP, resource: str = FIRST) -> OwnedRecord | None:
    assert served.node.broker is not None
    return (await served.node.broker.controller.own_keys.read(group, resource))[0]


async def forgotten(served: Served) -> None:
    async with asyncio.timeout(20):
        while await kept(served) is not None:  # noqa: ASYNC110  # the store has no event for it
            await asyncio.sleep(0.01)


async def test_a_generation_that_is_kept_refuses_lower_ones_after_its_owner_is_gone() -> None:
    """Town-8, by claim."""
    async with serving() as (served, _):
        first, second = await owner(served), await owner(served)
        await first.granted()
        assert await second.granted(4, holder=ME, **KEEP) == 5
        record = await kept(served)
        assert record is not None and (record.generation, record.holder) == (5, ME.hex())
        second.peer.close()
        await until(lambda: not metrics(served).owned)
        third = await owner(served)
        assert await third.refused(4) == 5
        assert await third.granted(5) == 6


async def test_the_setting_keeps_generations_too() -> None:
    """Town-8, by setting."""
    async with serving({"own.generation.retention.ms": str(DAY_MS)}) as (served, _):
        first, second = await owner(served), await owner(served)
        assert await first.granted() == 1
        first.peer.close()
        await until(lambda: not metrics(served).owned)
        assert await second.granted(1) == 2
        record = await kept(served)
        assert record is not None and (record.generation, record.retain_ms) == (2, DAY_MS)


async def test_a_claim_over_a_kept_generation_always_writes_its_own() -> None:
    """Town-37: else the old number would win after a restart."""
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            a, b = await owner(served), await owner(served)
            await a.granted(**KEEP)
            assert await b.granted(1) == 2
        async with world.started() as served:
            a = await owner(served)
            assert await a.refused(1) == 2
            assert await a.granted(2) == 3


async def test_a_resume_after_a_restart_brings_the_same_generation_and_a_new_fence() -> None:
    """Town-30, Town-31, Town-32 on one node."""
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            first = await owner(served)
            assert await first.granted(holder=ME, **KEEP) == 1
            await client.produce(records_of([b"a", b"b"]))
        async with world.started() as served:
            back, other = await owner(served), await owner(served)
            for generation, holder in ((1, OTHER), (2, ME), (0, ME)):
                assert (await other.resume(generation, holder=holder)).error_code == STALE
            resumed = await back.resume(1)
            assert (resumed.error_code, resumed.generation, resumed.fence_offset) == (0, 1, 2)
            again = await back.resume(1)
            assert (again.error_code, again.generation, again.fence_offset) == (0, 1, 2)
            zombie = await owner(served)
            assert await other.granted(0, holder=OTHER) == 1  # a reset
            assert (await zombie.resume(7)).error_code == STALE
            assert await zombie.granted(7) == 8, "whoever claims has decided it"


async def test_a_resume_of_another_principal_or_of_an_equal_number_after_a_reset_is_refused() -> None:
    """Town-31: with a live owner, who works on, and with one that is only remembered."""
    async with serving() as (served, _):
        first, thief, late = await owner(served, "one"), await owner(served, "thief"), await owner(served)
        assert served.node.broker is not None
        for connection in served.node.broker.ownership.connections():
            if connection.client_id == "thief":
                connection.principal = "User:somebody-else"
        assert await first.granted(holder=ME, **KEEP) == 1
        assert (await thief.resume(1)).error_code == STALE
        assert await first.lives()
        first.peer.close()
        await until(lambda: not metrics(served).owned)
        assert (await thief.resume(1)).error_code == STALE
        second = await owner(served)
        assert await second.granted(0, holder=OTHER, **KEEP) == 1
        assert (await late.resume(1)).error_code == STALE
        assert await second.lives()
        second.peer.close()
        await until(lambda: not metrics(served).owned)
        assert (await late.resume(1)).error_code == STALE
        assert (await late.resume(1, holder=OTHER)).error_code == 0


async def test_what_is_not_kept_cannot_be_resumed() -> None:
    """Town-31."""
    async with serving() as (served, _):
        first, back = await owner(served), await owner(served)
        await first.granted(holder=ME)
        first.peer.close()
        await until(lambda: not metrics(served).owned)
        assert (await back.resume(1)).error_code == STALE


async def test_a_kept_generation_is_forgotten_in_its_time() -> None:
    async with serving() as (served, client):
        first, second = await owner(served), await owner(served)
        assert await first.granted(retain_ms=50, exclusive=1) == 1
        assert await kept(served) is not None
        first.peer.close()
        async with asyncio.timeout(20):
            while (await client.produce()).error_code:
                served.world.clock.now_ms += 60
                await asyncio.sleep(0.01)
            await forgotten(served)
        assert await second.granted(1) == 1
        assert served.node.broker is not None
        await until(lambda: served.node.broker and not served.node.broker.image.owned)


async def test_an_exclusive_claim_that_is_kept_gates_while_nobody_owns_and_not_after_a_release() -> None:
    """Town-42."""
    async with serving() as (served, client):
        first = await owner(served)
        await first.granted(holder=ME, exclusive=3, **KEEP)
        first.peer.close()
        await until(lambda: not metrics(served).owned)
        assert (await client.produce()).error_code == NOT_HERE
        assert (await client.fetch(0)).error_code == NOT_HERE
        back = await owner(served)
        assert (await back.resume(1)).error_code == 0
        assert (await back.produce()).error_code == 0
        assert (await client.produce()).error_code == FENCED
        assert (await back.own((FIRST, 1), op=RELEASE)).resources[0].error_code == 0
        assert (await client.produce()).error_code == 0
        record = await kept(served)
        assert record is not None and (record.generation, record.exclusive) == (1, 0)


async def test_a_kept_generation_of_a_topic_that_was_made_again_counts_no_more_and_is_swept() -> None:
    async with serving() as (served, client):
        first = await owner(served)
        await first.granted(exclusive=1, **KEEP)
        first.peer.close()
        await client.delete_topic()
        await client.create_topic()
        assert (await client.produce()).error_code == 0
        second = await owner(served)
        assert await second.granted(1) == 1
        await forgotten(served)


async def test_more_generations_than_may_be_kept_are_refused() -> None:
    async with serving({"own.max.retained": "1"}, partitions=2) as (served, _):
        first = await owner(served)
        await first.granted(**KEEP)
        await until(lambda: served.node.broker and served.node.broker.image.owned_count == 1)
        assert (await first.claim(1, SECOND, **KEEP)).error_code == ErrorCode.POLICY_VIOLATION
        assert await first.granted(1, SECOND) == 1
        token = await owner(served, client_id(3, group="others"))
        assert (await token.produce()).error_code == FENCED


async def test_names_are_kept_too() -> None:
    with World() as world:
        async with world.started() as served:
            first = await owner(served)
            await first.granted(1, "the boss/1", holder=ME, **KEEP)
            assert await kept(served, resource="the boss/1") is not None
        async with world.started() as served:
            back = await owner(served)
            assert await back.refused(0, "the boss/1", op=3, wait_ms=1) == 1
            assert (await back.resume(1, "the boss/1")).generation == 1


def test_keys_keep_groups_and_resources_apart() -> None:
    for group, resource in (("a/b", "c"), ("a", "b/c"), ("ü %", "x-0")):
        key = records.owned_key(group, resource)
        assert key.count(b"/") == 3
        assert records.owned_in(key) == (group, resource)


# Tokens in client ids.


async def test_sockets_of_one_client_id_live_side_by_side_and_a_higher_token_cuts_them() -> None:
    """Town-19."""
    async with serving() as (served, _):
        one, two = await owner(served, client_id(1)), await owner(served, client_id(1))
        assert [(await c.produce()).error_code for c in (one, two)] == [0, 0]
        assert (await one.fetch(0)).error_code == 0
        assert served.node.broker is not None
        known = [c for c in served.node.broker.ownership.connections() if c.client_id == client_id(1)]
        assert [c.is_kept for c in known] == [True, True], "who owns may be silent for as long as it likes"
        equal = await owner(served, client_id(1, "other"))
        assert (await equal.produce()).error_code == FENCED
        assert (await equal.fetch(0)).error_code == DENIED
        higher = await owner(served, client_id(2, "other"))
        assert (await higher.produce()).error_code == 0
        assert await one.is_cut() and await two.is_cut()
        back = await owner(served, client_id(1))
        assert ((await back.produce()).error_code, (await back.fetch(0)).error_code) == (FENCED, DENIED)
        record = await kept(served)
        assert record is not None and (record.generation, record.holder) == (2, client_id(2, "other"))


async def test_the_last_socket_ends_the_ownership_and_the_token_stays() -> None:
    """Town-39."""
    async with serving() as (served, _):
        one, two = await owner(served, client_id(2)), await owner(served, client_id(2))
        assert [(await c.produce()).error_code for c in (one, two)] == [0, 0]
        one.peer.close()
        lower = await owner(served, client_id(1))
        assert (await lower.produce()).error_code == FENCED
        assert (await two.produce()).error_code == 0
        two.peer.close()
        await until(lambda: not metrics(served).owned)
        assert (await lower.produce()).error_code == FENCED
        assert (await lower.fetch(0)).error_code == DENIED
        other = await owner(served, client_id(2, "other"))
        assert (await other.produce()).error_code == FENCED
        same = await owner(served, client_id(2))
        assert (await same.produce()).error_code == 0


async def test_a_group_may_have_the_separator_in_its_name_and_what_is_malformed_is_ordinary() -> None:
    """Town-19."""
    async with serving() as (served, _):
        first = await owner(served, "own--a--b--1--x")
        assert (await first.produce()).error_code == 0
        assert await kept(served, "a--b") is not None
        for name in ("own--a--0--x", "own--a--x--y", "own--a--1--", "own--1--x", f"own--a--{2**31}--x", "own--a--1-x"):
            assert (await (await owner(served, name)).produce()).error_code == 0
        assert served.node.broker is not None
        assert len(served.node.broker.image.owned[FIRST]) == 1


async def test_an_explicit_claim_meets_a_token_as_a_generation() -> None:
    async with serving() as (served, _):
        token = await owner(served, client_id(5))
        await token.produce()
        claimer = await owner(served)
        assert await claimer.refused(4) == 5
        assert await claimer.granted(5) == 6
        assert await token.is_cut()
        again = await owner(served, client_id(6))
        assert (await again.produce()).error_code == FENCED
        assert (await (await owner(served, client_id(7))).produce()).error_code == 0
        assert await claimer.is_cut()


async def test_a_reader_by_token_waits_for_its_grant_and_a_zombie_reader_is_denied() -> None:
    async with serving() as (served, client):
        await client.produce()
        reader = await owner(served, client_id(3))
        fetched = await reader.fetch(0, max_wait_ms=30_000)
        assert fetched.error_code == 0 and fetched.records
        zombie = await owner(served, client_id(2))
        assert (await zombie.fetch(0, max_wait_ms=30_000)).error_code == DENIED


async def test_the_limits_of_claims_count_for_client_ids_too() -> None:
    async with serving({"own.max.resources.per.connection": "1"}, partitions=2) as (served, _):
        one, two = await owner(served, client_id(1)), await owner(served, client_id(1))
        assert [(await one.produce(partition=n)).error_code for n in (0, 1)] == [0, FENCED]
        assert (await one.fetch(0)).error_code == 0
        assert [(await two.produce(partition=n)).error_code for n in (1, 0)] == [0, FENCED], "who joins is counted too"
    async with serving({"own.max.entries": "1"}, partitions=2) as (served, _):
        one, two = await owner(served, client_id(1)), await owner(served, client_id(2))
        assert [(await one.produce(partition=n)).error_code for n in (0, 1)] == [0, FENCED]
        assert (await two.produce()).error_code == 0, "a takeover adds none"
        assert await one.is_cut()


async def test_tokens_can_be_switched_off() -> None:
    async with serving({"own.client.id.enable": "false"}) as (served, _):
        for token in (2, 1):
            assert (await (await owner(served, client_id(token))).produce()).error_code == 0
        assert metrics(served).grants == 0


async def test_a_topic_that_only_owners_write_to_is_open_to_tokens() -> None:
    async with serving(topic={"own.produce.group": GROUP, "own.fetch.group": GROUP}) as (served, client):
        first = await owner(served, client_id(1))
        assert (await first.produce()).error_code == 0
        assert (await first.fetch(0)).error_code == 0
        assert (await client.produce()).error_code == FENCED
        assert TOPIC in FIRST
