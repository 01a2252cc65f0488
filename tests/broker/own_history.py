"""Processes that own, lose, come back and go on too long while leaders change; what they saw, what may never be."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.net.peer import PeerLost
from headrace.wire.errors import ProtocolError
from tests.broker.asking import records_of
from tests.broker.owning import DAY_MS, FIRST, IF_UNOWNED, STALE, Owner, owner_at
from tests.broker.trio import Trio

TROUBLE = (PeerLost, TimeoutError, ProtocolError, OSError)


@dataclass
class History:
    """Times are virtual seconds."""

    granted: list[tuple[float, int, str]] = field(default_factory=list)
    """When it was answered, the generation, and who got it."""
    served: list[tuple[float, int, str]] = field(default_factory=list)
    """When it was asked for, the generation that asked, and what was done for it."""

    def violations(self, log: list[int]) -> list[str]:
        """`log` holds the generations of all records, in order."""
        found = [f"generation {b} is behind {a} in the log" for a, b in itertools.pairwise(log) if b < a]
        for asked_s, generation, what in self.served:
            later = [g for answered_s, g, _ in self.granted if g > generation and answered_s < asked_s]
            if later:
                found.append(f"{what} for {generation}, asked at {asked_s:.3f}, after {max(later)} was granted")
        holders: dict[int, set[str]] = {}
        for _, generation, who in self.granted:
            holders.setdefault(generation, set()).add(who)
        return found + [f"generation {g} has {sorted(who)}" for g, who in holders.items() if len(who) > 1]


class Process:
    """One that wants to own, and does not know better."""

    def __init__(self, trio: Trio, name: str, chance: random.Random, history: History, end_s: float) -> None:
        self.name = name
        self._trio = trio
        self._chance = chance
        self._history = history
        self._end_s = end_s
        self._holder = bytes([len(name)]) * 8 + name.encode().rjust(8)
        self._generation = 0
        self._seen = 1

    @property
    def _now_s(self) -> float:
        return self._trio.world.loop.now_s

    async def run(self) -> None:
        while self._now_s < self._end_s:
            with contextlib.suppress(*TROUBLE):
                await self._live()
            await asyncio.sleep(self._chance.random())

    async def _live(self) -> None:
        leader = self._trio.record().leader
        if leader < 0:
            return
        client = await owner_at(self._trio, leader, self.name)
        try:
            # Now and then it does not even claim: it was displaced, and does not know.
            is_blind = self._generation and self._chance.random() < 0.2
            if is_blind or await self._gets(client):
                await self._work(client)
        finally:
            if self._chance.random() < 0.7:
                client.peer.close()

    async def _gets(self, client: Owner) -> bool:
        draw = self._chance.random()
        common: dict[str, Any] = {"retain_ms": DAY_MS, "holder": self._holder}
        if self._generation and draw < 0.5:
            result = (await client.own((FIRST, self._generation), op=2, **common)).resources[0]
            if result.error_code == STALE:
                self._generation = 0
        elif draw < 0.7:
            result = (await client.own((FIRST, 0), op=IF_UNOWNED, wait_ms=2_000, **common)).resources[0]
        else:
            result = (await client.own((FIRST, self._seen), **common)).resources[0]
        self._seen = max(self._seen, result.generation)
        if result.error_code:
            return False
        self._generation = result.generation
        self._history.granted.append((self._now_s, result.generation, self.name))
        return True

    async def _work(self, client: Owner) -> None:
        for _ in range(self._chance.randrange(1, 30)):
            asked_s = self._now_s
            if self._chance.random() < 0.7:
                batch, acks = records_of([b"%d" % self._generation]), self._chance.choice((1, 1, -1))
                made = await client.produce(batch, acks=acks, timeout_ms=1_000)
                code, what = made.error_code, f"a write at {made.base_offset}"
            else:
                fetched = await client.fetch(0)
                code = fetched.error_code or (not fetched.records)
                what = "a read"
            if not code:
                self._was_served(asked_s, what)
            # Now and then it sleeps, and goes on as if nothing had happened.
            await asyncio.sleep(self._chance.choice((0.001, 0.01, 0.05, 0.5, 4.0)))

    def _was_served(self, asked_s: float, what: str) -> None:
        self._history.served.append((asked_s, self._generation, what))


class TokenProcess(Process):
    """A stock client: it says who it is by its client.id, and every start has a higher number."""

    numbers: Iterator[int]
    """Shared by all of them."""

    async def _live(self) -> None:
        if self._generation == 0 or self._chance.random() < 0.3:
            self._generation = next(self.numbers)
        leader = self._trio.record().leader
        if leader < 0:
            return
        client = await owner_at(self._trio, leader, f"own--g--{self._generation}--{self.name}")
        try:
            await self._work(client)
        finally:
            if self._chance.random() < 0.7:
                client.peer.close()

    def _was_served(self, asked_s: float, what: str) -> None:
        super()._was_served(asked_s, what)
        self._history.granted.append((self._now_s, self._generation, self.name))


async def mischief(trio: Trio, chance: random.Random, end_s: float) -> None:
    """Leaders move, step down, stop for a while, are killed, or lose the store."""
    while trio.world.loop.now_s < end_s:
        await asyncio.sleep(chance.uniform(0.5, 4))
        leader = trio.record().leader
        if leader < 0 or not all(node.is_serving for node in trio.world.nodes):
            continue
        node = trio.world.nodes[leader - 1]
        match chance.randrange(6):
            case 0:
                node.kill()
                await asyncio.sleep(chance.uniform(0.1, 12))
                node.start()
            case 1:
                node.pause()
                await asyncio.sleep(chance.uniform(0.1, 14))
                node.resume()
            case 2 | 5 as kind:
                await _without_store(trio, leader, chance.uniform(5, 30), alone=kind == 5)
            case 3:
                trio.world.network.reset("client", node.host)
            case _:
                partition = trio.partition(leader)
                trio.broker(leader).roles.step_down(partition.topic_id, 0, trio.record().partition_epoch)


async def _without_store(trio: Trio, node_id: int, seconds: float, *, alone: bool) -> None:
    """`alone`: without the other nodes too. Clients reach it all the time."""
    network, host, store = trio.world.network, trio.world.nodes[node_id - 1].host, trio.store(node_id)
    store.unavailable = True
    for other in trio.world.nodes if alone else ():
        if other.host != host:
            network.cut(host, other.host)
            network.cut(other.host, host)
    await asyncio.sleep(seconds)
    store.unavailable = False
    network.heal_all()
