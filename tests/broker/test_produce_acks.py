"""When a producer is answered: after the write, after the sync where the topic asks for it, or never."""

import asyncio

import pytest

from headrace.broker.appends import FLUSHES_MAX
from headrace.errors import ErrorCode
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.peer import PeerLost
from headrace.testing import Cluster
from headrace.wire.frames import decode_response, encode_request
from headrace.wire.messages.fetch import FetchResponse
from headrace.wire.messages.produce import ProduceRequest, ProduceResponse, TopicProduceData
from headrace.wire.messages.versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.support import (
    DEBUG_REPLICA,
    TOPIC,
    Client,
    Served,
    fetch_request,
    numbered,
    only_partition,
    produce_request,
    records_of,
    serving,
    until,
    values_of,
)
from tests.net.loops import on_both_loops

SYNCED = {"flush.messages": "1"}
FILES = "files"


async def turns(count: int = 20) -> None:
    """Long enough for whatever would be done without waiting for anything."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_produce_request_is_answered_with_acks(acks: int) -> None:
    async with serving() as (_, client):
        assert (await client.produce(acks=acks)).base_offset == 0


@pytest.mark.parametrize("acks", [2, -2, 32767])
async def test_other_acks_are_refused_and_nothing_is_stored(acks: int) -> None:
    async with serving(partitions=2) as (_, client):
        request = produce_request({0: records_of(), 1: records_of()}, acks=acks)
        answer = await client.ask(request, ProduceResponse, 12)
        codes = [a.error_code for a in answer.responses[0].partition_responses]
        assert codes == [ErrorCode.INVALID_REQUIRED_ACKS] * 2
        assert await client.offset() == 0


@on_both_loops
async def test_without_acks_nothing_is_answered_and_the_order_of_other_answers_holds() -> None:
    async with serving() as (served, client):
        raw = await served.raw()
        raw.send(encode_request(produce_request({0: records_of([b"a"])}, acks=0), 9, 1, None))
        raw.send(encode_request(ApiVersionsRequest(), 0, 2, None))
        raw.send(encode_request(produce_request({0: records_of([b"b"])}, acks=0), 9, 3, None))
        raw.send(encode_request(produce_request({0: records_of([b"c"])}, acks=1), 9, 4, None))
        assert decode_response(ApiVersionsResponse, 0, await raw.frame())[0] == 2
        correlation_id, body = decode_response(ProduceResponse, 9, await raw.frame())
        assert (correlation_id, only_partition(body).base_offset) == (4, 2)
        assert values_of((await client.fetch(0)).records) == [b"a", b"b", b"c"]
        raw.close()


async def test_without_acks_an_error_is_told_by_closing() -> None:
    async with serving() as (served, client):
        for topic, raw_batch in [(TOPIC, records_of(control=True)), ("nobody", records_of())]:
            raw = await served.raw()
            raw.send(encode_request(produce_request({0: raw_batch}, topic=topic, acks=0), 9, 1, None))
            assert await raw.is_closed()
            raw.close()
        assert await client.offset() == 0


async def held_batch(served: Served, client: Client, acks: int = -1) -> "asyncio.Future[ProduceResponse]":
    """A produce request whose batch is written and waits for its sync."""
    served.world.offload.hold(FILES)
    asked = client.send(acks=acks)
    await until(lambda: served.world.offload.held(FILES))
    return asked


@pytest.mark.parametrize("acks", [1, -1])
async def test_with_flush_messages_1_the_answer_waits_for_the_sync(acks: int) -> None:
    async with serving(topic=SYNCED) as (served, client):
        asked = await held_batch(served, client, acks=acks)
        await turns()
        assert not asked.done()
        synced = served.world.memory
        served.world.offload.release(FILES)
        assert only_partition(await asked).base_offset == 0
        await served.kill()
        synced.lose_power()
        async with served.world.started() as again:
            assert await (await again.client()).offset() == 1


async def test_nobody_sees_what_is_not_synced_yet() -> None:
    async with serving(topic=SYNCED) as (served, client):
        await client.produce(records_of([b"old"]))
        asked = await held_batch(served, client)
        other = await served.client()
        assert await other.offset() == 1
        assert await other.offset(replica_id=DEBUG_REPLICA) == 1
        assert await other.offset(-3) == 0
        fetched = await other.fetch(0)
        assert values_of(fetched.records) == [b"old"]
        assert fetched.high_watermark == 1
        assert (await other.fetch(0, replica_id=DEBUG_REPLICA)).high_watermark == 1
        served.world.offload.release(FILES)
        assert only_partition(await asked).base_offset == 1
        assert await other.offset() == 2


async def test_a_waiting_fetch_is_woken_by_the_sync_and_not_by_the_write() -> None:
    async with serving(topic=SYNCED) as (served, client):
        other = await served.client()
        waiting = other.peer.send(fetch_request(0, max_wait_ms=60_000), FetchResponse, 12)
        asked = await held_batch(served, client)
        await turns()
        assert not waiting.done()
        served.world.offload.release(FILES)
        await asked
        assert values_of((await waiting).responses[0].partitions[0].records) == [b"a value"]


async def test_batches_that_come_during_a_sync_share_the_next_one() -> None:
    async with serving(topic=SYNCED) as (served, client):
        first = await held_batch(served, client)
        later = [client.send() for _ in range(10)]
        await turns(50)
        assert served.world.offload.held(FILES) == 1
        served.world.offload.step(FILES)
        assert only_partition(await first).base_offset == 0
        assert not any(future.done() for future in later)
        await until(lambda: served.world.offload.held(FILES))
        assert served.world.offload.held(FILES) == 1
        served.world.offload.step(FILES)
        assert [only_partition(await future).base_offset for future in later] == list(range(1, 11))


async def test_many_partitions_are_synced_a_few_at_a_time_and_all_of_them() -> None:
    """Every sync that is prepared holds descriptors."""
    async with serving(topic=SYNCED, partitions=100) as (served, client):
        served.world.offload.hold(FILES)
        request = produce_request({index: records_of() for index in range(100)})
        asked = client.peer.send(request, ProduceResponse, 12)
        await until(lambda: served.world.offload.held(FILES))
        most = 0
        while not asked.done():
            most = max(most, served.world.offload.held(FILES))
            if served.world.offload.held(FILES):
                served.world.offload.step(FILES)
            await asyncio.sleep(0)
        assert 0 < most <= FLUSHES_MAX
        codes = [a.error_code for a in asked.result().responses[0].partition_responses]
        assert codes == [0] * 100


async def test_a_topic_deleted_while_its_syncs_are_not_even_prepared_is_gone() -> None:
    async with serving(topic=SYNCED, partitions=100) as (served, client):
        served.world.offload.hold(FILES)
        request = produce_request({index: records_of() for index in range(100)})
        asked = client.peer.send(request, ProduceResponse, 12)
        await until(lambda: served.world.offload.held(FILES))
        other = await served.client()
        await other.delete_topic()
        codes = [a.error_code for a in (await asked).responses[0].partition_responses]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 100
        served.world.offload.release(FILES)
        await other.create_topic(settings=SYNCED)
        assert (await other.produce()).base_offset == 0


@on_both_loops
async def test_syncs_in_a_thread_on_a_real_disk_answer_everybody() -> None:
    async with Cluster({"log.flush.interval.messages": "1"}) as cluster:
        hub = Hub(asyncio.get_running_loop(), Limits())
        clients = [await Client.connect(cluster.bootstrap, hub) for _ in range(4)]
        await clients[0].create_topic(partitions=4)
        asked = [clients[n % 4].send(records_of([b"%d" % n]), n % 4) for n in range(100)]
        offsets = [only_partition(await future).base_offset for future in asked]
        assert offsets == [n // 4 for n in range(100)]
        for partition in range(4):
            assert await clients[0].read_all(0, partition) == [b"%d" % n for n in range(partition, 100, 4)]
        for client in clients:
            client.peer.close()


async def test_flush_messages_3_syncs_before_the_answer_of_every_third_record() -> None:
    async with serving(topic={"flush.messages": "3"}) as (served, client):
        served.world.offload.hold(FILES)
        assert (await client.produce()).base_offset == 0
        assert (await client.produce()).base_offset == 1
        third = client.send()
        await until(lambda: served.world.offload.held(FILES))
        assert not third.done()
        served.world.offload.release(FILES)
        assert only_partition(await third).base_offset == 2


async def test_other_partitions_do_not_wait_for_a_sync() -> None:
    async with serving(topic=SYNCED) as (served, client):
        await client.create_topic("quick")
        asked = await held_batch(served, client)
        other = await served.client()
        assert (await other.produce(topic="quick")).base_offset == 0
        assert not asked.done()


async def test_syncing_by_age_does_not_delay_answers() -> None:
    async with serving({"log.flush.scheduler.interval.ms": "2"}, topic={"flush.ms": "5"}) as (served, client):
        await client.produce()
        served.world.offload.hold(FILES)
        served.world.clock.now_ms += 5
        await until(lambda: served.world.offload.held(FILES))
        assert (await client.produce()).base_offset == 1
        assert await client.offset() == 2


async def test_a_duplicate_of_a_batch_that_waits_for_its_sync_waits_too() -> None:
    async with serving(topic=SYNCED) as (served, client):
        served.world.offload.hold(FILES)
        first = client.send(numbered((1, 0, 0)))
        other = await served.client()
        again = other.send(numbered((1, 0, 0)))
        await turns(50)
        assert not first.done() and not again.done()
        served.world.offload.release(FILES)
        assert [only_partition(await asked).base_offset for asked in (first, again)] == [0, 0]
        assert await client.offset() == 1


async def test_a_request_that_waits_too_long_times_out_and_its_retry_finds_the_batch() -> None:
    async with serving(topic=SYNCED) as (served, client):
        served.world.offload.hold(FILES)
        answer = await client.produce(numbered((1, 0, 0)), timeout_ms=20)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        broker = served.node.broker
        assert broker is not None
        (partition,) = broker.partitions
        assert not partition.waiting_acks
        served.world.offload.release(FILES)
        assert (await client.produce(numbered((1, 0, 0)))).base_offset == 0
        assert await client.offset() == 1


async def test_only_the_partition_that_is_late_times_out() -> None:
    async with serving(topic=SYNCED) as (served, client):
        await client.create_topic("quick")
        data = [
            TopicProduceData(name=name, partition_data=produce_request({0: records_of()}).topic_data[0].partition_data)
            for name in (TOPIC, "quick", "nobody")
        ]
        served.world.offload.hold(FILES)
        request = ProduceRequest(acks=-1, timeout_ms=20, topic_data=data)
        answer = await client.ask(request, ProduceResponse, 12)
        codes = {t.name: t.partition_responses[0].error_code for t in answer.responses}
        assert codes == {TOPIC: ErrorCode.REQUEST_TIMED_OUT, "quick": 0, "nobody": 3}


@pytest.mark.parametrize("late", [0, 1])
async def test_two_partitions_that_wait_are_told_apart_when_one_is_late(late: int) -> None:
    """The request waits at one of them; the other is synced meanwhile."""
    async with serving(topic=SYNCED, partitions=2) as (served, client):
        served.world.offload.hold(FILES)
        request = produce_request({0: records_of(), 1: records_of()}, timeout_ms=700)
        asked = client.peer.send(request, ProduceResponse, 12)
        await until(lambda: served.world.offload.held(FILES) == 2)
        if late == 0:
            served.world.offload.swap(FILES)
        served.world.offload.step(FILES)
        answers = (await asked).responses[0].partition_responses
        assert {a.index: a.error_code for a in answers} == {late: ErrorCode.REQUEST_TIMED_OUT, 1 - late: 0}


async def test_deleting_a_topic_answers_those_who_wait_for_its_sync() -> None:
    async with serving(topic=SYNCED) as (served, client):
        asked = await held_batch(served, client)
        other = await served.client()
        await other.delete_topic()
        assert only_partition(await asked).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        served.world.offload.release(FILES)  # the sync ends after its files were renamed
        await turns()
        await other.create_topic()
        assert (await other.produce()).base_offset == 0


async def test_a_client_that_leaves_while_its_request_waits_leaves_nothing_behind() -> None:
    async with serving(topic=SYNCED) as (served, client):
        gone = await served.client()
        asked = await held_batch(served, gone)
        gone.peer.close()
        with pytest.raises(PeerLost):
            await asked
        await turns()
        served.world.offload.release(FILES)
        assert await client.offset() == 1
        assert (await client.produce()).base_offset == 1


async def test_a_waiting_request_keeps_later_answers_of_its_connection_back_but_not_the_work() -> None:
    async with serving(topic=SYNCED) as (served, client):
        await client.create_topic("quick")
        first = await held_batch(served, client)
        second = client.send(topic="quick")
        await turns(50)
        assert not second.done()
        other = await served.client()
        assert await other.offset(topic="quick") == 1
        served.world.offload.release(FILES)
        await first
        assert only_partition(await second).base_offset == 0


async def test_a_stopping_node_answers_who_waits_for_a_sync() -> None:
    async with serving(topic=SYNCED) as (served, client):
        asked = await held_batch(served, client)
        stopping = asyncio.ensure_future(served.node.stop())
        await turns()
        assert not asked.done()
        served.world.offload.release(FILES)
        assert only_partition(await asked).base_offset == 0
        await stopping
