"""Three nodes on virtual time, and followers that fetch when the test says so."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from headrace.broker.broker import Broker
from headrace.broker.partitions import Hosted
from headrace.broker.roles import NoReplicator
from headrace.client import Outside
from headrace.core.cluster import PartitionRecord
from headrace.errors import ErrorCode
from headrace.metadata import records
from headrace.metadata.memory import MemoryStore
from headrace.metadata.store import KV, Cmp, Put
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.peer import Peer
from headrace.sim.world import World
from headrace.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from headrace.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.broker.asking import TOPIC, Client

FOLLOWER_VERSION = 17
WITHIN_S = 60.0

Scenario = Callable[["Trio"], Coroutine[Any, Any, None]]


def play(
    scenario: Scenario,
    settings: Mapping[str, str] | None = None,
    *,
    nodes: int = 3,
    replicates: bool = False,
    until_s: float = 600,
    seed: int = 1,
) -> None:
    """`replicates`: nodes copy from each other. Otherwise only the test's own followers fetch."""
    world = World(seed, nodes, settings)
    process, outside = world.new_client("client")
    trio = Trio(world, outside)

    async def main() -> None:
        for node in world.nodes:
            node.start()
        await world.until_serving()
        await world.loop.spawn(process, scenario(trio))

    try:
        with nullcontext() if replicates else patch("headrace.node.Replicator", lambda **_: NoReplicator()):
            world.loop.run(main(), until_s)
        assert world.loop.failures == []
    finally:
        world.close()


class Trio:
    def __init__(self, world: World, outside: Outside) -> None:
        self.world = world
        self.outside = outside
        self._hub: Hub | None = None

    # Nodes.

    def broker(self, node_id: int) -> Broker:
        node = self.world.nodes[node_id - 1].node
        assert node is not None and node.broker is not None, f"node {node_id} does not serve"
        return node.broker

    def registered_epoch(self, node_id: int) -> int:
        """By the store; 0 when there is none."""
        key = records.broker_key(node_id)
        return next((kv.create_rev for kv in self.world.data.load(key).kvs if kv.key == key), 0)

    def store(self, node_id: int) -> MemoryStore:
        store = self.world.nodes[node_id - 1].store
        assert store is not None
        return store

    @property
    def controller_id(self) -> int:
        (found,) = [n.node_id for n in self.world.nodes if n.is_serving and self._decides(n.node_id)]
        return found

    def _decides(self, node_id: int) -> bool:
        return self.broker(node_id).controller.is_controller

    async def restart(self, node_id: int) -> None:
        node = self.world.nodes[node_id - 1]
        node.kill()
        node.start()
        await self.serves(node_id)

    async def serves(self, node_id: int) -> None:
        await self.until(lambda: self.world.nodes[node_id - 1].is_serving)

    async def until(self, holds: Callable[[], object], within_s: float = WITHIN_S) -> None:
        end_s = self.world.loop.now_s + within_s
        while not holds():
            assert self.world.loop.now_s < end_s, "it did not come true"
            await asyncio.sleep(0.01)

    # Partitions.

    async def topic(
        self, *replicas: Sequence[int], at: int = 1, name: str = TOPIC, settings: Mapping[str, str] | None = None
    ) -> None:
        """Partition by partition. When this returns the leaders lead."""
        client = await self.client(at)
        asked = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(nodes))
                for index, nodes in enumerate(replicas)
            ],
            configs=[CreatableTopicConfig(name=key, value=text) for key, text in (settings or {}).items()],
        )
        answer = await client.ask(CreateTopicsRequest(topics=[asked], timeout_ms=30_000), CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message
        for index, nodes in enumerate(replicas):
            await self.leads(nodes[0], index, name)

    async def leads(self, node_id: int, index: int = 0, name: str = TOPIC) -> Hosted:
        def is_led() -> bool:
            node = self.world.nodes[node_id - 1]
            if not node.is_serving or node.node is None or node.node.broker is None:
                return False
            found = node.node.broker.partitions.find_by_name(name, index)
            return isinstance(found, Hosted) and found.is_leading and not found.error

        await self.until(is_led)
        return self.partition(node_id, index, name)

    def partition(self, node_id: int, index: int = 0, name: str = TOPIC) -> Hosted:
        found = self.broker(node_id).partitions.find_by_name(name, index)
        assert isinstance(found, Hosted), found
        return found

    def record(self, index: int = 0, *, name: str = TOPIC, at: int = 0) -> PartitionRecord:
        """As the store has it, or as node `at` knows it."""
        if at:
            record = self.broker(at).image.partition(name, index)
            assert record is not None
            return record
        stored = self._stored(index, name)
        return records.decode(PartitionRecord, stored.key, stored.value)

    def rev(self, index: int = 0, name: str = TOPIC) -> int:
        """The revision of a record, which a move of that record compares."""
        return self._stored(index, name).mod_rev

    def write(self, record: PartitionRecord, *, rev: int = 0, index: int = 0, name: str = TOPIC) -> bool:
        """As a controller would, past all checks but that of the revision: the newest one, unless it is given."""
        stored = self._stored(index, name)
        put = Put(stored.key, records.encode(record))
        return self.world.data.txn([Cmp(stored.key, rev or stored.mod_rev)], [put], []).ok

    async def move_to(self, leader_id: int, *, isr: Sequence[int] = ()) -> None:
        """Another leader of the first partition, and perhaps another ISR, as after an election. It leads then."""
        record = self.record()
        moved = replace(
            record,
            leader=leader_id,
            isr=tuple(member for member in record.isr if not isr or member.broker_id in isr),
            leader_epoch=record.leader_epoch + 1,
            partition_epoch=record.partition_epoch + 1,
        )
        assert self.write(moved)
        await self.leads(leader_id)
        if record.leader != leader_id and self.world.nodes[record.leader - 1].is_serving:
            await self.until(lambda: not self.partition(record.leader).is_leading)

    def _stored(self, index: int, name: str) -> KV:
        serving = next(n.node_id for n in self.world.nodes if n.is_serving)
        key = records.partition_key(self.broker(serving).image.topics[name].id, index)
        (found,) = [kv for kv in self.world.data.load(key).kvs if kv.key == key]
        return found

    # Clients.

    async def client(self, node_id: int, client_id: str = "tester") -> Client:
        if self._hub is None:
            self._hub = Hub(asyncio.get_running_loop(), Limits())
        host, _, port = self.world.nodes[node_id - 1].config.listen.rpartition(":")
        return Client(await Peer.connect(self.outside.network, self._hub, host, int(port), client_id))

    async def fetch_as(
        self,
        follower_id: int,
        leader_id: int,
        index: int = 0,
        *,
        offset: int | None = None,
        log_start: int = 0,
        broker_epoch: int | None = None,
        leader_epoch: int | None = None,
        session_epoch: int = -1,
        name: str = TOPIC,
    ) -> PartitionData:
        """What that follower would ask: from its leader's log end, and without a session, unless told otherwise."""
        leader = self.partition(leader_id, index, name)
        epoch = self.broker(leader_id).image.brokers[follower_id].epoch if broker_epoch is None else broker_epoch
        asked = FetchPartition(
            partition=index,
            current_leader_epoch=leader.leader_epoch if leader_epoch is None else leader_epoch,
            fetch_offset=leader.log_end_offset if offset is None else offset,
            log_start_offset=log_start,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=follower_id, replica_epoch=epoch),
            max_wait_ms=0,
            min_bytes=1,
            session_id=0,
            session_epoch=session_epoch,
            topics=[FetchTopic(topic_id=leader.topic_id, partitions=[asked])],
        )
        client = await self.client(leader_id)
        answer = await client.ask(request, FetchResponse, FOLLOWER_VERSION)
        client.peer.close()
        assert answer.error_code == ErrorCode.NONE
        return answer.responses[0].partitions[0]
