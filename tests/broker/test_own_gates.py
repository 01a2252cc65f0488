"""Produce and fetch at partitions that somebody owns. Scenarios by their ids."""

import asyncio
import time

import pytest

from headrace.broker.ownership_metrics import OwnMetrics
from headrace.controller.configs import Edit, EditKind
from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.messages.produce import ProduceResponse
from tests.broker.owning import DENIED, FENCED, FIRST, GROUP, ME, NOT_HERE, OTHER, RELEASE, Owner, owner
from tests.broker.support import (
    DEBUG_REPLICA,
    TOPIC,
    Served,
    fetch_request,
    only_partition,
    produce_request,
    records_of,
    serving,
    until,
    values_of,
)

WRITERS = {"own.produce.group": GROUP}
READERS = {"own.fetch.group": GROUP}


def metrics(served: Served) -> OwnMetrics:
    assert served.node.broker is not None
    return served.node.broker.ownership.metrics


async def codes(writer: Owner, *readers: Owner) -> list[int]:
    return [(await writer.produce()).error_code, *[(await reader.fetch(0)).error_code for reader in readers]]


@pytest.mark.parametrize("settings", [WRITERS, {}])
@pytest.mark.parametrize("acks", [-1, 1, 0])
async def test_no_record_of_the_old_owner_is_at_or_after_the_fence(acks: int, settings: dict[str, str]) -> None:
    """Town-9, Town-10: a thousand produces are under way while another takes over."""
    async with serving(topic=settings) as (served, _):
        old, new = await owner(served), await owner(served)
        await old.granted()
        sent = []
        for number in range(1_000):
            if old.peer.closed:
                break
            request = produce_request({0: records_of([b"old %d" % number])}, acks=acks)
            if acks:
                sent.append(old.peer.send(request, ProduceResponse, 9))
            else:
                old.peer.tell(request, 9)
            if number == 500:
                taken = new.send_own((FIRST, 1))
                await asyncio.sleep(0)
            if number % 50 == 0:
                await asyncio.sleep(0)
        claimed = (await taken).resources[0]
        assert (claimed.error_code, claimed.generation) == (0, 2)
        assert (await new.produce(records_of([b"new"]))).base_offset == claimed.fence_offset
        assert await old.is_cut()
        await asyncio.gather(*sent, return_exceptions=True)
        values = await new.read_all()
        assert values[claimed.fence_offset :] == [b"new"]
        assert all(value is not None and value.startswith(b"old") for value in values[: claimed.fence_offset])
        acknowledged = [f.result() for f in sent if not f.exception() and not only_partition(f.result()).error_code]
        assert all(only_partition(answer).base_offset < claimed.fence_offset for answer in acknowledged)


async def test_a_parked_fetch_of_the_old_owner_never_delivers() -> None:
    """Town-11."""
    async with serving() as (served, client):
        old, new = await owner(served), await owner(served)
        await old.granted()
        parked = old.peer.send(fetch_request(0, max_wait_ms=60_000), FetchResponse, 12)
        await until(lambda: served.node.broker and served.node.broker.fetch_events.sessions.parked)
        await asyncio.gather(new.granted(1), client.produce())
        with pytest.raises(PeerLost):
            await parked


async def test_with_the_setting_only_the_owner_writes_and_without_an_owner_nobody_does() -> None:
    """Town-33 on one broker."""
    async with serving(topic=WRITERS) as (served, client):
        first, second = await owner(served), await owner(served)
        assert (await client.produce()).error_code == NOT_HERE
        await first.granted()
        assert await codes(first, second) == [0, 0]
        assert (await second.produce()).error_code == FENCED
        await second.granted(1)
        assert await codes(second) == [0]
        assert (await client.produce()).error_code == FENCED
        second.peer.close()
        await until(lambda: not metrics(served).owned)
        assert (await client.produce()).error_code == NOT_HERE


async def test_with_the_setting_only_the_owner_reads_and_debuggers_are_no_exception() -> None:
    async with serving(topic=READERS) as (served, client):
        first, second = await owner(served), await owner(served)
        await client.produce(records_of([b"a"]))
        for replica_id in (-1, DEBUG_REPLICA):
            assert (await second.fetch(0, replica_id=replica_id)).error_code == NOT_HERE
        await first.granted()
        assert values_of((await first.fetch(0)).records) == [b"a"]
        for replica_id in (-1, DEBUG_REPLICA):
            assert (await second.fetch(0, replica_id=replica_id)).error_code == DENIED


async def test_an_exclusive_claim_keeps_others_out_without_any_setting() -> None:
    """Town-25: an old producer that comes back, on another connection, is fenced."""
    async with serving() as (served, client):
        old, new = await owner(served), await owner(served)
        await old.granted(exclusive=1)
        assert await codes(old) == [0]
        assert (await client.produce()).error_code == FENCED
        await new.granted(1, exclusive=3)
        assert await old.is_cut()
        back = await owner(served)
        assert (await back.produce()).error_code == FENCED
        assert (await back.fetch(0)).error_code == DENIED
        assert await codes(new, new) == [0, 0]


async def test_without_retention_an_exclusive_claim_ends_with_its_owner() -> None:
    async with serving() as (served, client):
        first = await owner(served)
        await first.granted(exclusive=3)
        assert (await client.produce()).error_code == FENCED
        assert (await first.own((FIRST, 0), op=RELEASE)).resources[0].error_code == 0
        assert (await client.produce()).error_code == 0
        assert (await client.fetch(0)).error_code == 0


async def test_who_is_bound_to_the_group_is_denied_where_another_owns() -> None:
    """Also without a gate; who is not bound may write."""
    async with serving(partitions=2) as (served, client):
        first, second = await owner(served), await owner(served)
        await first.granted()
        await second.granted(1, f"{TOPIC}-1")
        assert (await second.produce()).error_code == FENCED
        assert (await second.fetch(0)).error_code == DENIED
        assert (await second.produce(partition=1)).error_code == 0
        assert (await client.produce()).error_code == 0


async def test_who_writes_without_acks_where_it_is_denied_is_cut() -> None:
    async with serving(topic=WRITERS) as (served, _):
        first, second = await owner(served), await owner(served)
        await first.granted()
        second.peer.tell(produce_request({0: records_of()}, acks=0), 9)
        assert await second.is_cut()


async def test_a_companion_lends_its_ownership_to_a_client_id_and_takes_it_back() -> None:
    async with serving(topic={**WRITERS, **READERS}) as (served, _):
        companion, data, other = await owner(served, "c"), await owner(served, "app-1"), await owner(served, "app-2")
        await companion.granted(bind_client_id="app-1")
        assert await codes(data, data) == [0, 0]
        assert await codes(other, other) == [FENCED, DENIED]
        taker = await owner(served, "t")
        await taker.granted(1, bind_client_id="app-2")
        assert await data.is_cut() and await companion.is_cut()
        assert await codes(other, other) == [0, 0]
        back = await owner(served, "app-1")
        assert await codes(back, back) == [FENCED, DENIED]


async def test_a_client_id_of_another_principal_is_not_bound() -> None:
    """Town-15."""
    async with serving(topic={**WRITERS, **READERS}) as (served, _):
        companion, victim = await owner(served, "c"), await owner(served, "app")
        broker = served.node.broker
        assert broker is not None
        (connection,) = [known for known in broker.ownership.connections() if known.client_id == "app"]
        connection.principal = "User:somebody-else"
        await companion.granted(bind_client_id="app")
        assert await codes(victim, victim) == [FENCED, DENIED]
        taker = await owner(served, "t")
        await taker.granted(1)
        assert await companion.is_cut()
        assert await codes(victim, victim) == [FENCED, DENIED]


async def test_nobody_binds_the_client_id_of_an_owner_that_it_displaces() -> None:
    """Town-41: two that name no holder differ; who names the same is the same."""
    async with serving() as (served, _):
        first, second, third, fourth = [await owner(served, name) for name in "abcd"]
        await first.granted(bind_client_id="app")
        claimed = await second.claim(1, bind_client_id="app")
        assert claimed.error_code == ErrorCode.INVALID_REQUEST
        assert await first.lives()
        await second.granted(1, bind_client_id="app2", holder=ME)
        assert (await third.claim(2, bind_client_id="app2", holder=OTHER)).error_code == ErrorCode.INVALID_REQUEST
        data = await owner(served, "app2")
        await data.produce()
        assert (await fourth.resume(2, bind_client_id="app2")).error_code == 0
        assert await second.is_cut()
        assert (await data.produce()).error_code == 0, "it stands for the one that resumed"


async def test_who_reads_where_nobody_owns_is_not_answered_at_once() -> None:
    """Town-45: at most two fetches in a second; owned meanwhile, it is judged at once."""
    async with serving(topic=READERS) as (served, client):
        await client.produce(records_of([b"a"]))
        reader, other = await owner(served), await owner(served)
        began = time.monotonic()
        async with asyncio.timeout(30):
            fetched = await reader.fetch(0, max_wait_ms=60_000)
        assert (fetched.error_code, time.monotonic() - began >= 0.49) == (NOT_HERE, True)
        parked = asyncio.ensure_future(reader.fetch(0, max_wait_ms=5_000))
        await until(lambda: served.node.broker and served.node.broker.fetch_events.sessions.parked)
        await other.granted()
        assert (await parked).error_code == DENIED


async def test_a_busy_partition_of_the_session_does_not_wait_for_one_that_nobody_owns() -> None:
    """Town-45."""
    async with serving(topic=READERS, partitions=2) as (served, client):
        reader = await owner(served)
        await reader.granted(1, f"{TOPIC}-1")
        await client.produce(records_of([b"a"]), 1)
        asked = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in (0, 1)]
        request = FetchRequest(
            max_wait_ms=60_000, min_bytes=1, session_epoch=0, topics=[FetchTopic(topic=TOPIC, partitions=asked)]
        )
        answer = await reader.ask(request, FetchResponse, 12)
        told = {data.partition_index: data for data in answer.responses[0].partitions}
        assert (told[0].error_code, values_of(told[1].records)) == (NOT_HERE, [b"a"])


async def test_a_session_that_comes_on_another_connection_is_judged_anew() -> None:
    """Town-41."""
    async with serving(topic=READERS) as (served, client):
        await client.produce(records_of([b"a"]))
        first, second = await owner(served), await owner(served)
        await first.granted()
        asked = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic=TOPIC, partitions=[asked])]
        opened = await first.ask(
            FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=topics), FetchResponse, 12
        )
        assert opened.session_id and opened.responses[0].partitions[0].error_code == 0

        async def go_on(by: Owner, epoch: int) -> FetchResponse:
            request = FetchRequest(
                max_wait_ms=0, min_bytes=1, session_id=opened.session_id, session_epoch=epoch, topics=[]
            )
            return await by.ask(request, FetchResponse, 12)

        stolen = await go_on(second, 1)
        assert stolen.responses[0].partitions[0].error_code == DENIED, "also where there is nothing to read"
        await client.produce(records_of([b"b"]))
        stolen = await go_on(second, 2)
        assert (stolen.responses[0].partitions[0].error_code, stolen.responses[0].partitions[0].records) == (
            DENIED,
            b"",
        )
        returned = await go_on(first, 3)
        assert values_of(returned.responses[0].partitions[0].records) == [b"b"]


async def test_a_session_hears_of_the_loss_of_its_partition() -> None:
    async with serving(topic=READERS, partitions=2) as (served, _):
        first, second = await owner(served), await owner(served)
        await first.own((FIRST, 1), (f"{TOPIC}-1", 1))
        asked = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in (0, 1)]
        request = FetchRequest(
            max_wait_ms=600_000, min_bytes=1, session_epoch=0, topics=[FetchTopic(topic=TOPIC, partitions=asked)]
        )
        data = await owner(served, "data")
        await second.granted(1, f"{TOPIC}-1", bind_client_id="data")
        parked = asyncio.ensure_future(data.ask(request, FetchResponse, 12))
        await until(lambda: served.node.broker and served.node.broker.fetch_events.sessions.parked)
        second.peer.close()
        answer = await parked
        assert {d.partition_index: d.error_code for d in answer.responses[0].partitions} == {0: NOT_HERE, 1: NOT_HERE}


async def test_a_setting_acts_when_it_is_made_and_when_it_is_taken_back() -> None:
    async with serving() as (served, client):
        broker = served.node.broker
        assert broker is not None
        assert (await client.produce()).error_code == 0
        made = [Edit("own.produce.group", EditKind.SET, GROUP)]
        await broker.controller.alter_topic_settings(TOPIC, lambda _: made)
        assert (await client.produce()).error_code == NOT_HERE
        await broker.controller.alter_topic_settings(
            TOPIC, lambda _: [Edit("own.produce.group", EditKind.DELETE, None)]
        )
        assert (await client.produce()).error_code == 0
        assert not broker.ownership.gates


async def test_what_nobody_owns_has_no_gate() -> None:
    async with serving() as (served, client):
        broker = served.node.broker
        assert broker is not None
        await client.produce()
        assert not broker.ownership.gates
        assert all(partition.own is None for partition in broker.partitions)
