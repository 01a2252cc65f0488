"""Members of one classic group of a simulated cluster: they join, are assigned partitions, and commit offsets.

They speak to the coordinator themselves, so that they also commit when they should know better. Their processes are
paused, cut off, killed and started again, some under the same name for the group (static members).
"""

import asyncio
from collections.abc import Callable
from random import Random

from headrace.client import Outside
from headrace.client.group_admin import assigned_partitions
from headrace.core.internal_topics import CONSUMER_OFFSETS
from headrace.errors import ErrorCode
from headrace.model import TopicPartition
from headrace.net.peer import PeerLost
from headrace.sim.assigning import ranges, subscription
from headrace.sim.clients import Work
from headrace.sim.coordinated import Coordinated, Lost
from headrace.sim.history import GroupAssigned, GroupCommit, GroupCommitted, GroupTold
from headrace.sim.mishaps import befall
from headrace.sim.world import World
from headrace.wire.errors import ProtocolError
from headrace.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
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

GROUP = "n"
"""Kept in the first partition of its topic, at whose leader faults are aimed."""
TOPIC = "m"
PARTITIONS = [TopicPartition(TOPIC, index) for index in range(4)]
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "300",
    "group.min.session.timeout.ms": "1000",
}
COORDINATING = TopicPartition(CONSUMER_OFFSETS, 0)

SESSION_MS = 2_000
REBALANCE_MS = 3_000
BEAT_S = 0.15
JOIN_MS_MAX = 10_000
ANSWER_MS_MAX = 4_000
OLD_VERSIONS = {11: 3, 12: 2, 13: 2, 14: 2, 8: 5}
"""Of a client from before static members, and from before ids had to be known."""


class Members:
    """What the members of one world share."""

    def __init__(self, work: Work, tell: Callable[[str, str], None]) -> None:
        self.work = work
        self.tell = tell
        self.is_over = False
        self.last: dict[str, tuple[int, tuple[TopicPartition, ...]]] = {}
        """Of those who will not be disturbed any more: the generation in which they are, and what is theirs."""
        self.quiet_s = 0.0
        """When the last of these began."""
        self._offset = 0

    def next_offset(self) -> int:
        """Each commit has another one."""
        self._offset += 1
        return self._offset

    def is_settled(self, count: int) -> bool:
        held = [partition for _, partitions in self.last.values() for partition in partitions]
        generations = {generation for generation, _ in self.last.values()}
        return len(self.last) == count and len(generations) == 1 and sorted(held) == PARTITIONS


class Member:
    """One process. A `lasting` one goes on until everybody has seen enough."""

    def __init__(
        self, members: Members, name: str, instance_id: str | None, outside: Outside, random: Random, *, lasting: bool
    ) -> None:
        self._members = members
        self._history = members.work.history
        self._name = name
        self._instance_id = instance_id
        self._random = random
        self._lasting = lasting
        self._versions = OLD_VERSIONS if instance_id is None and random.random() < 0.25 else {}
        self._coordinator = Coordinated(members.work.bootstrap, GROUP, name, outside, random, self._versions)
        self._member_id = ""
        self._generation = -1
        self._mine: list[TopicPartition] = []

    @property
    def _is_over(self) -> bool:
        return self._members.is_over if self._lasting else self._members.work.is_over

    async def run(self) -> None:
        while not self._is_over:
            try:
                await self._join()
                await self._stay()
            except (Lost, PeerLost, ProtocolError, TimeoutError):
                await asyncio.sleep(self._random.expovariate(5))
            self._members.last.pop(self._name, None)
        if self._lasting or self._random.random() < 0.5:
            await self._leave()
        self._coordinator.close()

    async def _join(self) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupProtocol(name="range", metadata=subscription([TOPIC]))],
        )
        answer = await self._coordinator.ask(request, JoinGroupResponse, JOIN_MS_MAX)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
        self._judge(answer.error_code)
        old_generation, self._generation, self._member_id = self._generation, answer.generation_id, answer.member_id
        assigned = {}
        if answer.leader == self._member_id and not answer.skip_assignment:
            assigned = ranges([member.member_id for member in answer.members], PARTITIONS)
        await self._sync(answer.protocol_name, assigned)
        if old_generation != self._generation and self._random.random() < 0.5:
            await self._commit(old_generation)

    async def _sync(self, protocol_name: str | None, assigned: dict[str, bytes]) -> None:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocol_name=protocol_name,
            assignments=[SyncGroupRequestAssignment(member_id=who, assignment=mine) for who, mine in assigned.items()],
        )
        answer = await self._coordinator.ask(request, SyncGroupResponse, JOIN_MS_MAX)
        self._judge(answer.error_code)
        self._mine = assigned_partitions(answer.assignment)
        who = self._instance_id or self._member_id
        self._history.add(
            GroupAssigned(self._history.now_s(), self._name, who, GROUP, self._generation, tuple(self._mine))
        )
        told = ", ".join(map(str, self._mine)) or "nothing"
        self._members.tell(self._name, f"is in generation {self._generation} of {GROUP}, with {told}")

    async def _stay(self) -> None:
        """Until the group is rebalanced, or it wants to go."""
        if self._lasting:
            self._members.last[self._name] = (self._generation, tuple(self._mine))
        while not self._is_over:
            await asyncio.sleep(self._random.expovariate(1 / BEAT_S))
            draw = self._random.random()
            if draw < 0.45 and self._mine:
                await self._commit(self._generation)
            elif draw < 0.6:
                await self._look()
            elif draw < 0.63 and not self._lasting:
                await self._leave()
                raise Lost
            else:
                await self._beat()

    async def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        answer = await self._coordinator.ask(request, HeartbeatResponse, ANSWER_MS_MAX)
        self._judge(answer.error_code)

    async def _commit(self, generation: int) -> None:
        history, offset = self._history, self._members.next_offset()
        partition = self._random.choice(self._mine or PARTITIONS)
        place = OffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=offset, committed_metadata=self._name
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            topics=[OffsetCommitRequestTopic(name=partition.topic, partitions=[place])],
        )
        history.add(GroupCommit(history.now_s(), self._name, GROUP, generation, partition, offset))
        answer = await self._coordinator.ask(request, OffsetCommitResponse, ANSWER_MS_MAX, version_max=9)
        code = answer.topics[0].partitions[0].error_code
        history.add(GroupCommitted(history.now_s(), GROUP, partition, offset, code))
        if generation == self._generation:
            self._judge(code)

    async def _look(self) -> None:
        partition, history = self._random.choice(PARTITIONS), self._history
        asked_s = history.now_s()
        offset = await self._coordinator.committed(partition)
        history.add(GroupTold(asked_s, history.now_s(), self._name, GROUP, partition, offset))

    async def _leave(self) -> None:
        identity = MemberIdentity(member_id=self._member_id, group_instance_id=self._instance_id)
        request = LeaveGroupRequest(group_id=GROUP, member_id=self._member_id, members=[identity])
        self._member_id, self._generation, self._mine = "", -1, []
        try:
            await self._coordinator.ask(request, LeaveGroupResponse, ANSWER_MS_MAX)
        except (Lost, PeerLost, ProtocolError, TimeoutError):
            return

    def _judge(self, code: int) -> None:
        """Lost unless it may go on as it is."""
        if not code:
            return
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""
        elif code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator.forget()
        raise Lost


async def keep_member(world: World, members: Members, name: str, *, static: bool) -> None:
    """One life after another. When the world's trouble is over, the last one: it must get its share."""
    random = world.random_for(name)
    number = 0
    instance_id = name if static else None
    while not members.work.is_over:
        number += 1
        host = f"{name}.{number}"
        process, outside = world.new_client(host)
        life = Member(members, host, instance_id, outside, Random(random.random()), lasting=False)
        await befall(world, process, host, world.loop.spawn(process, life.run()), random)
        await asyncio.sleep(random.choice((0.05, 0.5, 2.5)))
    members.quiet_s = members.work.history.now_s()
    process, outside = world.new_client(f"{name}.last")
    last = Member(members, f"{name}.last", instance_id, outside, Random(random.random()), lasting=True)
    await world.loop.spawn(process, last.run())
