"""What the consumer does with each answer, against a scripted broker: errors cannot be had from a real one at will."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headrace.client import Consumer, ConsumerRecord, NotReachable
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.wire.messages.fetch import FetchRequest, FetchResponse
from headrace.wire.messages.metadata import MetadataRequest
from headrace.wire.messages.offsets import ListOffsetsRequest
from headrace.wire.struct import Message
from tests.client.fake import HANG_UP, SILENCE, FakeBroker, FakeCluster
from tests.client.fake_log import FakeLog, offsets_answer
from tests.net.loops import until

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))


@asynccontextmanager
async def broker_with_log(
    partitions: int = 3, versions_max: dict[int, int] | None = None
) -> AsyncIterator[tuple[FakeBroker, FakeLog]]:
    cluster = FakeCluster()
    cluster.add("t", *[1] * partitions)
    async with FakeBroker(cluster, versions_max=versions_max) as broker:
        yield broker, FakeLog(broker)


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """So many records; no more come for a moment after them."""
    records: list[ConsumerRecord] = []
    async with asyncio.timeout(30):
        while len(records) < count:
            records += await consumer.poll(1000)
    assert len(records) == count
    return records


def values(records: list[ConsumerRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def fetches(broker: FakeBroker) -> list[tuple[int, int, list[tuple[int, int]], list[int]]]:
    """(session id, epoch, [(partition, offset)], [forgotten]) of each Fetch."""
    return [
        (
            request.session_id,
            request.session_epoch,
            [(part.partition, part.fetch_offset) for topic in request.topics for part in topic.partitions],
            [index for topic in request.forgotten_topics_data for index in topic.partitions],
        )
        for request in broker.asked
        if isinstance(request, FetchRequest)
    ]


async def test_records_come_in_order_with_everything_they_carry() -> None:
    async with broker_with_log(1) as (broker, log), Consumer(broker.bootstrap) as consumer:
        log.append(T0, b"a", b"b")
        log.append(T0, b"c")
        consumer.assign([T0])
        records = await read(consumer, 3)
        assert records[1] == ConsumerRecord("t", 0, 1, 1, None, b"b", ())
        assert await consumer.position(T0) == 3 and consumer.lag(T0) == 0
        assert await consumer.poll(20) == []
        log.append(T0, b"d")
        assert values(await read(consumer, 1)) == [b"d"]


async def test_whole_fetches_are_handed_out_and_nothing_is_fetched_from_an_end_on() -> None:
    async with broker_with_log(1) as (broker, log), Consumer(broker.bootstrap, max_wait_ms=20) as consumer:
        log.append(T0, b"a", b"b")
        log.append(T0, b"c")
        consumer.assign([T0])
        consumer.seek(T0, 1, until=2)
        fetched = await consumer.poll_fetched(10_000)
        assert fetched is not None
        assert (fetched.partition, fetched.position) == (T0, 1)
        assert bytes(fetched.data).startswith(log.batches[T0][0])
        assert await consumer.position(T0) == fetched.end >= 2
        asked = len(fetches(broker))
        log.append(T0, b"d")
        assert await consumer.poll_fetched(100) is None
        assert len(fetches(broker)) == asked
        consumer.seek(T0, 0)
        assert values(await read(consumer, 4)) == [b"a", b"b", b"c", b"d"]


async def test_a_session_lists_only_what_changed() -> None:
    async with broker_with_log() as (broker, log), Consumer(broker.bootstrap, max_wait_ms=20) as consumer:
        consumer.assign([T0, T1, T2])
        assert await consumer.poll(50) == []
        log.append(T1, b"a", b"b")
        await read(consumer, 2)
        await until(lambda: any(epoch > 3 for _, epoch, *_ in fetches(broker)))
        first, *rest = fetches(broker)
        assert first == (0, 0, [(0, 0), (1, 0), (2, 0)], [])
        assert {session for session, *_ in rest} == {1001}
        assert [epoch for _, epoch, *_ in rest] == list(range(1, len(rest) + 1))
        assert [listed for _, _, listed, _ in rest if listed] == [[(1, 2)]]


@pytest.mark.parametrize("code", [70, 71, 106])
async def test_a_session_error_starts_a_new_session_at_once_and_loses_nothing(code: int) -> None:
    """T227-27."""
    async with broker_with_log() as (broker, log), Consumer(broker.bootstrap, max_wait_ms=20) as consumer:
        consumer.assign([T0, T1])
        log.append(T0, b"a")
        await read(consumer, 1)
        broker.then(FetchRequest, [FetchResponse(error_code=code, responses=[])])
        log.append(T1, b"b")
        assert values(await read(consumer, 1)) == [b"b"]
        asked = fetches(broker)
        again = next(n for n, (_, epoch, *_) in enumerate(asked) if n and epoch == 0)
        assert asked[again] == (0 if code == 70 else 1001, 0, [(0, 1), (1, 0)], [])


async def test_session_errors_in_a_row_are_not_a_tight_loop() -> None:
    """T227-27."""
    async with broker_with_log() as (broker, _), Consumer(broker.bootstrap, max_wait_ms=20) as consumer:
        consumer.assign([T0])
        broker.always(FetchRequest, lambda _request: FetchResponse(error_code=70, responses=[]))
        assert await consumer.poll(400) == []
        assert 2 <= broker.asked_for(FetchRequest) <= 6


async def test_a_lost_connection_or_a_wrong_answer_starts_over_and_loses_nothing() -> None:
    """T227-27."""
    async with broker_with_log() as (broker, log), Consumer(broker.bootstrap, max_wait_ms=20) as consumer:
        consumer.assign([T0, T1])
        log.append(T0, b"a")
        await read(consumer, 1)
        broker.then(FetchRequest, [HANG_UP])
        log.append(T0, b"b")
        assert values(await read(consumer, 1)) == [b"b"]
        asked = fetches(broker)
        again = next(n for n, (_, epoch, *_) in enumerate(asked) if n and epoch == 0)
        assert asked[again] == (1001, 0, [(0, 1), (1, 0)], [])
        assert asked[again - 1][:1] == (1001,)
        broker.then(FetchRequest, [HANG_UP, FetchResponse(session_id=9, responses=[])])  # a full one without partitions
        log.append(T1, b"c")
        assert values(await read(consumer, 1)) == [b"c"]


async def test_a_broker_that_grants_no_session_is_asked_in_full() -> None:
    """T227-27."""
    async with broker_with_log() as (broker, log), Consumer(broker.bootstrap, max_wait_ms=20) as consumer:

        def sessionless(request: Message) -> object:
            assert isinstance(request, FetchRequest)
            request.session_epoch = -1
            return log.fetch(request)

        broker.always(FetchRequest, sessionless)
        consumer.assign([T0])
        log.append(T0, b"a")
        await read(consumer, 1)
        log.append(T0, b"b")
        await read(consumer, 1)
        assert all(session == 0 and len(listed) == 1 for session, _, listed, _ in fetches(broker))


async def test_leaving_frees_the_session_even_while_a_fetch_waits() -> None:
    """T227-27."""
    async with broker_with_log() as (broker, log):
        async with Consumer(broker.bootstrap, max_wait_ms=60_000) as consumer:
            consumer.assign([T0])
            log.append(T0, b"a")
            await read(consumer, 1)
            await until(lambda: broker.asked_for(FetchRequest) >= 2)
        await until(lambda: fetches(broker)[-1][:2] == (1001, -1))
        assert not log.sessions


async def test_unassigned_partitions_are_forgotten_and_their_records_not_handed_out() -> None:
    async with broker_with_log() as (broker, log), Consumer(broker.bootstrap, max_wait_ms=20) as consumer:
        consumer.assign([T0, T1])
        log.append(T0, b"a")
        await read(consumer, 1)
        consumer.assign([T1])
        log.append(T0, b"never seen")
        await until(lambda: any(forgotten == [0] for *_, forgotten in fetches(broker)))
        log.append(T1, b"b")
        assert values(await read(consumer, 1)) == [b"b"]


async def test_a_seek_wins_over_a_fetch_that_is_under_way() -> None:
    async with broker_with_log() as (broker, log), Consumer(broker.bootstrap, max_wait_ms=200) as consumer:
        log.append(T0, b"a", b"b", b"c")
        log.append(T0, b"d")
        consumer.assign([T0])
        consumer.seek(T0, 2)
        assert values(await read(consumer, 2)) == [b"c", b"d"]
        await until(lambda: broker.asked_for(FetchRequest) >= 2)  # waits at the end
        consumer.seek(T0, 1)
        log.append(T0, b"e")  # answers the fetch that waits
        assert values(await read(consumer, 4)) == [b"b", b"c", b"d", b"e"]


async def test_a_paused_partition_keeps_its_place() -> None:
    async with broker_with_log() as (broker, log), Consumer(broker.bootstrap, max_wait_ms=20) as consumer:
        consumer.assign([T0, T1])
        log.append(T0, b"a", b"b")
        assert values(await consumer.poll(5000, records_max=1)) == [b"a"]
        consumer.pause([T0])
        log.append(T1, b"x")
        assert values(await read(consumer, 1)) == [b"x"]
        assert await consumer.poll(50) == []
        consumer.resume([T0])
        assert values(await read(consumer, 1)) == [b"b"]


@pytest.mark.parametrize("code", [3, 5, 6, 74, 75, 100])
async def test_codes_that_mean_another_leader_ask_for_metadata_and_go_there(code: int) -> None:
    cluster = FakeCluster()
    cluster.add("t", 1, 1)
    async with (
        FakeBroker(cluster, 1) as old,
        FakeBroker(cluster, 2) as new,
        Consumer(old.bootstrap, max_wait_ms=20) as consumer,
    ):
        old_log, new_log = FakeLog(old), FakeLog(new)
        consumer.assign([T0, T1])
        old_log.append(T0, b"a")
        await read(consumer, 1)
        new_log.append(T0, b"a")
        new_log.append(T0, b"b")
        cluster.move("t", 0, 2)
        old_log.codes[T0] = code
        old_log.append(T1, b"wakes the fetch")
        assert set(values(await read(consumer, 2))) == {b"b", b"wakes the fetch"}
        (first, *_) = fetches(new)
        assert first[2] == [(0, 1)]


async def test_a_leader_that_vanished_is_replaced() -> None:
    cluster = FakeCluster()
    cluster.add("t", 1)
    async with (
        FakeBroker(cluster, 1) as old,
        FakeBroker(cluster, 2) as new,
        Consumer(f"{old.bootstrap},{new.bootstrap}", max_wait_ms=20) as consumer,
    ):
        old_log, new_log = FakeLog(old), FakeLog(new)
        consumer.assign([T0])
        old_log.append(T0, b"a")
        await read(consumer, 1)
        new_log.append(T0, b"a")
        new_log.append(T0, b"b")
        cluster.move("t", 0, 2)
        await old.hang_up()
        assert values(await read(consumer, 1)) == [b"b"]


async def test_a_topic_made_anew_is_read_under_its_new_id() -> None:
    async with broker_with_log(1) as (broker, log), Consumer(broker.bootstrap, max_wait_ms=20) as consumer:
        consumer.assign([T0])
        log.append(T0, b"a")
        await read(consumer, 1)
        broker.cluster.topics["t"].topic_id = b"n" * 16
        log.batches[T0].clear()
        log.append(T0, b"new a")
        log.append(T0, b"new b")
        assert values(await read(consumer, 1)) == [b"new b"]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", [b"c", b"d"]), ("latest", [b"e"])])
async def test_an_offset_that_is_gone_moves_to_the_chosen_end(reset: str, expected: list[bytes]) -> None:
    async with (
        broker_with_log() as (broker, log),
        Consumer(broker.bootstrap, auto_offset_reset=reset, max_wait_ms=20) as consumer,  # type: ignore[arg-type]  # parametrized
    ):
        for value in (b"a", b"b", b"c", b"d"):
            log.append(T0, value)
        log.starts[T0] = 2
        consumer.assign([T0])
        consumer.seek(T0, 1)
        if reset == "latest":
            assert await consumer.poll(200) == []
            log.append(T0, b"e")
        assert values(await read(consumer, len(expected))) == expected


async def test_without_a_reset_an_offset_that_is_gone_is_raised_until_somebody_seeks() -> None:
    async with (
        broker_with_log() as (broker, log),
        Consumer(broker.bootstrap, auto_offset_reset="none", max_wait_ms=20) as consumer,
    ):
        log.append(T0, b"a")
        consumer.assign([T0])
        with pytest.raises(KafkaError, match="t-0 has no position"):
            await consumer.poll(1000)
        consumer.seek(T0, 7)
        for _ in range(2):
            with pytest.raises(KafkaError, match="t-0") as caught:
                await consumer.poll(1000)
            assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        consumer.seek(T0, 0)
        assert values(await read(consumer, 1)) == [b"a"]


async def test_a_damaged_batch_is_raised_after_what_is_before_it() -> None:
    async with broker_with_log(1) as (broker, log), Consumer(broker.bootstrap, max_wait_ms=20) as consumer:
        log.append(T0, b"a")
        log.append(T0, b"b")
        log.append(T0, b"c")
        log.batches[T0][1] = log.batches[T0][1][:-1] + b"?"
        consumer.assign([T0])
        assert values(await read(consumer, 1)) == [b"a"]
        for _ in range(2):
            with pytest.raises(KafkaError, match=r"t-0 cannot be read at offset 1: .*checksum"):
                await consumer.poll(1000)
        consumer.seek(T0, 2)
        assert values(await read(consumer, 1)) == [b"c"]


async def test_an_error_for_all_is_raised_for_each() -> None:
    """T227-27."""
    async with broker_with_log() as (broker, _), Consumer(broker.bootstrap, max_wait_ms=20) as consumer:
        broker.always(FetchRequest, lambda _request: FetchResponse(error_code=31, responses=[]))
        consumer.assign([T0])
        with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await consumer.poll(2000)


async def test_a_guarded_leader_is_asked_again_without_metadata() -> None:
    """T207-10."""
    async with broker_with_log() as (broker, log), Consumer(broker.bootstrap) as consumer:
        log.append(T0, b"a")
        await consumer.end_offsets([T0])
        metadata = broker.asked_for(MetadataRequest)
        guarded = [lambda request: offsets_answer(request, lambda *_: (78, -1))] * 3
        broker.then(ListOffsetsRequest, guarded)
        assert await consumer.end_offsets([T0]) == {T0: 1}
        assert broker.asked_for(ListOffsetsRequest) == 5
        assert broker.asked_for(MetadataRequest) == metadata


@pytest.mark.parametrize("code", [5, 6])
async def test_another_leader_is_found_through_metadata(code: int) -> None:
    async with broker_with_log() as (broker, log), Consumer(broker.bootstrap) as consumer:
        log.append(T0, b"a")
        await consumer.end_offsets([T0])
        metadata = broker.asked_for(MetadataRequest)
        broker.then(ListOffsetsRequest, [lambda request: offsets_answer(request, lambda *_: (code, -1))])
        assert await consumer.end_offsets([T0]) == {T0: 1}
        assert broker.asked_for(MetadataRequest) == metadata + 1


async def test_a_guarded_leader_that_cannot_say_so_is_asked_again_after_metadata() -> None:
    """T207-12: brokers that stop at version 4 of ListOffsets answer 5."""
    list_offsets, last_version = 2, 4
    async with (
        broker_with_log(versions_max={list_offsets: last_version}) as (broker, log),
        Consumer(broker.bootstrap) as consumer,
    ):
        log.append(T0, b"a")
        assert await consumer.end_offsets([T0]) == {T0: 1}
        metadata = broker.asked_for(MetadataRequest)
        broker.then(ListOffsetsRequest, [lambda request: offsets_answer(request, lambda *_: (5, -1))] * 3)
        assert await consumer.end_offsets([T0]) == {T0: 1}
        assert broker.asked_for(ListOffsetsRequest) == 5
        assert broker.asked_for(MetadataRequest) == metadata + 3


async def test_offsets_are_listed_for_what_a_leader_did_not_refuse_only_once() -> None:
    async with broker_with_log() as (broker, log), Consumer(broker.bootstrap) as consumer:
        log.append(T1, b"a")
        broker.then(
            ListOffsetsRequest,
            [lambda request: offsets_answer(request, lambda partition, _: (78 if partition == T0 else 0, 1))],
        )
        assert await consumer.end_offsets([T0, T1]) == {T0: 0, T1: 1}
        second = [request for request in broker.asked if isinstance(request, ListOffsetsRequest)][1]
        assert [part.partition_index for part in second.topics[0].partitions] == [0]


async def test_times_find_records_or_nothing() -> None:
    async with broker_with_log() as (broker, log), Consumer(broker.bootstrap) as consumer:
        log.append(T0, b"a", b"b")
        found = await consumer.offsets_for_times({T0: 1, T1: 5})
        hit = found[T0]
        assert hit is not None and hit.offset == 2 and found[T1] is None
        assert await consumer.beginning_offsets([T0]) == {T0: 0}


async def test_a_refusal_names_partition_and_code() -> None:
    async with broker_with_log() as (broker, _), Consumer(broker.bootstrap) as consumer:
        broker.then(ListOffsetsRequest, [lambda request: offsets_answer(request, lambda *_: (29, -1))])
        with pytest.raises(KafkaError, match=r"t-0 .*TOPIC_AUTHORIZATION_FAILED"):
            await consumer.end_offsets([T0])
        with pytest.raises(KafkaError, match="topic 't' has 3 partitions; there is no partition 9"):
            await consumer.end_offsets([TopicPartition("t", 9)])


async def test_partitions_that_do_not_exist_and_brokers_that_are_not_there_are_named() -> None:
    async with broker_with_log() as (broker, _), Consumer(broker.bootstrap) as consumer:
        consumer.assign([TopicPartition("t", 9)])
        with pytest.raises(KafkaError, match="there is no partition 9"):
            await consumer.poll(60_000)
    async with Consumer("127.0.0.1:1", timeout_ms=100) as consumer:
        consumer.assign([T0])
        with pytest.raises(NotReachable, match=r"bootstrap 127\.0\.0\.1:1"):
            await consumer.poll(5000)


@pytest.mark.parametrize("pause_s", [0.0, 0.6])
async def test_what_went_wrong_with_a_topic_is_not_told_to_who_has_gone_on_to_another(
    monkeypatch: pytest.MonkeyPatch, pause_s: float
) -> None:
    """Whether it turns out before that or after."""
    monkeypatch.setattr("headrace.client.cluster.UNKNOWN_TOPIC_MS_MAX", 300)
    async with broker_with_log() as (broker, log), Consumer(broker.bootstrap, max_wait_ms=20) as consumer:
        consumer.assign([TopicPartition("deleted", 0)])
        assert await consumer.poll(10) == []
        await asyncio.sleep(pause_s)
        consumer.assign([T0])
        for _ in range(10):
            assert await consumer.poll(100) == []
        log.append(T0, b"a")
        assert values(await read(consumer, 1)) == [b"a"]


async def test_a_broker_without_topic_ids_is_asked_by_name() -> None:
    cluster = FakeCluster()
    cluster.add("t", 1)
    cluster.topics["t"].topic_id = bytes(16)
    async with FakeBroker(cluster, versions_max={1: 12, 3: 9}) as broker:
        log = FakeLog(broker)
        async with Consumer(broker.bootstrap, max_wait_ms=20) as consumer:
            consumer.assign([T0])
            log.append(T0, b"a")
            await read(consumer, 1)
            log.append(T0, b"b")
            await read(consumer, 1)
        assert {
            request.topics[0].topic for request in broker.asked if isinstance(request, FetchRequest) and request.topics
        } == {"t"}


async def test_polling_with_nothing_to_do_costs_no_requests() -> None:
    async with broker_with_log() as (broker, _), Consumer(broker.bootstrap, max_wait_ms=60_000) as consumer:
        broker.then(FetchRequest, [SILENCE])
        consumer.assign([T0])
        for _ in range(20):
            assert await consumer.poll(10) == []
        assert broker.asked_for(FetchRequest) == 1
        assert broker.asked_for(MetadataRequest) <= 2
