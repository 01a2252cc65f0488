"""The beginning and the end of a simulated consumer group."""

import asyncio
from random import Random

from headrace.client import Outside
from headrace.net.peer import PeerLost
from headrace.sim.coordinated import Coordinated, Lost
from headrace.sim.history import GroupSettled, GroupTold
from headrace.sim.members import GROUP, PARTITIONS, Members
from headrace.wire.errors import ProtocolError

PAUSE_S = 0.1


async def prepare(members: Members, outside: Outside, random: Random) -> None:
    """The first question has the topic of the coordinators made."""
    await _look(members, outside, random)


async def settle(members: Members, count: int) -> None:
    """When all nodes serve: until each partition is with one of that many members, and all know it."""
    history = members.work.history
    serving_s = history.now_s()
    while not members.is_settled(count):  # noqa: ASYNC110  # nobody is told of every change
        await asyncio.sleep(PAUSE_S)
    history.add(GroupSettled(max(serving_s, members.quiet_s), history.now_s(), GROUP))
    members.is_over = True  # they may go


async def look_in_the_end(members: Members, outside: Outside, random: Random) -> None:
    """When nobody commits any more."""
    await _look(members, outside, random)


async def _look(members: Members, outside: Outside, random: Random) -> None:
    history = members.work.history
    coordinator = Coordinated(members.work.bootstrap, GROUP, "looker", outside, random, {})
    left = list(PARTITIONS)
    while left:
        asked_s = history.now_s()
        try:
            offset = await coordinator.committed(left[-1])
        except (Lost, PeerLost, ProtocolError, TimeoutError):
            await asyncio.sleep(PAUSE_S)
            continue
        history.add(GroupTold(asked_s, history.now_s(), "looker", GROUP, left.pop(), offset))
    coordinator.close()
