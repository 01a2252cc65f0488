"""Transactions as one node's partitions see them: produced, ended by markers, read."""

import asyncio

import pytest

from headrace.core.acl import Operation, Resource, ResourceType
from headrace.errors import ErrorCode
from headrace.wire.batch import headers
from headrace.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    WriteTxnMarkersResponse,
)
from tests.broker.marked import (
    PID,
    UNVERIFIED,
    end,
    fetch_committed,
    in_transaction,
    marker_request,
    offset_of,
    produce,
    read_committed,
)
from tests.broker.support import (
    MAX_TIMESTAMP,
    NOW_MS,
    TOPIC,
    Client,
    Served,
    World,
    numbered,
    records_of,
    serving,
    until,
)


async def test_records_of_a_transaction_are_shown_when_it_has_ended_and_only_if_it_was_committed() -> None:
    async with serving(UNVERIFIED) as (_, client):
        assert (await produce(client, in_transaction(0, b"a"))).base_offset == 0
        await client.produce(records_of([b"plain"]))
        assert (await produce(client, in_transaction(0, b"x", pid=8))).base_offset == 2
        assert await read_committed(client) == []
        assert await client.read_all() == [b"a", b"plain", b"x"]
        assert await end(client, False, pid=8) == [0]
        assert await read_committed(client) == []
        assert await end(client, True) == [0]
        assert await read_committed(client) == [b"a", b"plain"]
        fetched = await fetch_committed(client, 0)
        assert [(a.producer_id, a.first_offset) for a in fetched.aborted_transactions or ()] == [(8, 2)]
        assert (fetched.high_watermark, fetched.last_stable_offset) == (5, 5)
        assert (await client.fetch(0)).aborted_transactions is None


async def test_aborted_transactions_are_told_to_whom_they_concern() -> None:
    async with serving(UNVERIFIED, topic={"segment.bytes": "200"}) as (_, client):
        offset = 0
        for number in range(6):
            await produce(client, in_transaction(number, b"%d" % number))
            await end(client, number % 2 == 1)
            offset += 2
        assert await read_committed(client) == [b"1", b"3", b"5"]
        for start in range(offset):
            fetched = await fetch_committed(client, start)
            end_offset = [header.last_offset + 1 for _, header in headers(fetched.records or b"")][-1]
            told = [a.first_offset for a in fetched.aborted_transactions or ()]
            assert told == [first for first in (0, 4, 8) if start <= first + 1 and first < end_offset]


async def test_who_waits_for_committed_records_is_woken_by_the_end_of_the_transaction_and_not_before() -> None:
    async with serving(UNVERIFIED) as (served, client):
        await produce(client, in_transaction(0))
        waiting = await served.client()
        fetching = asyncio.ensure_future(fetch_committed(waiting, 0, max_wait_ms=60_000))
        for sequence in range(1, 4):
            await produce(client, in_transaction(sequence))
        assert not fetching.done()
        await end(client, True)
        async with asyncio.timeout(30):
            fetched = await fetching
        assert fetched.last_stable_offset == 5 and fetched.records


async def test_list_offsets_tells_readers_of_committed_records_no_more_than_they_may_read() -> None:
    async with serving(UNVERIFIED) as (_, client):
        await client.produce(records_of(timestamps=[NOW_MS]))
        raw = in_transaction(0)
        await produce(client, raw)
        await client.produce(records_of(timestamps=[NOW_MS + 10]))
        assert await offset_of(client) == (0, 1)
        assert await offset_of(client, committed=False) == (0, 3)
        assert await offset_of(client, NOW_MS + 10) == (0, -1)
        assert await offset_of(client, NOW_MS + 10, committed=False) == (0, 2)
        assert await offset_of(client, MAX_TIMESTAMP) == (0, 0)
        await end(client, True)
        assert await offset_of(client) == (0, 4)
        assert await offset_of(client, NOW_MS + 10) == (0, 2)


async def test_markers_of_the_past_get_their_codes_and_are_not_written() -> None:
    async with serving(UNVERIFIED, partitions=2) as (_, client):
        await produce(client, in_transaction(0, epoch=3))
        assert await end(client, True, epoch=2) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await client.offset() == 1
        assert await end(client, False, epoch=4, coordinator_epoch=6) == [0]
        assert await end(client, True, epoch=4, coordinator_epoch=5) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        assert await end(client, False, epoch=4, coordinator_epoch=6, partitions=(0, 1, 2)) == [
            0,
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert (await client.offset(), await client.offset(partition=1)) == (3, 1)
        answer = await produce(client, in_transaction(1, epoch=3))
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_only_nodes_and_administrators_write_markers() -> None:
    def by_rule(_: str, operation: Operation, resource: Resource) -> bool:
        return resource.type is not ResourceType.CLUSTER or operation is Operation.CREATE

    async with serving(UNVERIFIED, is_allowed=by_rule) as (_, client):
        assert await end(client, True) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        assert await client.offset() == 0


async def test_a_transactional_id_that_one_may_not_use_is_refused() -> None:
    def by_rule(_: str, __: Operation, resource: Resource) -> bool:
        return resource.type is not ResourceType.TRANSACTIONAL_ID

    async with serving(UNVERIFIED, is_allowed=by_rule) as (_, client):
        answer = await produce(client, in_transaction(0))
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await client.offset() == 0


@pytest.mark.parametrize("killed", [True, False])
async def test_open_transactions_and_aborts_survive_a_restart(killed: bool) -> None:
    with World(settings=UNVERIFIED) as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings={"segment.bytes": "200"})
            for number in range(4):
                await produce(client, in_transaction(number, b"%d" % number))
                await end(client, number % 2 == 1)
            await produce(client, in_transaction(4, b"4"))
            await client.produce(records_of([b"plain"]))
            if killed:
                await served.kill()
        async with world.started() as served:
            client = await served.client()
            if not killed:
                # Nobody has opened the log, and it is known all the same.
                broker = served.node.broker
                assert broker is not None and not broker.partitions.open
                assert await offset_of(client) == (0, 8)
                assert not broker.partitions.open
            assert await offset_of(client) == (0, 8)
            assert await read_committed(client) == [b"1", b"3"]
            assert (await client.produce(numbered((PID, 0, 5)))).error_code == ErrorCode.INVALID_TXN_STATE
            assert (await produce(client, in_transaction(5, b"5"))).error_code == 0
            assert await end(client, True, coordinator_epoch=0) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
            assert await end(client, True) == [0]
            assert await read_committed(client) == [b"1", b"3", b"4", b"plain", b"5"]


async def described(client: Client) -> list[tuple[int, ...]]:
    request = DescribeProducersRequest(topics=[DescribeProducersTopic(name=TOPIC, partition_indexes=[0, 5])])
    answer = await client.ask(request, DescribeProducersResponse, 0)
    found, missing = answer.topics[0].partitions
    assert (found.error_code, missing.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return [
        (p.producer_id, p.producer_epoch, p.last_sequence, p.coordinator_epoch, p.current_txn_start_offset)
        for p in found.active_producers
    ]


async def test_producers_are_described() -> None:
    async with serving(UNVERIFIED) as (_, client):
        await produce(client, in_transaction(0, b"a", b"b"))
        await client.produce(numbered((8, 2, 5)))
        assert await described(client) == [(8, 2, 5, -1, -1), (PID, 0, 1, -1, 0)]
        await end(client, True, coordinator_epoch=9)
        assert await described(client) == [(8, 2, 5, -1, -1), (PID, 0, 1, 9, -1)]


async def test_tidem_8_a_producer_does_not_expire_within_its_transaction() -> None:
    settings = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "5", **UNVERIFIED}
    async with serving(settings) as (served, client):
        await produce(client, in_transaction(0))
        await client.produce(numbered((8, 0, 0)))
        broker = served.node.broker
        assert broker is not None
        (partition,) = broker.partitions.open
        served.world.clock.now_ms += 100_000
        await until(lambda: partition.log.producers.get(8) is None)
        assert partition.log.producers.get(PID) is not None
        assert await offset_of(client) == (0, 0)
        assert (await produce(client, in_transaction(1))).error_code == 0
        await end(client, True)
        served.world.clock.now_ms += 100_000
        await until(lambda: not len(partition.log.producers))
        assert await read_committed(client) == [b"0", b"0", b"1"]


async def late_partitions(served: Served) -> str:
    _, text = await served.page("/metrics")
    name = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    return next(line.split(" ")[1] for line in text.splitlines() if line.startswith(name))


async def test_a_transaction_that_nobody_ends_is_told() -> None:
    settings = {"transaction.max.timeout.ms": "10000", **UNVERIFIED}
    async with serving(settings) as (served, client):
        await produce(client, in_transaction(0))
        served.world.clock.now_ms += 10_000 + 300_000
        assert await late_partitions(served) == "0"
        served.world.clock.now_ms += 1
        assert await late_partitions(served) == "1"
        await end(client, False)
        assert await late_partitions(served) == "0"


async def test_a_disk_that_fails_under_a_marker_is_told_to_the_coordinator() -> None:
    async with serving(UNVERIFIED) as (served, client):
        await produce(client, in_transaction(0))
        served.world.memory.fail("write", "*/events-0/*.txnindex", 5)
        assert await end(client, False) == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_many_markers_of_one_request_are_answered_each() -> None:
    async with serving(UNVERIFIED) as (_, client):
        request = marker_request(True)
        request.markers += marker_request(False, pid=8).markers
        request.markers += marker_request(False, pid=8, coordinator_epoch=0).markers
        answer = await client.ask(request, WriteTxnMarkersResponse, 2)
        codes = [(m.producer_id, m.topics[0].partitions[0].error_code) for m in answer.markers]
        assert codes == [(PID, 0), (8, 0), (8, ErrorCode.TRANSACTION_COORDINATOR_FENCED)]
        assert await client.offset() == 2
