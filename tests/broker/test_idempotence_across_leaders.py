"""Idempotent producers through changes of leaders: what was acknowledged is a duplicate, what was lost is new."""

import asyncio
from collections.abc import Sequence

from headrace.errors import ErrorCode
from headrace.wire.messages.coordinators import InitProducerIdRequest, InitProducerIdResponse
from tests.broker.asking import Client, numbered, only_partition, records_of, values_of
from tests.broker.trio import Trio, play

PID = 4711
SEQUENCE_MAX = 2**31 - 1
NODES = (1, 2, 3)
SAFE = {"min.insync.replicas": "2"}


async def produced(client: Client, sequence: int, count: int = 1, epoch: int = 0, acks: int = -1) -> tuple[int, int]:
    """Error and offset of one batch."""
    answer = await client.produce(numbered((PID, epoch, sequence), count), acks=acks)
    return answer.error_code, answer.base_offset


async def copied(trio: Trio, end_offset: int, nodes: Sequence[int] = NODES) -> None:
    await trio.until(lambda: {trio.partition(n).log_end_offset for n in nodes} == {end_offset})


async def lead_by(trio: Trio, node_id: int) -> Client:
    await trio.move_to(node_id)
    return await trio.client(node_id)


def test_tidem_1_five_in_flight_with_every_answer_lost_to_a_change_of_leaders_are_stored_once_and_in_order() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([*NODES], settings=SAFE)
        for turn in range(9):
            batches = [
                records_of([b"%d" % sequence], producer=(PID, 0, sequence))
                for sequence in range(turn * 5, turn * 5 + 5)
            ]
            client = await trio.client(trio.record().leader)
            asked = [client.send(bytearray(batch)) for batch in batches]
            await asyncio.gather(*asked, return_exceptions=True)  # the answers count for nothing
            client = await lead_by(trio, trio.record().leader % 3 + 1)
            answers = [only_partition(a) for a in await asyncio.gather(*(client.send(bytearray(b)) for b in batches))]
            assert [(a.error_code, a.base_offset) for a in answers] == [(0, turn * 5 + n) for n in range(5)]
        assert values_of((await client.fetch(0)).records) == [b"%d" % n for n in range(45)]

    play(scenario, replicates=True)


def test_tidem_2_a_leader_that_dies_after_the_append_and_before_the_answer() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in NODES if n != trio.controller_id)
        third = trio.controller_id
        await trio.topic([leader, follower, third], settings=SAFE)
        client = await trio.client(leader)
        assert await produced(client, 0) == (0, 0)
        # The followers get the batch, and the leader never hears that they have it.
        asking = asyncio.ensure_future(produced(client, 1))
        await copied(trio, 2)
        trio.world.nodes[leader - 1].kill()
        await asyncio.gather(asking, return_exceptions=True)
        await trio.until(lambda: trio.record().leader not in (leader, -1))
        await trio.leads(trio.record().leader)
        elected = await trio.client(trio.record().leader)
        assert await produced(elected, 1) == (0, 1)
        assert await produced(elected, 2) == (0, 2)
        assert await produced(elected, 0) == (0, 0)

    play(scenario, replicates=True)


def test_tidem_3_and_4_and_5_the_window_the_wrap_and_the_epoch_are_known_to_the_next_leader() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings=SAFE)
        client = await trio.client(1)
        for number in range(6):
            assert await produced(client, SEQUENCE_MAX - 5 + number) == (0, number)
        await copied(trio, 6)
        client = await lead_by(trio, 2)
        assert await produced(client, SEQUENCE_MAX - 5) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produced(client, SEQUENCE_MAX - 4) == (0, 1)
        assert await produced(client, 1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produced(client, 0) == (0, 6)
        assert await produced(client, 0, epoch=1) == (0, 7)
        await copied(trio, 8)
        client = await lead_by(trio, 3)
        assert await produced(client, 1) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert await produced(client, 5, epoch=2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produced(client, 0, epoch=1) == (0, 7)
        assert await produced(client, 1, epoch=1) == (0, 8)

    play(scenario, replicates=True)


def test_tidem_6_a_follower_that_was_killed_and_has_no_snapshots_gives_the_same_answers_when_it_leads() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in NODES if n != trio.controller_id)
        await trio.topic([leader, follower, trio.controller_id], settings=SAFE | {"segment.bytes": "200"})
        client = await trio.client(leader)
        for sequence in range(7):
            assert await produced(client, sequence) == (0, sequence)
        await copied(trio, 7)
        node = trio.world.nodes[follower - 1]
        node.kill()
        files = node.machine.files
        directory = f"{node.config.data}/logs/events-0"
        snapshots = [name for name in files.names(directory) if name.endswith(".snapshot")]
        assert snapshots
        for at, name in enumerate(snapshots):
            if at % 2:
                files.remove(f"{directory}/{name}")
            else:
                files.open(f"{directory}/{name}").write(8, [b"\xff\xff"])
        node.start()
        await trio.serves(follower)
        await trio.until(lambda: follower in trio.record().isr_ids)
        await copied(trio, 7)
        client = await lead_by(trio, follower)
        for sequence in range(2, 7):
            assert await produced(client, sequence) == (0, sequence)
        assert await produced(client, 1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produced(client, 8) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produced(client, 7) == (0, 7)

    play(scenario, replicates=True)


def test_tidem_7_a_follower_that_cut_its_log_takes_the_cut_batch_as_new_when_it_leads() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2])
        client = await trio.client(1)
        assert await produced(client, 0) == (0, 0)
        await copied(trio, 1, (1, 2))
        trio.broker(2).roles.replicator.stop(trio.partition(2))
        for sequence in (1, 2):
            assert await produced(client, sequence, acks=1) == (0, sequence)
        new = await lead_by(trio, 2)
        # Batch 1 is lost: the retry of 2 alone is a gap, and that of both is new.
        assert await produced(new, 2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert (await new.produce(records_of([b"other"]))).base_offset == 1
        await copied(trio, 2, (1, 2))
        old = await lead_by(trio, 1)
        assert await produced(old, 1) == (0, 2)
        assert await produced(old, 2) == (0, 3)
        assert await produced(old, 0) == (0, 0)
        assert values_of((await old.fetch(0)).records) == [b"0", b"other", b"0", b"0"]

    play(scenario, replicates=True)


def test_tidem_9_no_producer_id_is_given_twice_while_the_store_is_away() -> None:
    """A block is a thousand ids: nodes hand out of theirs, and say that they load when there are no more."""

    async def scenario(trio: Trio) -> None:
        clients = {n: await trio.client(n) for n in NODES}
        given: list[int] = []
        refused = 0

        async def ask(node_id: int, count: int) -> None:
            nonlocal refused
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
            asked = [clients[node_id].peer.send(request, InitProducerIdResponse, 4) for _ in range(count)]
            for answer in await asyncio.gather(*asked):
                if answer.error_code:
                    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                    refused += 1
                else:
                    given.append(answer.producer_id)

        for turn in range(6):
            for node_id in NODES:
                trio.store(node_id).unavailable = turn % 2 == 1
            await asyncio.gather(*(ask(n, 900) for n in NODES))
            for node_id in NODES:
                trio.store(node_id).unavailable = False
            if turn == 3:
                await trio.restart(2)
                clients[2] = await trio.client(2)
        assert refused
        assert len(given) == len(set(given)) > 6_000

    play(scenario, replicates=True)
