"""What a node is to each partition, as the metadata change."""

import asyncio
import json
from typing import Any

from msgspec.structs import replace

from headrace.broker.partitions import Hosted
from headrace.broker.roles import NoReplicator
from headrace.core.cluster import Diff, RegisteredBroker
from headrace.core.partition import Appended
from headrace.errors import ErrorCode
from headrace.wire.messages.fetch import FetchResponse
from headrace.wire.messages.inspection import InspectRequest, InspectResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.asking import TOPIC, Client, fetch_request, records_of
from tests.broker.stepped import NOW_MS
from tests.broker.trio import Trio, play


async def inspect(client: Client, kind: str) -> dict[str, Any]:
    answer = await client.ask(InspectRequest(kind=kind, args=[]), InspectResponse)
    assert answer.error_code == 0
    told: dict[str, Any] = json.loads(bytes(answer.body))
    assert told.pop("v") == 1
    return told


def test_a_node_hosts_what_it_is_a_replica_of_and_nothing_else() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2], [2, 3], [3, 1])
        await trio.until(lambda: all(trio.broker(n).partitions.count == 2 for n in (1, 2, 3)))
        hosted = {n: sorted(p.index for p in trio.broker(n).partitions) for n in (1, 2, 3)}
        assert hosted == {1: [0, 2], 2: [0, 1], 3: [1, 2]}

    play(scenario)


def test_metadata_tell_leaders_isr_and_who_is_away() -> None:
    async def scenario(trio: Trio) -> None:
        gone = next(n for n in (1, 2, 3) if n != trio.controller_id)
        other = next(n for n in (1, 2, 3) if n not in (gone, trio.controller_id))
        await trio.topic([gone], [other])
        client = await trio.client(other)
        trio.world.nodes[gone - 1].kill()
        await trio.until(lambda: trio.record(at=other).leader == -1)
        answer = await client.ask(MetadataRequest(topics=None), MetadataResponse)
        lost, kept = answer.topics[0].partitions
        assert (lost.error_code, lost.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (lost.replica_nodes, lost.isr_nodes, lost.offline_replicas) == ([gone], [gone], [gone])
        assert (kept.error_code, kept.leader_id, kept.offline_replicas) == (0, other, [])

    play(scenario)


def test_what_waits_for_a_leader_ends_when_another_leads() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in (1, 2, 3) if n != trio.controller_id)
        await trio.topic([leader, follower])
        producing = asyncio.create_task((await trio.client(leader)).produce(records_of()))
        consumer = await trio.client(leader)
        fetching = consumer.peer.send(fetch_request(0, max_wait_ms=60_000), FetchResponse, 12)
        await trio.until(lambda: trio.partition(leader).waiting_acks)
        await trio.move_to(follower)
        assert (await producing).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await fetching).responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await consumer.produce(records_of())).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await (await trio.client(follower)).produce(records_of(), acks=1)).error_code == 0

    play(scenario)


def test_a_stop_does_not_wait_for_copies_that_nobody_makes() -> None:
    """The only other replica is dead, and nobody else may lead: the producer is sent away before its own time is up."""

    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in (1, 2, 3) if n != trio.controller_id)
        await trio.topic([leader, follower], settings={"min.insync.replicas": "2"})
        producing = asyncio.create_task((await trio.client(leader)).produce(records_of()))
        await trio.until(lambda: trio.partition(leader).waiting_acks)
        trio.world.nodes[follower - 1].kill()
        await trio.until(lambda: len(trio.record(at=leader).isr) == 1)
        began_s = trio.world.loop.now_s
        stopping = asyncio.create_task(trio.world.nodes[leader - 1].stop())
        assert (await producing).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await stopping
        assert trio.world.loop.now_s - began_s < 10

    play(scenario)


class Recorder(NoReplicator):
    """Notes what it is told, and whether the partition led at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, int, bool]] = []

    def follow(self, partition: Hosted, leader: RegisteredBroker, leader_epoch: int) -> None:
        assert partition.leader_epoch == leader_epoch
        self.told.append(("follow", leader.id, partition.is_leading))

    def stop(self, partition: Hosted) -> None:
        self.told.append(("stop", -1, partition.is_leading))


def test_replication_ends_before_a_leadership_begins_and_begins_after_it_has_ended() -> None:
    async def scenario(trio: Trio) -> None:
        first, second = (n for n in (1, 2, 3) if n != trio.controller_id)
        recorder = Recorder()
        trio.broker(second).roles.replicator = recorder
        await trio.topic([first, second])
        await trio.until(lambda: recorder.told)
        await trio.move_to(second)
        await trio.move_to(first)
        await trio.until(lambda: len(recorder.told) == 3)
        assert recorder.told == [("follow", first, False), ("stop", -1, False), ("follow", first, False)]
        trio.world.nodes[first - 1].kill()
        await trio.leads(second)
        await trio.until(lambda: recorder.told[3:] == [("stop", -1, False)] * len(recorder.told[3:]))

    play(scenario)


def test_what_was_accepted_under_a_role_is_written_before_the_next() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2])
        broker, partition = trio.broker(1), trio.partition(1)
        assert isinstance(broker.admit(partition, memoryview(records_of()), NOW_MS), Appended)
        broker.appends.queue(partition)
        written: list[int] = []
        broker.appends.after_turn(lambda: written.append(partition.log_end_offset))
        broker.roles.apply(Diff(partitions_changed=[(broker.image.topics[TOPIC], 0)]))
        assert written == [1]

    play(scenario)


def test_a_sync_that_ends_after_its_leadership_acknowledges_nothing() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in (1, 2, 3) if n != trio.controller_id)
        await trio.topic([leader, follower], settings={"flush.messages": "1"})
        client = await trio.client(leader)
        assert (await client.produce(records_of([b"first"]))).error_code == 0
        trio.world.nodes[leader - 1].machine.slow_s = 3
        for one, other in ((leader, follower), (follower, leader)):
            trio.world.network.cut(f"node{one}", f"node{other}")
        waiting = asyncio.create_task(client.produce(records_of([b"lost"]), acks=1))
        partition = trio.partition(leader)
        await trio.until(lambda: partition.assigned_end_offset == 2)
        await trio.move_to(follower)
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        trio.world.network.heal_all()
        await asyncio.sleep(10)
        assert partition.log_end_offset == partition.log.log_end_offset == 1

    play(scenario, replicates=True)


def test_sessions_of_a_registration_end_with_it() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in (1, 2, 3) if n != trio.controller_id)
        await trio.topic([leader, follower])
        epoch = trio.broker(leader).image.brokers[follower].epoch
        await trio.fetch_as(follower, leader, session_epoch=0)
        sessions = trio.broker(leader).fetch_events.sessions.cache
        assert [session.fetcher.broker_epoch for session in sessions.values()] == [epoch]
        await trio.restart(follower)
        await trio.until(lambda: trio.broker(leader).image.brokers[follower].epoch != epoch)
        assert len(sessions) == 0

    play(scenario)


def test_a_partition_that_moves_away_is_dropped_and_one_that_comes_is_hosted() -> None:
    async def scenario(trio: Trio) -> None:
        leader, leaving = (n for n in (1, 2, 3) if n != trio.controller_id)
        coming = trio.controller_id
        await trio.topic([leader, leaving])
        record = trio.record()
        isr = tuple(member for member in record.isr if member.broker_id == leader)
        moved = replace(record, replicas=(leader, coming), isr=isr, partition_epoch=record.partition_epoch + 1)
        assert trio.write(moved)
        await trio.until(lambda: trio.broker(leaving).partitions.count == 0)
        await trio.until(lambda: trio.broker(coming).partitions.count == 1)
        client = await trio.client(leaving)
        assert (await client.fetch(0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await trio.fetch_as(coming, leader)
        await trio.until(lambda: trio.record().isr_ids == [leader, coming])

    play(scenario)


def test_two_thousand_partitions_that_change_leaders_at_once_are_taken_in_slices() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in (1, 2, 3) if n != trio.controller_id)
        await trio.topic(*[[leader, follower]] * 2_000)
        trio.world.nodes[leader - 1].kill()
        await trio.until(lambda: len(trio.broker(follower).isr_updates.leading) == 2_000)
        await trio.until(lambda: trio.record(1_999).isr_ids == [follower])
        assert trio.broker(follower).isr_updates.shrinks == 2_000

    play(scenario)


def test_a_disk_that_fails_takes_its_partition_to_another_leader() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in (1, 2, 3) if n != trio.controller_id)
        await trio.topic([leader, follower])
        trio.world.nodes[leader - 1].machine.files.fail("write", f"*/{TOPIC}-0/*.log", 5)
        client = await trio.client(leader)
        assert (await client.produce(records_of())).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await trio.leads(follower)
        assert (await client.produce(records_of())).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await trio.until(lambda: trio.record().isr_ids == [follower])
        answer = await (await trio.client(follower)).ask(MetadataRequest(topics=None), MetadataResponse)
        assert answer.topics[0].partitions[0].offline_replicas == [leader]
        assert trio.broker(leader).controller.registration.past.intact_since == 0

    play(scenario)


def test_a_node_tells_what_it_knows_of_itself() -> None:
    async def scenario(trio: Trio) -> None:
        leader, follower = (n for n in (1, 2, 3) if n != trio.controller_id)
        await trio.topic([leader, follower])
        client = await trio.client(leader)
        await client.produce(records_of([b"a"]), acks=1)
        record = trio.record()
        await trio.move_to(follower)
        await trio.move_to(leader)
        (guarded,) = (await inspect(client, "guard"))["guard"]
        assert isinstance(guarded.pop("for_ms"), int)
        assert guarded == {
            "topic": TOPIC,
            "partition": 0,
            "leader_epoch": record.leader_epoch + 2,
            "guard": 1,
            "high_watermark": 0,
        }
        request = fetch_request(0, max_wait_ms=0)
        request.session_epoch = 0
        session_id = (await client.ask(request, FetchResponse, 12)).session_id
        (session,) = (await inspect(client, "sessions"))["sessions"]
        assert (session["id"], session["replica_id"], session["partitions"]) == (session_id, -1, 1)
        assert await inspect(client, "failed") == {"failed": []}
        odd = await client.ask(InspectRequest(kind="weather", args=[]), InspectResponse)
        assert odd.error_code == ErrorCode.INVALID_REQUEST

    play(scenario)
