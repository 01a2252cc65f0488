"""ListOffsets after a change of leaders: what a client was told never goes back. Scenarios by their ids."""

import asyncio
import logging
from collections.abc import Mapping

import pytest

from headrace.errors import ErrorCode
from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.broker.asking import DEBUG_REPLICA, EARLIEST, LATEST, MAX_TIMESTAMP, TOPIC, Client, records_of, values_of
from tests.broker.stepped import NOW_MS
from tests.broker.trio import Trio, play

EVERY_TIMESTAMP = (-1, -2, -3, -4, -5, -6, NOW_MS)
NOT_AVAILABLE = ErrorCode.OFFSET_NOT_AVAILABLE


async def code(
    client: Client, timestamp: int = LATEST, partition: int = 0, version: int = 11, replica: int = -1
) -> int:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    (found,) = await client.list_offsets(asked, version=version, replica_id=replica)
    return found.error_code


async def guarded(trio: Trio, settings: Mapping[str, str] | None = None, partitions: int = 1) -> tuple[int, int]:
    """A leader with five records that led before, when three of them were committed; and its follower."""
    leader, follower = (n for n in (1, 2, 3) if n != trio.controller_id)
    await trio.topic(*[[leader, follower]] * partitions, settings=settings)
    client = await trio.client(leader)
    await client.produce(records_of([b"a", b"b", b"c"]), acks=1)
    await trio.fetch_as(follower, leader)
    assert await client.offset() == 3
    await client.produce(records_of([b"d", b"e"]), acks=1)
    partition = trio.partition(leader)
    await trio.move_to(follower)
    await trio.move_to(leader)
    assert (partition.high_watermark, partition.log_end_offset) == (3, 5)
    return leader, follower


def test_t207_3_in_the_window_committed_records_are_served_and_nodes_see_the_log_end() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = await guarded(trio)
        partition = trio.partition(leader)
        assert partition.is_list_guarded
        client = await trio.client(leader)
        assert await code(client) == NOT_AVAILABLE
        assert await code(client, version=4) == await code(client, version=1) == ErrorCode.LEADER_NOT_AVAILABLE
        fetched = await client.fetch(0)
        assert fetched.error_code == 0 and values_of(fetched.records) == [b"a", b"b", b"c"]
        for offset in (3, 4, 5):
            fetched = await client.fetch(offset)
            assert (fetched.error_code, fetched.high_watermark, bytes(fetched.records or b"")) == (0, 3, b"")
        for replica in (follower, DEBUG_REPLICA):
            assert await client.offset(replica_id=replica) == 5
        await trio.fetch_as(follower, leader, offset=4)
        assert await code(client) == NOT_AVAILABLE
        await trio.fetch_as(follower, leader)
        assert await client.offset() == 5

    play(scenario)


def test_t207_4_other_partitions_of_a_request_are_answered() -> None:
    async def scenario(trio: Trio) -> None:
        leader, _ = await guarded(trio, partitions=2)
        client = await trio.client(leader)
        asked = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in (0, 1)]
        found = await client.list_offsets(*asked)
        assert [(part.error_code, part.offset) for part in found] == [(NOT_AVAILABLE, -1), (0, 0)]
        assert trio.broker(leader).guards.refused == 1

    play(scenario)


def test_t207_5_where_unclean_elections_are_allowed_nothing_is_refused() -> None:
    async def scenario(trio: Trio) -> None:
        leader, _ = await guarded(trio)
        client = await trio.client(leader)
        assert await code(client) == NOT_AVAILABLE
        broker = trio.broker(leader)
        topic = broker.image.topics[TOPIC]
        partition = trio.partition(leader)
        partition.config = topic.config = type(topic.config)(unclean_leader_election_enable=True)
        assert await client.offset() == 3
        assert broker.guards.guarded == 0 and len(broker.guards.open) == 1

    play(scenario)


def test_t207_6_a_new_epoch_of_the_same_leader_refuses_nothing() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in (1, 2, 3) if n != trio.controller_id)
        await trio.topic([leader, follower])
        client = await trio.client(leader)
        await client.produce(records_of([b"a", b"b"]), acks=1)
        await trio.fetch_as(follower, leader)
        await client.produce(records_of([b"c"]), acks=1)
        epoch = trio.record().leader_epoch
        await trio.move_to(leader)
        await trio.until(lambda: trio.partition(leader).leader_epoch == epoch + 1)
        assert await client.offset() == 2
        leadership = trio.partition(leader).leadership
        assert leadership is not None and leadership.epoch_start_offset == 3
        assert not trio.broker(leader).guards.open

    play(scenario)


def test_t207_7_under_min_isr_the_window_stays_open_until_the_isr_is_large_enough() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in (1, 2, 3) if n != trio.controller_id)
        await trio.topic([leader, follower], settings={"min.insync.replicas": "2"})
        client = await trio.client(leader)
        await client.produce(records_of([b"a", b"b"]), acks=1)
        await trio.fetch_as(follower, leader)
        assert await client.offset() == 2
        await client.produce(records_of([b"c"]), acks=1)
        await trio.until(lambda: trio.record(at=leader).isr_ids == [leader])
        await trio.restart(leader)
        await trio.leads(leader)
        client = await trio.client(leader)
        for _ in range(20):
            assert await code(client) == NOT_AVAILABLE
            await asyncio.sleep(1)
        await trio.fetch_as(follower, leader)
        await trio.until(lambda: trio.record(at=leader).isr_ids == [leader, follower])
        assert await client.offset() == 3

    play(scenario)


def test_t207_9_a_leader_that_was_paused_beyond_its_lease_tells_nothing() -> None:
    async def scenario(trio: Trio) -> None:
        leader = next(n for n in (1, 2, 3) if n != trio.controller_id)
        await trio.topic([leader])
        client = await trio.client(leader)
        await client.produce(records_of())
        assert await client.offset() == 1
        node = trio.world.nodes[leader - 1]
        node.pause()
        wanted = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])
        asked = [
            client.peer.send(ListOffsetsRequest(replica_id=-1, topics=[wanted]), ListOffsetsResponse, 5)
            for _ in range(1_000)
        ]
        await asyncio.sleep(30)
        assert not any(answer.done() for answer in asked)
        node.resume()
        codes = {answer.topics[0].partitions[0].error_code for answer in await asyncio.gather(*asked)}
        assert codes == {ErrorCode.NOT_LEADER_OR_FOLLOWER}

    play(scenario)


def test_without_the_store_data_is_served_and_latest_offsets_are_not_once_the_lease_has_ended() -> None:
    async def scenario(trio: Trio) -> None:
        leader = next(n for n in (1, 2, 3) if n != trio.controller_id)
        await trio.topic([leader])
        client = await trio.client(leader)
        await client.produce(records_of())
        health = trio.broker(leader).store_health
        trio.store(leader).unavailable = True
        assert await client.offset() == 1 and health.trouble() == ""
        await asyncio.sleep(6)
        assert await client.offset() == 1
        assert "has not answered for" in health.trouble() and health.unavailable_ms() > 4_000
        await asyncio.sleep(6)
        assert health.lease_remaining_ms() == 0
        assert await code(client) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await client.offset(replica_id=DEBUG_REPLICA) == 1
        assert (await client.produce(records_of())).error_code == 0
        assert (await client.fetch(0)).records
        trio.store(leader).unavailable = False
        await trio.until(trio.broker(leader).controller.lease_valid)
        await trio.leads(leader)
        assert await client.offset() == 2
        await trio.until(lambda: health.trouble() == "" and health.lease_remaining_ms() > 0)

    play(scenario)


@pytest.mark.parametrize("scope", ["all", "latest"])
def test_t207_13_the_scope_says_which_lookups_are_refused(scope: str) -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = await guarded(trio)
        client = await trio.client(leader)
        codes = {timestamp: await code(client, timestamp) for timestamp in EVERY_TIMESTAMP}
        if scope == "all":
            assert set(codes.values()) == {NOT_AVAILABLE}
        else:
            # Found below the high watermark: told. Nothing found (there is no tier): not.
            told = {EARLIEST: 0, -4: 0, MAX_TIMESTAMP: 0, NOW_MS: 0}
            assert codes == dict.fromkeys(EVERY_TIMESTAMP, NOT_AVAILABLE) | told
            assert await code(client, NOW_MS + 1) == NOT_AVAILABLE
        await trio.fetch_as(follower, leader)
        assert {await code(client, timestamp) for timestamp in EVERY_TIMESTAMP} == {0}

    play(scenario, {"list.offsets.guard.scope": scope})


def test_a_window_is_told_of_when_it_opens_and_when_it_closes(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = await guarded(trio)
        opened = [record.getMessage() for record in caplog.records if "offsets are not told" in record.getMessage()]
        assert len(opened) == 1 and opened[0].startswith(f"{TOPIC}-0") and "until 5 is committed" in opened[0]
        await asyncio.sleep(2)
        await trio.fetch_as(follower, leader)
        (closed,) = [record.getMessage() for record in caplog.records if "are told again" in record.getMessage()]
        assert "high watermark 5" in closed
        guards = trio.broker(leader).guards
        assert not guards.open and guards.lasted_ms.count == 1 and 2_000 <= guards.lasted_ms.total < 4_000

    caplog.set_level(logging.INFO, "headrace.broker.list_guards")
    play(scenario)
