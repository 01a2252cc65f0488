"""Leaderships that are moved while their leaders live. Scenarios by their ids."""

import asyncio
from collections.abc import Mapping, Sequence
from unittest.mock import patch

from msgspec.structs import replace

from headrace.client import Producer
from headrace.controller.moves import StepDown
from headrace.core.cluster import PartitionRecord
from headrace.errors import ErrorCode
from headrace.wire.messages.elections import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from headrace.wire.messages.offsets import ListOffsetsPartition
from headrace.wire.messages.replication import StepDownPartition, StepDownRequest, StepDownResponse
from tests.broker.asking import LATEST, TOPIC, Client, records_of
from tests.broker.trio import Trio, play


def two_of(trio: Trio) -> tuple[int, int]:
    """Nodes that are not the controller."""
    first, second = (n for n in (1, 2, 3) if n != trio.controller_id)
    return first, second


async def ask_to_step_down(
    trio: Trio, client: Client, leader: int, *, controller_epoch: int | None = None, partition_epoch: int | None = None
) -> int:
    partition = trio.partition(leader)
    epoch = trio.broker(leader).controller_epoch if controller_epoch is None else controller_epoch
    asked = StepDownPartition(
        topic_id=partition.topic_id,
        partition=0,
        partition_epoch=trio.record().partition_epoch if partition_epoch is None else partition_epoch,
    )
    request = StepDownRequest(controller_epoch=epoch, partitions=[asked])
    return (await client.ask(request, StepDownResponse, 0)).partitions[0].error_code


async def elect(trio: Trio, at: int) -> int:
    """The code of a preferred election of the only partition."""
    client = await trio.client(at)
    named = [TopicPartitions(topic=TOPIC, partitions=[0])]
    request = ElectLeadersRequest(election_type=0, topic_partitions=named, timeout_ms=20_000)
    answer = await client.ask(request, ElectLeadersResponse)
    return answer.replica_election_results[0].partition_result[0].error_code


async def led_by_the_second(trio: Trio) -> tuple[int, int]:
    """The preferred leader, and the one that leads: both in sync."""
    preferred, leader = two_of(trio)
    await trio.topic([preferred, leader])
    record = trio.record()
    epochs = {"leader_epoch": record.leader_epoch + 1, "partition_epoch": record.partition_epoch + 1}
    trio.write(replace(record, leader=leader, **epochs))
    await trio.leads(leader)
    return preferred, leader


async def knows(trio: Trio, record: PartitionRecord) -> None:
    await trio.until(lambda: trio.record(at=trio.controller_id) == record)


def test_a_leader_that_stepped_down_serves_followers_only() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = two_of(trio)
        await trio.topic([leader, follower])
        client = await trio.client(leader)
        waiting = asyncio.create_task((await trio.client(leader)).produce(records_of()))
        await trio.until(lambda: trio.partition(leader).log_end_offset == 1)
        assert await ask_to_step_down(trio, client, leader) == 0
        refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await client.produce(records_of())).error_code == refused
        assert (await client.fetch(0)).error_code == refused
        assert not waiting.done()
        assert (await trio.fetch_as(follower, leader, offset=0)).records
        await trio.fetch_as(follower, leader, offset=1)
        assert (await waiting).error_code == 0

    play(scenario)


def test_a_step_down_is_for_one_partition_epoch_and_from_the_newest_controller() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = two_of(trio)
        await trio.topic([leader, follower])
        client = await trio.client(leader)
        epoch = trio.record().partition_epoch
        stale = trio.broker(leader).controller_epoch - 1
        assert await ask_to_step_down(trio, client, leader, controller_epoch=stale) == ErrorCode.NOT_CONTROLLER
        for other in (epoch - 1, epoch + 1):
            answer = await ask_to_step_down(trio, client, leader, partition_epoch=other)
            assert answer == ErrorCode.INVALID_UPDATE_VERSION
        bystander = await trio.client(follower)
        assert await ask_to_step_down(trio, bystander, follower) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await client.produce(records_of(), acks=1)).error_code == 0

    play(scenario)


def test_a_leadership_goes_back_to_the_first_replica_when_somebody_asks() -> None:
    async def scenario(trio: Trio) -> None:
        preferred, leader = await led_by_the_second(trio)
        assert await elect(trio, leader) == 0
        await trio.leads(preferred)
        await trio.until(lambda: not trio.partition(leader).is_leading)
        assert trio.broker(trio.controller_id).controller.moves.counts["step downs"] == 1

    play(scenario)


def test_t7_3_a_step_down_without_an_answer_moves_nothing_and_costs_nothing() -> None:
    async def scenario(trio: Trio) -> None:
        preferred, leader = await led_by_the_second(trio)
        record = trio.record()
        client = await trio.client(leader)
        trio.world.network.cut(f"node{trio.controller_id}", f"node{leader}")
        moving = asyncio.create_task(elect(trio, preferred))
        while not moving.done():
            assert (await client.produce(records_of(), acks=1)).error_code == 0
            await asyncio.sleep(0.1)
        assert await moving == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert trio.record() == record

    play(scenario)


def test_t7_4_after_a_step_down_of_which_nothing_came_the_leader_serves_again_and_no_ghost_moves_it() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = two_of(trio)
        await trio.topic([leader, follower])
        await trio.fetch_as(follower, leader)
        client = await trio.client(leader)
        record, rev = trio.record(), trio.rev()
        assert await ask_to_step_down(trio, client, leader) == 0
        stepped_s = trio.world.loop.now_s
        partition = trio.partition(leader)
        assert partition.error
        await trio.until(lambda: not partition.error)
        assert 4.9 < trio.world.loop.now_s - stepped_s < 5.5
        resumed = trio.record()
        assert resumed == replace(record, partition_epoch=record.partition_epoch + 1)
        ghost = replace(record, leader=follower, leader_epoch=9, partition_epoch=record.partition_epoch + 1)
        assert not trio.write(ghost, rev=rev)
        assert (await client.produce(records_of(), acks=1)).error_code == 0

    play(scenario)


def test_t7_6_an_isr_change_between_the_answer_and_the_move_makes_the_controller_ask_again() -> None:
    async def scenario(trio: Trio) -> None:
        preferred, leader = two_of(trio)
        third = trio.controller_id
        await trio.topic([preferred, leader, third])
        with patch.object(trio.broker(third).roles.replicator, "follow"):  # else it is back in the ISR at once
            trio.broker(third).roles.replicator.stop(trio.partition(third))
            await trio.move_to(leader, isr=[preferred, leader])
        told: list[int] = []
        asking = [asyncio.create_task(ask_for_latest(trio, n, told)) for n in (preferred, leader)]
        writer = await trio.client(leader)
        assert (await writer.produce()).error_code == ErrorCode.NONE
        moves = trio.broker(third).controller.moves
        real = moves.ask
        asked: list[int] = []

        async def slow(
            broker_id: int, controller_epoch: int, steps: Sequence[StepDown]
        ) -> Mapping[tuple[bytes, int], ErrorCode]:
            answer = await real(broker_id, controller_epoch, steps)
            asked.append(steps[0].partition_epoch)
            if len(asked) == 1:
                assert answer[steps[0].topic_id, 0] is ErrorCode.NONE
                known, record = trio.broker(third), trio.record()
                known.roles.replicator.follow(trio.partition(third), known.image.brokers[leader], record.leader_epoch)
                await trio.until(lambda: third in trio.record(at=leader).isr_ids)
                await trio.leads(leader)  # the newer record ended its step-down
                for _ in range(5):
                    assert (await writer.produce()).error_code == ErrorCode.NONE
                await trio.until(lambda: told and told[-1] == 6)
            return answer

        moves.ask = slow
        assert await elect(trio, preferred) == 0
        assert len(asked) == 2 and asked[1] > asked[0]
        await trio.leads(preferred)
        assert trio.record().leader == preferred
        heard = len(told)
        await trio.until(lambda: len(told) > heard + 5)
        for task in asking:
            task.cancel()
        assert told == sorted(told) and told[-1] == 6

    play(scenario, replicates=True)


async def ask_for_latest(trio: Trio, node_id: int, told: list[int]) -> None:
    """As a client does that knows of no epochs, and asks whoever it likes."""
    client = await trio.client(node_id)
    while True:
        (answer,) = await client.list_offsets(ListOffsetsPartition(partition_index=0, timestamp=LATEST))
        if not answer.error_code:
            told.append(answer.offset)
        await asyncio.sleep(0.005)


def test_t7_5_leaderships_move_under_load_and_nothing_acknowledged_is_lost() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3])
        acked: list[tuple[int, bytes]] = []
        async with Producer(trio.world.bootstrap, outside=trio.outside, linger_ms=1) as producer:

            async def send(number: int) -> None:
                value = b"%d" % number
                told = await producer.send(TOPIC, value, partition=0)
                acked.append((told.offset, value))

            async def load() -> None:
                """Always with records on their way to the followers, which takes longer than the next one comes."""
                network = trio.world.network
                network.delay_s_min, network.delay_s_max = 0.01, 0.02
                sending = []
                for number in range(600):
                    sending.append(asyncio.create_task(send(number)))
                    await asyncio.sleep(0.01)
                await asyncio.gather(*sending)

            loading = asyncio.create_task(load())
            for _ in range(3):
                await asyncio.sleep(1)
                record = trio.record()
                following = next(n for n in record.replicas if n != record.leader)
                # The preferred leader changes, so that there is something to move.
                order = (following, *(n for n in record.replicas if n != following))
                assert trio.write(replace(record, replicas=order, partition_epoch=record.partition_epoch + 1))
                await knows(trio, trio.record())
                assert await elect(trio, trio.controller_id) == 0
                assert trio.record().leader == following
            await loading
        assert len(acked) == 600
        client = await trio.client(trio.record().leader)
        values = await client.read_all()
        assert [values[offset] for offset, _ in acked] == [value for _, value in acked]
        assert len(values) == 600  # nothing twice

    play(scenario, replicates=True)
