"""Fetch over the wire: every version, every verdict, limits, and fetches that wait."""

import asyncio
import errno
import logging
from typing import Any

import pytest

from headrace.broker import parking
from headrace.core.acl import CLUSTER, Operation, Resource
from headrace.errors import ErrorCode
from headrace.wire.batch import headers
from headrace.wire.compression import Codec
from headrace.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from tests.broker.support import TOPIC, Client, Served, records_of, serving, until, values_of
from tests.net.loops import on_both_loops

VERSIONS = range(4, 19)
TOPIC_IDS_SINCE = 13
LONG_MS = 60_000


def topic_id_of(served: Served, name: str = TOPIC) -> bytes:
    assert served.node.broker is not None
    return served.node.broker.image.topics[name].id


def asking(*partitions: FetchPartition, name: str = TOPIC, topic_id: bytes = bytes(16)) -> FetchTopic:
    return FetchTopic(topic=name, topic_id=topic_id, partitions=list(partitions))


def at(offset: int = 0, partition: int = 0, **fields: Any) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, **{"partition_max_bytes": 1 << 20, **fields})


def fetch(*topics: FetchTopic, **fields: Any) -> FetchRequest:
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, **fields}, topics=list(topics))


async def ask(client: Client, request: FetchRequest, version: int = 12) -> FetchResponse:
    return await client.ask(request, FetchResponse, version)


async def ask_one(client: Client, request: FetchRequest, version: int = 12) -> PartitionData:
    answer = await ask(client, request, version)
    assert answer.error_code == 0
    return answer.responses[0].partitions[0]


class TestVerdicts:
    async def test_every_version_is_served(self) -> None:
        async with serving() as (served, client):
            await client.produce(records_of([b"a", b"b"]))
            topic_id = topic_id_of(served)
            for version in VERSIONS:
                answer = await ask(client, fetch(asking(at(0), topic_id=topic_id)), version)
                (topic,) = answer.responses
                by_id = version >= TOPIC_IDS_SINCE
                assert (topic.topic, topic.topic_id) == (("", topic_id) if by_id else (TOPIC, bytes(16)))
                (part,) = topic.partitions
                assert values_of(part.records) == [b"a", b"b"]
                assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 2, 2)
                assert part.log_start_offset == (0 if version >= 5 else -1)
                assert (part.aborted_transactions, part.preferred_read_replica) == (None, -1)

    async def test_what_is_not_here_has_an_error_of_its_own(self) -> None:
        async with serving() as (served, client):
            for version, unknown in ((12, 3), (13, 100)):
                there = asking(at(0), at(0, 9), topic_id=topic_id_of(served))
                answer = await ask(client, fetch(asking(at(0), name="nowhere", topic_id=b"?" * 16), there), version)
                codes = [[part.error_code for part in topic.partitions] for topic in answer.responses]
                assert codes == [[unknown], [0, 3]]

    async def test_an_offset_outside_of_the_log_is_out_of_range(self) -> None:
        async with serving() as (_, client):
            await client.produce(records_of([b"a", b"b"]))
            for offset in (-1, 3, 1 << 62):
                part = await ask_one(client, fetch(asking(at(offset)), max_wait_ms=LONG_MS))
                assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (-1, -1, -1)

    async def test_zstd_is_not_given_to_clients_that_cannot_know_it(self) -> None:
        async with serving() as (_, client):
            await client.produce(records_of([b"squeezed"], codec=Codec.ZSTD))
            for version in VERSIONS[:9]:
                part = await ask_one(client, fetch(asking(at(0))), version)
                code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 10 else 0
                assert part.error_code == code
                assert values_of(part.records) == ([] if code else [b"squeezed"])

    async def test_clients_from_before_zstd_get_everything_up_to_it(self) -> None:
        async with serving() as (_, client):
            for codec in (Codec.NONE, Codec.GZIP, Codec.ZSTD, Codec.NONE):
                await client.produce(records_of([codec.name.encode()], codec=codec))
            ahead = await ask_one(client, fetch(asking(at(0))), 9)
            assert (ahead.error_code, values_of(ahead.records)) == (0, [b"NONE", b"GZIP"])
            at_it = await ask_one(client, fetch(asking(at(2))), 9)
            assert (at_it.error_code, at_it.records) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, b"")
            behind = await ask_one(client, fetch(asking(at(3))), 9)
            assert values_of(behind.records) == [b"NONE"]

    async def test_who_knows_another_leader_epoch_is_told_the_current_one(self) -> None:
        async with serving() as (served, client):
            broker = served.node.broker
            assert broker is not None
            partition = broker.partitions.find_by_name(TOPIC, 0)
            assert not isinstance(partition, ErrorCode)
            epoch = partition.leader_epoch
            assert (await ask_one(client, fetch(asking(at(0, current_leader_epoch=epoch))))).error_code == 0
            ahead = await ask_one(client, fetch(asking(at(0, current_leader_epoch=epoch + 1))))
            assert (ahead.error_code, ahead.current_leader) == (ErrorCode.UNKNOWN_LEADER_EPOCH, None)
            partition.leader_epoch = epoch + 1
            fenced = await ask_one(client, fetch(asking(at(0, current_leader_epoch=epoch))))
            assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
            assert fenced.current_leader is not None
            assert fenced.current_leader.leader_id == broker.node_id
            old = await ask_one(client, fetch(asking(at(0, current_leader_epoch=epoch))), version=11)
            assert (old.error_code, old.current_leader) == (ErrorCode.FENCED_LEADER_EPOCH, None)

    async def test_a_log_that_went_another_way_is_told_where(self) -> None:
        async with serving() as (served, client):
            broker = served.node.broker
            assert broker is not None
            await client.produce(records_of([b"a", b"b"]))
            partition = broker.partitions.find_by_name(TOPIC, 0)
            assert not isinstance(partition, ErrorCode)
            epoch = partition.leader_epoch
            partition.leader_epoch = epoch + 1
            partition.log.epochs.assign(epoch + 1, 2)
            await client.produce(records_of([b"c"]))
            part = await ask_one(client, fetch(asking(at(3, last_fetched_epoch=epoch)), max_wait_ms=LONG_MS))
            assert part.diverging_epoch is not None
            assert (part.error_code, part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, epoch, 2)
            assert not part.records

    async def test_committed_readers_get_a_list_of_aborted_transactions(self) -> None:
        async with serving() as (_, client):
            await client.produce(records_of([b"a"]))
            part = await ask_one(client, fetch(asking(at(0)), isolation_level=1))
            assert (part.aborted_transactions, values_of(part.records)) == ([], [b"a"])

    async def test_a_read_that_fails_costs_one_partition(self) -> None:
        async with serving(partitions=2) as (served, client):
            for partition in (0, 1):
                await client.produce(records_of([b"a"]), partition)
            served.world.memory.fail("read", f"*/{TOPIC}-0/*.log", errno.EIO, times=100)
            answer = await ask(client, fetch(asking(at(0, 0), at(0, 1))))
            codes = [part.error_code for part in answer.responses[0].partitions]
            assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
            assert (await client.produce(records_of([b"b"]), 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await client.produce(records_of([b"b"]), 1)).error_code == 0


class TestWhoMayFetch:
    async def test_a_topic_that_may_not_be_read_is_denied_whether_it_exists_or_not(self) -> None:
        def allowed(_principal: str, operation: Operation, resource: Resource) -> bool:
            return operation is not Operation.READ or resource.name == "open"

        async with serving(is_allowed=allowed) as (_, client):
            await client.create_topic("open")
            topics = [asking(at(0), name=name) for name in (TOPIC, "nowhere", "open")]
            answer = await ask(client, fetch(*topics))
            assert [topic.partitions[0].error_code for topic in answer.responses] == [29, 29, 0]

    async def test_nobody_is_a_follower_by_saying_so(self) -> None:
        async with serving() as (served, client):
            state = ReplicaState(replica_id=1, replica_epoch=-1)
            topic = asking(at(0), topic_id=topic_id_of(served))
            for version in (12, 14, 15, 17):
                full = fetch(topic, replica_id=1, replica_state=state, session_epoch=0)
                answer = await ask(client, full, version)
                codes = [part.error_code for part in answer.responses[0].partitions]
                assert (answer.session_id, codes) == (0, [ErrorCode.NOT_LEADER_OR_FOLLOWER])
                full.session_id, full.session_epoch = 1, 1
                answer = await ask(client, full, version)
                assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])

    @pytest.mark.parametrize("may", [True, False])
    async def test_a_registered_node_may_if_it_is_allowed_to_act_for_the_cluster(self, may: bool) -> None:
        def allowed(_principal: str, operation: Operation, resource: Resource) -> bool:
            return may or resource != CLUSTER or operation is not Operation.CLUSTER_ACTION

        async with serving(is_allowed=allowed) as (served, client):
            broker = served.node.broker
            assert broker is not None
            state = ReplicaState(replica_id=broker.node_id, replica_epoch=broker.image.brokers[broker.node_id].epoch)
            topic = asking(at(0), topic_id=topic_id_of(served))
            answer = await ask(client, fetch(topic, replica_state=state, session_epoch=0), 17)
            codes = [part.error_code for part in answer.responses[0].partitions]
            assert (answer.session_id != 0, codes) == (may, [0 if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED])


class TestLimits:
    async def test_the_first_batch_comes_whole_and_later_ones_only_if_they_fit(self) -> None:
        async with serving(partitions=3) as (_, client):
            for partition in range(3):
                await client.produce(records_of([b"x" * 1_000]), partition)
            small = [at(0, partition, partition_max_bytes=10) for partition in range(3)]
            answer = await ask(client, fetch(asking(*small)))
            assert [bool(part.records) for part in answer.responses[0].partitions] == [True, False, False]
            answer = await ask(client, fetch(asking(*(at(0, partition) for partition in range(3))), max_bytes=2_500))
            assert [bool(part.records) for part in answer.responses[0].partitions] == [True, True, False]

    async def test_the_broker_has_a_limit_of_its_own(self) -> None:
        async with serving({"fetch.max.bytes": "1024"}) as (_, client):
            for _ in range(3):
                await client.produce(records_of([b"x" * 400]))
            part = await ask_one(client, fetch(asking(at(0)), max_bytes=1 << 30))
            assert len(list(headers(part.records or b""))) == 2

    async def test_reading_begins_with_the_batch_that_holds_the_offset(self) -> None:
        async with serving() as (_, client):
            await client.produce(records_of([b"a", b"b", b"c"]))
            part = await ask_one(client, fetch(asking(at(2))))
            assert values_of(part.records) == [b"a", b"b", b"c"]


@on_both_loops
async def test_a_fetch_waits_for_data() -> None:
    async with serving() as (served, client):
        reader = await served.client()
        waiting = asyncio.ensure_future(ask_one(reader, fetch(asking(at(0)), max_wait_ms=LONG_MS)))
        await until(lambda: parked(served) == 1)
        await client.produce(records_of([b"a"]))
        assert values_of((await waiting).records) == [b"a"]
        assert parked(served) == 0


@on_both_loops
async def test_but_it_does_not_wait_for_ever() -> None:
    async with serving() as (served, client):
        part = await ask_one(client, fetch(asking(at(0)), max_wait_ms=20))
        assert (part.error_code, part.records) == (0, b"")
        assert parked(served) == 0


class TestWaiting:
    async def test_one_turn_of_the_loop_is_one_answer(self) -> None:
        async with serving(partitions=3) as (served, client):
            reader = await served.client()
            wanted = asking(*(at(0, partition) for partition in range(3)))
            waiting = asyncio.ensure_future(ask(reader, fetch(wanted, max_wait_ms=LONG_MS)))
            await until(lambda: parked(served) == 1)
            await asyncio.gather(*(client.send(records_of([b"a"]), partition) for partition in range(3)))
            answer = await waiting
            assert [values_of(part.records) for part in answer.responses[0].partitions] == [[b"a"]] * 3

    @pytest.mark.parametrize("bytes_per_turn", [1, 8 << 20])
    async def test_everybody_who_waits_is_answered(self, bytes_per_turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """In one turn of the loop, or in several when it would be too much for one."""
        monkeypatch.setattr(parking, "ANSWER_BYTES_PER_TURN", bytes_per_turn)
        async with serving() as (served, client):
            readers = [await served.client() for _ in range(5)]
            waiting = [
                asyncio.ensure_future(ask_one(reader, fetch(asking(at(0)), max_wait_ms=LONG_MS))) for reader in readers
            ]
            await until(lambda: parked(served) == 5)
            await client.produce(records_of([b"a"]))
            assert [values_of(part.records) for part in await asyncio.gather(*waiting)] == [[b"a"]] * 5

    async def test_enough_bytes_are_waited_for(self) -> None:
        async with serving() as (served, client):
            reader = await served.client()
            request = fetch(asking(at(0)), max_wait_ms=LONG_MS, min_bytes=1_000)
            waiting = asyncio.ensure_future(ask_one(reader, request))
            await until(lambda: parked(served) == 1)
            await client.produce(records_of([b"x" * 500]))
            await client.produce(records_of([b"x" * 100]))
            assert parked(served) == 1
            await client.produce(records_of([b"x" * 500]))
            assert len(values_of((await waiting).records)) == 3

    async def test_a_client_that_goes_away_leaves_nothing_waiting(self) -> None:
        async with serving() as (served, client):
            reader = await served.client()
            waiting = asyncio.ensure_future(ask(reader, fetch(asking(at(0)), max_wait_ms=LONG_MS)))
            await until(lambda: parked(served) == 1)
            reader.peer.close()
            await until(lambda: parked(served) == 0)
            await client.produce(records_of([b"a"]))
            await asyncio.wait([waiting])
            assert waiting.exception() is not None

    async def test_a_deleted_topic_ends_the_waiting(self) -> None:
        async with serving() as (served, client):
            reader = await served.client()
            waiting = asyncio.ensure_future(ask_one(reader, fetch(asking(at(0)), max_wait_ms=LONG_MS)))
            await until(lambda: parked(served) == 1)
            await client.delete_topic()
            assert (await waiting).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def test_records_deleted_under_a_waiting_reader_are_told_at_once(self) -> None:
        async with serving() as (served, client):
            broker = served.node.broker
            assert broker is not None
            await client.produce(records_of([b"a", b"b"]))
            reader = await served.client()
            request = fetch(asking(at(0)), max_wait_ms=LONG_MS, min_bytes=1 << 20)
            waiting = asyncio.ensure_future(ask_one(reader, request))
            await until(lambda: parked(served) == 1)
            partition = broker.partitions.find_by_name(TOPIC, 0)
            assert not isinstance(partition, ErrorCode)
            broker.log_start_moved(partition, 1)
            assert (await waiting).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    async def test_a_stopping_node_answers_whoever_waits(self) -> None:
        async with serving() as (served, _):
            reader = await served.client()
            waiting = asyncio.ensure_future(ask_one(reader, fetch(asking(at(0)), max_wait_ms=LONG_MS)))
            await until(lambda: parked(served) == 1)
            await served.node.stop()
            assert (await waiting).error_code == 0


async def test_requests_and_answers_are_logged_with_session_and_epoch(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (_, client):
        with caplog.at_level(logging.DEBUG, "headrace.broker.handlers.k01_fetch"):
            session_id = (await ask(client, fetch(asking(at(0)), session_epoch=0))).session_id
            await ask(client, fetch(session_id=session_id, session_epoch=1))
        lines = [record.getMessage() for record in caplog.records if "fetch" in record.getMessage()]
        assert "session 0 epoch 0," in lines[0]
        assert f"session {session_id} epoch 0," in lines[1]
        assert f"session {session_id} epoch 1," in lines[2]
        assert f"session {session_id} epoch 1," in lines[3]


def parked(served: Served) -> int:
    assert served.node.broker is not None
    return len(served.node.broker.fetch_events.sessions.parked)
