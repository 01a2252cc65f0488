"""Producers and consumers of an ownership: they work while it is held."""

import asyncio
from typing import Any

import pytest

from headrace import own
from headrace.client import Producer
from headrace.client.cluster import Cluster
from headrace.errors import ErrorCode, KafkaError
from headrace.net.peer import Peer
from headrace.net.transport import Address
from headrace.own.link import Link
from tests.own.stage import T0, Stage, play, written_to


def test_a_producer_raises_once_another_has_taken_over_and_nothing_it_held_is_sent() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with anna.claim("t-0") as old, old.producer(linger_ms=60_000) as producer:
            held_back = producer.send("t", b"held back", partition=0)
            async with ben.claim("t-0", 1) as new, written_to(new) as write:
                await stage.until(lambda: old.is_gone)
                with pytest.raises(own.OwnershipLost):
                    producer.send("t", b"too late", partition=0)
                with pytest.raises(own.OwnershipLost):
                    await held_back
                await write(b"ben's")
            await producer.flush()
        assert await stage.read() == [b"ben's"]

    play(scenario)


@pytest.mark.parametrize("seed", range(8))
def test_no_record_of_the_old_owner_is_at_or_after_the_fence_even_where_brokers_gate_nothing(seed: int) -> None:
    """Its connections break at the same time, and it connects again."""

    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        answers: list[Any] = []

        async def write_on() -> None:
            async with anna.claim("t-0") as ownership, ownership.producer(linger_ms=0, batch_bytes=1) as producer:
                while True:
                    await ownership.regained()
                    for _ in range(5):
                        answers.append(producer.send("t", b"anna %d" % len(answers), partition=0))
                    await asyncio.sleep(0.002)

        writing = anna.start(write_on())
        await asyncio.sleep(0.3)
        breaking = asyncio.create_task(break_often(anna))
        await asyncio.sleep(0.01 * seed)
        async with ben.claim("t-0", 1) as ownership, written_to(ownership) as write:
            for number in range(20):
                await write(b"ben %d" % number)
                await asyncio.sleep(0.05)
            fence = ownership.fence_offset
        await breaking
        with pytest.raises(own.OwnershipLost):
            await writing
        log = await stage.read()
        assert any(value.startswith(b"anna") for value in log[:fence])
        assert all(value.startswith(b"ben") for value in log[fence:])
        assert len(log) == fence + 20
        await asyncio.gather(*answers, return_exceptions=True)

    async def break_often(anna: Any) -> None:
        for _ in range(100):
            anna.break_connections()
            await asyncio.sleep(0.003)

    play(scenario, seed=seed)


def test_a_producer_goes_on_when_its_partition_is_led_by_another_broker() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna = stage.claimer("anna")
        async with anna.claim("t-0", exclusive="produce") as ownership, written_to(ownership) as write:
            await write(b"1")
            under_way = write(b"2")
            stage.world.nodes[stage.leader() - 1].kill()
            await ownership.lost.wait()
            with pytest.raises(own.OwnershipLost):
                write(b"not taken")
            await ownership.regained()
            await under_way
            await write(b"3")
        assert await stage.read() == [b"1", b"2", b"3"]

    play(scenario, brokers=3)


def test_a_consumer_raises_while_it_is_lost_and_goes_on_where_it_stood() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create(own_fetch_group="g")
        await stage.write(*[b"%d" % number for number in range(100)])
        anna = stage.claimer("anna")
        async with anna.claim("t-0") as ownership, ownership.consumer() as consumer:
            consumer.assign([T0])
            read = [record.value for record in await consumer.poll(5_000, 10)]
            anna.break_connections()
            await ownership.lost.wait()
            with pytest.raises(own.OwnershipLost):
                await consumer.poll(1_000)
            await ownership.regained()
            while len(read) < 100:
                read += [record.value for record in await consumer.poll(5_000, 10)]
            assert read == [b"%d" % number for number in range(100)]

    play(scenario, brokers=3)


def test_a_consumer_whose_partition_was_taken_over_is_told() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create(own_fetch_group="g")
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with anna.claim("t-0") as old, old.consumer() as consumer:
            consumer.assign([T0])
            polling = asyncio.create_task(consumer.poll(100_000))
            await asyncio.sleep(1)
            async with ben.claim("t-0", 1) as new, new.consumer() as other:
                with pytest.raises(own.OwnershipLost):
                    await polling
                await stage.write(b"for ben")
                other.assign([T0])
                assert [record.value for record in await other.poll(5_000)] == [b"for ben"]

    play(scenario)


def test_an_exclusive_claim_keeps_others_out_until_it_is_left() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna = stage.claimer("anna")
        async with anna.claim("t-0", exclusive="produce") as ownership, written_to(ownership) as write:
            await write(b"anna's")
            with pytest.raises(KafkaError) as refused:
                await stage.write(b"somebody's")
            assert refused.value.code is ErrorCode.PRODUCER_FENCED
            assert await stage.read() == [b"anna's"]
        await stage.write(b"everybody's")
        assert await stage.read() == [b"anna's", b"everybody's"]

    play(scenario)


def test_the_backlog_is_all_that_earlier_owners_wrote_and_nothing_else() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with anna.claim("t-0") as old, written_to(old) as write:
            await asyncio.gather(*[write(b"%d" % number) for number in range(50)])
            async with ben.claim("t-0", 1) as new, written_to(new) as write_too:
                await write_too(b"new")
                assert [r.value async for r in new.backlog("t-0")] == [b"%d" % number for number in range(50)]
                assert [r.value async for r in new.backlog(T0, 48)] == [b"48", b"49"]

    play(scenario)


def test_clients_of_a_claim_that_was_left_do_not_work() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        async with stage.claimer("anna").claim("t-0") as ownership:
            producer = ownership.producer()
            assert isinstance(producer, Producer)
        with pytest.raises(own.OwnershipLost, match="the claim has been left"):
            async with producer:
                pass

    play(scenario)


def test_a_connection_is_used_only_after_the_broker_has_shown_that_the_ownership_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the broker knows the connection when it severs those of the owner."""
    proofs: list[str] = []
    prove = Link.prove

    async def spied(link: Link) -> None:
        await prove(link)
        proofs.append(f"node {link.node_id}")

    monkeypatch.setattr(Link, "prove", spied)

    async def scenario(stage: Stage) -> None:
        await stage.create()
        async with stage.claimer("anna").claim("t-0", wait=True) as ownership, written_to(ownership) as write:
            sent = write(b"1")
            await stage.until(lambda: proofs)
            assert not sent.done()
            await sent
            await write(b"2")
            assert proofs == [f"node {stage.leader()}"]

    play(scenario)


def test_an_owner_writes_over_the_connection_on_which_it_asked_who_leads_and_it_is_severed_with_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was made before the claim, so what was granted has been shown since."""
    made: list[Address] = []
    connected = Cluster._connected

    async def spied(cluster: Cluster, address: Address) -> Peer:
        made.append(address)
        return await connected(cluster, address)

    monkeypatch.setattr(Cluster, "_connected", spied)

    async def scenario(stage: Stage) -> None:
        await stage.create()
        made.clear()
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with anna.claim("t-0") as old:
            for value in (b"1", b"2"):  # one producer after the other
                async with written_to(old) as write:
                    await write(value)
            assert not made
            (peer,) = old.cluster._peers.values()
            async with ben.claim("t-0", 1):
                await stage.until(lambda: peer.closed)

    play(scenario)


def test_a_claim_that_fails_and_one_that_is_left_leave_no_connection_behind() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        (node,) = stage.world.nodes
        assert node.node is not None and node.node.broker is not None
        ownership = node.node.broker.ownership
        await stage.until(lambda: not any(True for _ in ownership.connections()))
        async with anna.claim("t-0") as old, written_to(old) as write:
            await write(b"1")
            before = len(list(ownership.connections()))
            with pytest.raises(own.AlreadyOwned):
                async with ben.claim("t-0"):
                    pass
            await stage.until(lambda: len(list(ownership.connections())) == before)
        await stage.until(lambda: not any(True for _ in ownership.connections()))

    play(scenario)


def test_a_connection_that_is_made_when_nothing_is_held_any_more_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.create()
        anna, ben = stage.claimer("anna"), stage.claimer("ben")
        async with anna.claim("t-0") as old, written_to(old) as write:
            deaf(old)
            async with ben.claim("t-0", 1) as new, written_to(new) as write_too:
                sent = write(b"too late")  # the loss is not known yet
                await write_too(b"ben's")
                await asyncio.sleep(1)
                with pytest.raises(own.OwnershipLost):
                    await sent
        assert await stage.read() == [b"ben's"]

    def deaf(ownership: own.Ownership) -> None:
        """What the broker says of the ownership by itself is not heard."""
        monkeypatch.setattr(Link, "_keep", lambda _: asyncio.sleep(1_000))
        for link in ownership._holdings.links():
            assert link._keeping is not None
            link._keeping.cancel()

    play(scenario)
