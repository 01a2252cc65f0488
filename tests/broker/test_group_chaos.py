"""Tgrp-1: members join, leave, fall silent and die at random, and so do coordinators. At no time do two members
believe to own one partition in one generation, and offsets never go back."""

import asyncio
import random

import pytest

from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from tests.broker.grouped import SESSION_MS, SETTINGS, TOO_EARLY, Member, coordinator_of
from tests.broker.trio import Trio, play

PARTITIONS = 12
SPEED_S = 0.5


class Book:
    """Who was told to own what."""

    def __init__(self) -> None:
        self.owners: dict[tuple[int, int], str] = {}
        """By generation and partition."""
        self.told = 0
        self.generations: set[int] = set()
        self.committed: dict[int, int] = {}

    def owns(self, member: Member, partitions: list[int]) -> None:
        self.told += 1
        self.generations.add(member.generation)
        for partition in partitions:
            known = self.owners.setdefault((member.generation, partition), member.member_id)
            assert known == member.member_id, f"{partition} belongs to two members of generation {member.generation}"


class Worker:
    """A consumer as clients are: it joins, syncs, beats and commits, and does what the answers say."""

    def __init__(self, trio: Trio, book: Book, chance: random.Random) -> None:
        self.book = book
        self.chance = chance
        self.member = Member(trio, rebalance_ms=SESSION_MS)
        self.owned: list[int] = []

    async def live(self) -> None:
        while True:
            try:
                await self._join()
                await self._work()
            except PeerLost:
                self.member.drop()
            await asyncio.sleep(self.chance.random() * SPEED_S)

    async def _join(self) -> None:
        member = self.member
        code = await member.join()
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            member.member_id = ""
        if code in TOO_EARLY:
            member.drop()
        if code:
            member.generation = -1
            return
        assert len(member.members) == len(set(member.members))
        dealt: dict[str, list[int]] = {member_id: [] for member_id in member.members}
        for partition in range(PARTITIONS) if dealt else ():
            dealt[member.members[partition % len(dealt)]].append(partition)
        generation = member.generation
        code = await member.sync({member_id: bytes(part) for member_id, part in dealt.items()})
        if code:
            member.generation = -1
        else:
            assert member.generation == generation
            self.owned = list(member.assignment)
            self.book.owns(member, self.owned)

    async def _work(self) -> None:
        member = self.member
        while member.generation >= 0:
            await asyncio.sleep(self.chance.random() * 2 * SPEED_S)
            if self.chance.random() < 0.02:
                await asyncio.sleep(SESSION_MS / 1000 * 1.5)  # A pause that costs it its session.
            if self.owned and self.chance.random() < 0.3:
                await self._commit(self.chance.choice(self.owned))
            code = await member.beat()
            if code in TOO_EARLY:
                member.drop()
            elif code == ErrorCode.UNKNOWN_MEMBER_ID:
                member.member_id, member.generation = "", -1
            elif code:
                member.generation = -1

    async def _commit(self, partition: int) -> None:
        wanted = self.book.committed.get(partition, 0) + 1
        codes = await self.member.commit({partition: wanted}, member=self.member)
        if codes == [0]:
            self.book.committed[partition] = max(self.book.committed.get(partition, 0), wanted)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kills", [False, True], ids=["one node", "coordinators die"])
def test_no_two_members_own_one_partition(seed: int, kills: bool) -> None:
    members = 12 if kills else 50

    async def scenario(trio: Trio) -> None:
        chance = random.Random(seed)
        await trio.topic(*[[1]] * PARTITIONS)
        await coordinator_of(trio)
        book = Book()
        workers: list[asyncio.Task[None]] = []

        def begin() -> None:
            worker = Worker(trio, book, random.Random(chance.random()))
            workers.append(asyncio.create_task(worker.live()))

        for _ in range(members):
            begin()
        for _ in range(30):
            await asyncio.sleep(2)
            gone = workers.pop(chance.randrange(len(workers)))
            gone.cancel()  # Without a word to anybody.
            begin()
            if kills and chance.random() < 0.2:
                await trio.restart(await coordinator_of(trio))
        await asyncio.sleep(SESSION_MS / 1000 * 3)
        assert not [worker.exception() for worker in workers if worker.done()]
        for worker in workers:
            worker.cancel()
        assert len(book.generations) > 3 and book.told > members
        reader = Member(trio)
        for partition, offset in book.committed.items():
            ((code, found),) = await reader.committed(partition)
            assert code == 0 and found >= offset

    settings = SETTINGS | {"group.initial.rebalance.delay.ms": "500"}
    play(scenario, settings, nodes=3 if kills else 1, replicates=kills, seed=seed)
