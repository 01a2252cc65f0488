"""Members of groups without opinions of their own, on nodes in virtual time."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from headrace.core.group import Group as KeptGroup
from headrace.core.internal_topics import CONSUMER_OFFSETS
from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from headrace.wire.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from headrace.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from headrace.wire.struct import Message
from tests.broker.asking import TOPIC, Client
from tests.broker.trio import Trio

M = TypeVar("M", bound=Message)
T = TypeVar("T")

GROUP = "a group"
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
"""One coordinator for all groups, and none waits for members who are not there yet."""
SESSION_MS = 10_000
TOO_EARLY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""A client looks for the coordinator, and asks again."""


def subscription(*topics: str) -> bytes:
    packed = [struct.pack(">h", len(name)) + name.encode() for name in topics]
    return struct.pack(">hi", 1, len(topics)) + b"".join(packed) + struct.pack(">i", 0)


async def coordinator_of(trio: Trio, group_id: str = GROUP) -> int:
    """The node that coordinates the group, once it serves."""
    asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
    while True:
        for node in trio.world.nodes:
            if not node.is_serving:
                continue
            try:
                client = await trio.client(node.node_id)
                found = (await client.ask(asked, FindCoordinatorResponse)).coordinators[0]
                client.peer.close()
            except PeerLost:
                continue
            if not found.error_code and is_coordinating(trio, found.node_id, group_id):
                return found.node_id
        await asyncio.sleep(0.05)


def is_coordinating(trio: Trio, node_id: int, group_id: str = GROUP) -> bool:
    if not trio.world.nodes[node_id - 1].is_serving:
        return False
    return not isinstance(trio.broker(node_id).groups.find(group_id), ErrorCode)


def copies_of(trio: Trio) -> set[int]:
    """Replicas that are in sync with the only partition of groups."""
    return set(trio.record(name=CONSUMER_OFFSETS).isr_ids)


class Group:
    """What clients ask of one group, of whoever coordinates it."""

    def __init__(self, trio: Trio, group_id: str = GROUP) -> None:
        self.trio = trio
        self.group_id = group_id
        self._client: Client | None = None

    async def ask(self, message: Message, answer: type[M], version: int | None = None) -> M:
        """Of the coordinator; PeerLost when that dies."""
        if self._client is None or self._client.peer.closed:
            self._client = await self.trio.client(await coordinator_of(self.trio, self.group_id))
        return await self._client.ask(message, answer, version)

    def drop(self) -> None:
        """The connection."""
        if self._client is not None:
            self._client.peer.close()
        self._client = None

    async def commit(
        self,
        offsets: Mapping[int, int],
        *,
        member: "Member | None" = None,
        generation: int | None = None,
        topic: str = TOPIC,
        metadata: str = "",
        version: int = 9,
        retention_ms: int = -1,
    ) -> list[int]:
        """The code of each partition."""
        said = -1 if member is None else member.generation
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=said if generation is None else generation,
            member_id="" if member is None else member.member_id,
            group_instance_id=None if member is None else member.instance_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata
                        )
                        for index, offset in offsets.items()
                    ],
                )
            ],
        )
        answer = await self.ask(request, OffsetCommitResponse, version)
        return [told.error_code for topic in answer.topics for told in topic.partitions]

    async def committed(
        self, *partitions: int, topic: str = TOPIC, stable: bool = False, version: int = 8
    ) -> list[tuple[int, int]]:
        """Error and offset of each partition."""
        asked = OffsetFetchRequestGroup(
            group_id=self.group_id,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))],
        )
        request = OffsetFetchRequest(groups=[asked], require_stable=stable)
        answer = await self.ask(request, OffsetFetchResponse, version)
        if answer.groups[0].error_code:
            return [(answer.groups[0].error_code, -1) for _ in partitions]
        return [(told.error_code, told.committed_offset) for told in answer.groups[0].topics[0].partitions]


class Member(Group):
    """One connection and one place in a group."""

    def __init__(
        self,
        trio: Trio,
        group_id: str = GROUP,
        *,
        instance_id: str | None = None,
        topics: Sequence[str] = (TOPIC,),
        session_ms: int = SESSION_MS,
        rebalance_ms: int = 60_000,
        protocol_type: str = "consumer",
    ) -> None:
        super().__init__(trio, group_id)
        self.instance_id = instance_id
        self.protocol_type = protocol_type
        self.topics = topics
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.members: list[str] = []
        self.assignment = b""
        self.joined: JoinGroupResponse | None = None

    @property
    def leads(self) -> bool:
        return self.leader == self.member_id

    async def join(self, version: int = 9) -> int:
        """Also the second time, if it is only given an id in the first."""
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupProtocol(name="range", metadata=subscription(*self.topics))],
        )
        answer = await self.ask(request, JoinGroupResponse, version)
        self.joined = answer
        if answer.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return await self.join(version)
        if not answer.error_code:
            self.generation, self.leader = answer.generation_id, answer.leader
            self.members = [member.member_id for member in answer.members]
        return answer.error_code

    async def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5) -> int:
        """The leader assigns to everybody its own id, unless it is told what."""
        if assignments is None:
            assignments = {member_id: member_id.encode() for member_id in self.members}
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=part)
                for member_id, part in assignments.items()
            ],
        )
        answer = await self.ask(request, SyncGroupResponse, version)
        self.assignment = answer.assignment
        return answer.error_code

    async def beat(self, version: int = 4) -> int:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return (await self.ask(request, HeartbeatResponse, version)).error_code

    async def leave(self, version: int = 5) -> int:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id, members=[identity])
        answer = await self.ask(request, LeaveGroupResponse, version)
        return answer.error_code or (answer.members[0].error_code if answer.members else 0)


async def stable(trio: Trio, count: int = 1, **fields: object) -> list[Member]:
    """Members that have their assignments; the first leads."""
    members = [Member(trio, **fields) for _ in range(count)]  # type: ignore[arg-type]  # passed on
    first = members[0]
    assert await first.join() == 0
    waiting = [asyncio.create_task(member.join()) for member in members[1:]]
    if waiting:
        await trio.until(lambda: len(group_at(trio, first.group_id).members) == count)
        assert await first.join() == 0
        assert [await one for one in waiting] == [0] * (count - 1)
    assert list(await asyncio.gather(*(member.sync() for member in members))) == [0] * count
    return members


def group_at(trio: Trio, group_id: str = GROUP) -> KeptGroup:
    """As its coordinator knows it."""
    for node in trio.world.nodes:
        if node.is_serving:
            found = trio.broker(node.node_id).groups.find(group_id)
            if found is not None and not isinstance(found, ErrorCode):
                return found
    raise AssertionError(f"nobody knows {group_id}")


async def comes_to(wanted: T, ask: Callable[[], Awaitable[T]]) -> None:
    """Asked again and again, for at most a minute."""
    async with asyncio.timeout(60):
        while True:
            if await ask() == wanted:
                return
            await asyncio.sleep(0.1)


async def settled(ask: Callable[[], Awaitable[int]]) -> int:
    """What it says when somebody coordinates, as a client that asks again hears it."""
    while True:
        try:
            code = await ask()
        except PeerLost:
            code = ErrorCode.NOT_COORDINATOR
        if code not in TOO_EARLY:
            return code
        await asyncio.sleep(0.1)
