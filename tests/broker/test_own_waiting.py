"""Standbys, keep-alives and descriptions. Scenarios by their ids."""

import asyncio
import json
from typing import Any

from headrace.core.acl import Operation, Resource, ResourceType
from headrace.errors import ErrorCode
from headrace.wire.messages.inspection import InspectRequest, InspectResponse
from headrace.wire.messages.own import OwnResponse
from tests.broker.owning import DAY_MS, DESCRIBE, FIRST, GROUP, IF_UNOWNED, SECOND, STALE, Owner, owner
from tests.broker.support import TOPIC, Served, serving, until
from tests.broker.test_own_gates import metrics

WAIT: dict[str, Any] = {"op": IF_UNOWNED, "wait_ms": 60_000}


async def standing_by(served: Served, *names: str, count: int = 1) -> "tuple[Owner, asyncio.Task[OwnResponse]]":
    standby = await owner(served)
    waiting = asyncio.ensure_future(standby.own(*((name, 0) for name in names or (FIRST,)), **WAIT))
    await until(lambda: metrics(served).standbys == count)
    return standby, waiting


async def test_a_claim_if_unowned_never_evicts() -> None:
    """Town-35."""
    async with serving() as (served, _):
        first, second = await owner(served), await owner(served)
        assert await first.granted(5, op=IF_UNOWNED) == 1
        assert await second.refused(9, op=IF_UNOWNED) == 1
        assert await first.granted(0, op=IF_UNOWNED) == 1
        assert await first.lives()


async def test_standbys_are_granted_in_the_order_in_which_they_came() -> None:
    """Town-35."""
    async with serving() as (served, _):
        first = await owner(served)
        await first.granted()
        one, waiting_one = await standing_by(served, count=1)
        _, waiting_two = await standing_by(served, count=2)
        first.peer.close()
        async with asyncio.timeout(10):
            assert [(r.error_code, r.generation) for r in (await waiting_one).resources] == [(0, 1)]
        assert not waiting_two.done()
        one.peer.close()
        async with asyncio.timeout(10):
            assert [r.error_code for r in (await waiting_two).resources] == [0]
        assert metrics(served).standbys == 0


async def test_the_next_request_ends_the_wait() -> None:
    """Town-35."""
    async with serving() as (served, client):
        first = await owner(served)
        await first.granted()
        standby, waiting = await standing_by(served)
        assert (await standby.produce()).error_code == ErrorCode.PRODUCER_FENCED
        assert [(r.error_code, r.generation) for r in (await waiting).resources] == [(STALE, 1)]
        assert metrics(served).standbys == 0
        assert (await client.produce()).error_code == 0


async def test_time_ends_the_wait() -> None:
    async with serving() as (served, _):
        first, second = await owner(served), await owner(served)
        await first.granted()
        assert await second.refused(1, op=IF_UNOWNED, wait_ms=50) == 1
        assert await first.lives()


async def test_who_waits_its_turn_is_not_told_as_refused_slice_by_slice() -> None:
    """Else who was refused last, which people look for, is always the standby."""
    async with serving() as (served, client):
        first, standby = await owner(served, "one"), await owner(served, "standby")
        await first.granted()
        await (await owner(served, "two")).refused(9, op=IF_UNOWNED)
        for _ in range(3):
            assert await standby.refused(1, op=IF_UNOWNED, wait_ms=20) == 1
        answer = await client.ask(InspectRequest(kind="own", args=[GROUP]), InspectResponse, 0)
        (row,) = json.loads(answer.body)["own"]
        assert row["refused"]["client_id"] == "two"
        assert metrics(served).rejections == 1


async def test_a_standby_for_several_is_answered_when_one_of_them_is_free() -> None:
    async with serving(partitions=2) as (served, _):
        first, second = await owner(served), await owner(served)
        await first.granted()
        await second.granted(1, SECOND)
        _, waiting = await standing_by(served, FIRST, SECOND)
        second.peer.close()
        answer = await waiting
        assert [(r.error_code, r.generation) for r in answer.resources] == [(STALE, 1), (0, 1)]


async def test_a_standby_that_goes_away_is_forgotten() -> None:
    async with serving() as (served, _):
        first = await owner(served)
        await first.granted()
        standby, waiting = await standing_by(served)
        standby.peer.close()
        await until(lambda: metrics(served).standbys == 0)
        first.peer.close()
        await until(lambda: metrics(served).owned == 0)
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_keep_alive_tells_what_is_held_and_waits_for_a_loss() -> None:
    """Town-22: a topic that is deleted is told of; what else is held stays."""
    async with serving() as (served, client):
        await client.create_topic("others")
        first = await owner(served)
        await first.own((FIRST, 1), ("others-0", 1))
        held = await first.own()
        assert [(r.resource, r.generation) for r in held.resources] == [(FIRST, 1), ("others-0", 1)]
        waiting = first.send_own(wait_ms=60_000)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await client.delete_topic("others")
        async with asyncio.timeout(10):
            assert [r.resource for r in (await waiting).resources] == [FIRST]
        assert [r.resource for r in (await first.own(wait_ms=20)).resources] == [FIRST]


async def test_a_loss_between_two_keep_alives_is_told_at_once() -> None:
    async with serving() as (served, client):
        await client.create_topic("others")
        first = await owner(served)
        await first.own((FIRST, 1), ("others-0", 1))
        await client.delete_topic("others")
        await until(lambda: metrics(served).owned == 1)
        async with asyncio.timeout(10):
            assert [r.resource for r in (await first.own(wait_ms=60_000)).resources] == [FIRST]


async def test_the_next_request_ends_a_keep_alive_too() -> None:
    async with serving() as (served, _):
        first = await owner(served)
        await first.granted()
        waiting = first.send_own(wait_ms=60_000)
        assert (await first.produce()).error_code == 0
        assert [r.resource for r in (await waiting).resources] == [FIRST]


async def test_a_description_tells_of_owned_retained_and_free_resources_and_changes_nothing() -> None:
    """Town-36."""
    async with serving(partitions=3) as (served, _):
        first, second, asker = await owner(served, "one"), await owner(served, "two"), await owner(served)
        await first.granted()
        await second.granted(1, SECOND, retain_ms=DAY_MS)
        second.peer.close()
        await until(lambda: metrics(served).owned == 1)
        third = f"{TOPIC}-2"
        told = (await asker.own((FIRST, 0), (SECOND, 0), (third, 0), op=DESCRIBE)).resources
        assert [(r.error_code, r.generation) for r in told] == [(0, 1), (0, 1), (0, 0)]
        assert [None if r.owner is None else r.owner.client_id for r in told] == ["one", None, None]
        assert told[0].owner is not None and told[0].owner.address.startswith("127.0.0.1:")
        every = (await asker.own(op=DESCRIBE)).resources
        assert sorted((r.resource, r.generation) for r in every) == [(FIRST, 1), (SECOND, 1)]
        assert await first.lives()
        assert (await asker.own(op=DESCRIBE, group="others")).resources == []


async def test_who_may_not_is_told_so() -> None:
    """Town-36 and the rights of claims."""
    denied: set[tuple[Operation, ResourceType]] = set()

    def is_allowed(_principal: str, operation: Operation, resource: Resource) -> bool:
        return (operation, resource.type) not in denied

    async with serving(is_allowed=is_allowed) as (served, _):
        first = await owner(served)
        await first.granted()
        denied.update({(Operation.DESCRIBE, ResourceType.TOPIC)})
        asker = await owner(served)
        assert (await asker.claim(0, op=DESCRIBE)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await asker.own(op=DESCRIBE)).resources == []
        denied.update({(Operation.ALTER, ResourceType.TOPIC), (Operation.ALTER, ResourceType.CLUSTER)})
        assert (await asker.claim(0)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await asker.claim(9, exclusive=1)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await asker.claim(0, "n")).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        denied.add((Operation.WRITE, ResourceType.TOPIC))
        assert await asker.granted(1) == 2
        denied.add((Operation.READ, ResourceType.TOPIC))
        assert (await asker.claim(9)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        denied.add((Operation.READ, ResourceType.GROUP))
        assert (await asker.own((FIRST, 9))).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        denied.add((Operation.DESCRIBE, ResourceType.GROUP))
        assert (await asker.own(op=DESCRIBE)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_limits_and_the_switch() -> None:
    async with serving({"own.max.resources.per.connection": "2"}) as (served, _):
        first = await owner(served)
        assert (await first.own(("a", 1), ("b", 1), ("c", 1))).error_code == ErrorCode.POLICY_VIOLATION
        await first.own(("a", 1), ("b", 1))
        assert (await first.own(("c", 1))).error_code == ErrorCode.POLICY_VIOLATION
        assert (await first.own(("b", 1), ("c", 1))).error_code == ErrorCode.POLICY_VIOLATION
        assert await first.granted(1, "a") == 1, "what it has already adds nothing"
    async with serving({"own.max.entries": "1"}) as (served, _):
        first = await owner(served)
        assert (await first.own(("a", 1), ("b", 1))).error_code == ErrorCode.POLICY_VIOLATION
        await first.granted(1, "a")
        second = await owner(served)
        assert (await second.own(("b", 1))).error_code == ErrorCode.POLICY_VIOLATION
        assert await second.granted(1, "a") == 2, "a takeover adds none"
    async with serving({"own.enable": "false"}) as (served, _):
        first = await owner(served)
        assert (await first.own(("a", 1))).error_code == ErrorCode.POLICY_VIOLATION


async def test_people_are_told_who_owns_what_and_who_was_refused_last() -> None:
    async with serving() as (served, client):
        first, second = await owner(served, "one"), await owner(served, "two")
        await first.granted(exclusive=1)
        await (await owner(served, "three")).granted(group="readers")
        await second.refused(1, op=IF_UNOWNED)
        _, waiting = await standing_by(served)
        answer = await client.ask(InspectRequest(kind="own", args=[GROUP]), InspectResponse, 0)
        (row,) = json.loads(answer.body)["own"]
        assert (row["group"], row["resource"], row["generation"]) == (GROUP, FIRST, 1)
        assert (row["owner"]["client_id"], row["exclusive"], row["standbys"]) == ("one", ["produce"], 1)
        assert row["refused"]["client_id"] == "two"
        everything = await client.ask(InspectRequest(kind="own", args=[]), InspectResponse, 0)
        assert len(json.loads(everything.body)["own"]) == 2
        status, text = await served.page("/metrics")
        assert status == 200
        assert "headrace_ownedresources 2" in text and "headrace_owngrants_total 2" in text
        waiting.cancel()
